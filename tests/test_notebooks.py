"""The notebooks stand as built: in step with their sources, without errors, each ending in exercises that exist.

Nothing is executed here; `python notebooks/build.py --check` does that, and compares the outputs.
"""

import copy
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from minitransformer import course

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def _build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_notebooks", NOTEBOOKS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _build()
NAMES = build.names()


def code_of(notebook: dict) -> str:
    return "\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_each_notebook_has_a_source_and_the_numbers_run_on() -> None:
    assert [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))] == NAMES
    assert [int(name.partition("_")[0]) for name in NAMES] == list(range(1, len(NAMES) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_built_notebook_has_the_cells_of_its_source(name: str) -> None:
    assert build.source_differences(build.read_source(name), build.read_built(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_outputs_hold_no_error_no_warning_and_no_address(name: str) -> None:
    built = build.read_built(name)
    assert build.flaws(built) == []
    ran = [cell["execution_count"] for cell in built["cells"] if cell["cell_type"] == "code"]
    assert ran == list(range(1, len(ran) + 1))  # each cell once, from top to bottom
    assert any(output for cell in built["cells"] for output in cell.get("outputs", []))


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_modest(name: str) -> None:
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 600_000


@pytest.mark.parametrize("name", NAMES)
def test_begins_with_its_number_and_names_the_device_once(name: str) -> None:
    notebook = build.read_source(name)
    assert notebook["cells"][0]["source"].startswith(f"# {int(name.partition('_')[0])} ")
    assert code_of(build.on_device(notebook, "strict")).count('device = "strict"') == 1


@pytest.mark.parametrize("name", NAMES)
def test_ends_with_exercises_that_exist(name: str) -> None:
    cells = build.read_source(name)["cells"]
    headings = [i for i, cell in enumerate(cells) if re.match("## Exercises", cell["source"])]
    assert len(headings) == 1
    after = {"cells": cells[headings[0] :]}
    assert not [cell for cell in after["cells"] if re.match("## (?!Exercises)", cell["source"])]
    asked = re.findall(r'course\.check\("(\w+)"', code_of(after))
    assert asked
    for exercise in asked:
        course.exercise(exercise)  # refuses a name that it does not know


# The tool itself.


def test_a_source_is_read_as_text_and_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = '# %% [markdown]\n# # 1 Title\n#\n# *text*\n\n# %% tags=["varies"]\nx = 1\n\nx\n\n# %%\n# a comment\n'
    (tmp_path / "01_x.py").write_text(text)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    cells = build.read_source("01_x")["cells"]
    assert [cell["source"] for cell in cells] == ["# 1 Title\n\n*text*", "x = 1\n\nx", "# a comment"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code"]
    assert [cell["metadata"] for cell in cells] == [{}, {"tags": ["varies"]}, {}]
    assert len({cell["id"] for cell in cells}) == 3


@pytest.mark.parametrize("text", ["# %%[markdown]\n# x\n", "# %% markdown\n# x\n", "import numpy\n# %%\n1\n"])
def test_a_source_with_a_bad_marker_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    (tmp_path / "01_x.py").write_text(text)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    with pytest.raises(ValueError, match=r"01_x\.py"):
        build.read_source("01_x")


def _notebook(tags: list[str], text: str, source: str = "f()") -> dict:
    output = {"output_type": "stream", "name": "stdout", "text": text}
    cell = {"cell_type": "code", "metadata": {"tags": tags}, "source": source, "outputs": [output], "id": "a"}
    return {"cells": [cell]}


def test_changed_source_and_changed_output_are_noticed() -> None:
    one = _notebook([], "0.1\n")
    assert build.source_differences(one, copy.deepcopy(one)) == []
    assert build.output_differences(one, copy.deepcopy(one)) == []
    assert build.source_differences(one, _notebook([], "0.1\n", "g()"))
    assert build.source_differences(one, {"cells": []})
    assert build.output_differences(one, _notebook([], "0.2\n"))


def test_only_a_cell_that_varies_may_print_something_else() -> None:
    assert build.output_differences(_notebook(["varies"], "0.1 s\n"), _notebook(["varies"], "0.2 s\n")) == []
    silent = _notebook(["varies"], "")
    silent["cells"][0]["outputs"] = []
    assert build.output_differences(_notebook(["varies"], "0.1 s\n"), silent)


def test_flaws_in_outputs_are_found() -> None:
    assert build.flaws(_notebook([], "<f at 0x7f12aa34bb10>"))
    error = _notebook([], "")
    error["cells"][0]["outputs"] = [{"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}]
    assert build.flaws(error)
    warning = _notebook([], "careless")
    warning["cells"][0]["outputs"][0]["name"] = "stderr"
    assert build.flaws(warning)


def test_lists_of_lines_and_texts_are_the_same() -> None:
    built = json.loads(json.dumps(_notebook([], "a\nb\n")))
    built["cells"][0]["outputs"][0]["text"] = ["a\n", "b\n"]
    assert build.output_differences(_notebook([], "a\nb\n"), built) == []


def test_unknown_notebook_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        build.names(["99"])
