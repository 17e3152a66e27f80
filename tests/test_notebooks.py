"""The stored notebooks: in step with their sources, without errors, with pictures, ending in exercises that exist.

Nothing is executed here; `python notebooks/build.py --check` does that, and compares the outputs.
"""

import ast
import base64
import copy
import io
import json
import re
from pathlib import Path

import pytest
from common import code_of, printed
from matplotlib.figure import Figure
from tiers import in_one

from minitransformer import course
from minitransformer.school.show.site import markdown, notebook, slides
from minitransformer.school.show.site.frame import Site

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


build = code_of(NOTEBOOKS / "build.py")
NAMES = build.names()


def code_of(notebook: dict) -> str:
    return "\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_each_notebook_has_a_source_and_the_numbers_run_on() -> None:
    for folder in (NOTEBOOKS, NOTEBOOKS / "student"):
        assert [path.stem for path in sorted(folder.glob("*.ipynb"))] == NAMES
    assert [int(name.partition("_")[0]) for name in NAMES] == list(range(1, len(NAMES) + 1))


@in_one("name", NAMES)
def test_built_notebook_has_the_cells_of_its_source(name: str) -> None:
    assert build.source_differences(build.read_source(name), build.read_built(name)) == []


@in_one("name", NAMES)
def test_the_student_file_has_the_same_cells_and_no_output(name: str) -> None:
    student = build.read_built(name, build.STUDENT)
    assert build.student_differences(build.read_source(name), student) == []
    assert build.student_differences(build.read_source(name), build.read_built(name))  # the teacher's file has outputs


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_outputs_hold_no_error_no_warning_no_address_and_no_missing_picture(name: str) -> None:
    built = build.read_built(name)
    assert build.flaws(built) == []
    ran = [cell["execution_count"] for cell in built["cells"] if cell["cell_type"] == "code"]
    assert ran == list(range(1, len(ran) + 1))  # each cell once, from top to bottom
    assert any(output for cell in built["cells"] for output in cell.get("outputs", []))


@in_one("name", NAMES)
def test_pictures_are_modest(name: str) -> None:
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 600_000


@in_one("name", NAMES)
def test_begins_with_its_number_and_names_the_device_once(name: str) -> None:
    notebook = build.read_source(name)
    assert notebook["cells"][0]["source"].startswith(f"# {int(name.partition('_')[0])} ")
    if name in build.ON_THE_HOST:
        assert not re.search(r"\bdevice\b|minitransformer import .*backend", code_of(notebook))
    else:
        assert code_of(build.on_device(notebook, "strict")).count('device = "strict"') == 1


@in_one("name", NAMES)
def test_given_code_takes_no_name_of_an_exercise(name: str) -> None:
    """Otherwise the grader would take the given code for the student's."""
    cells = build.read_source(name)["cells"]
    end = next(i for i, cell in enumerate(cells) if cell["source"].startswith("## Exercises"))
    code = ast.parse(code_of({"cells": cells[:end]}))
    outside_functions = [node for top in code.body if not isinstance(top, ast.FunctionDef) for node in ast.walk(top)]
    bound = {node.id for node in outside_functions if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {top.name for top in code.body if isinstance(top, ast.FunctionDef)}
    assert bound.isdisjoint(course.EXERCISES)


@in_one("name", NAMES)
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


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_marks_make_slides_with_one_idea_each(name: str, tmp_path: Path) -> None:
    chapter = next(chapter for chapter in notebook.read(NOTEBOOKS) if chapter.stem == name)
    found = slides.slides_of(Site(tmp_path, "pyodide/", "x.whl"), chapter)
    assert 10 <= len(found) <= slides.MOST
    assert [found[0].kind, found[-1].title] == ["title", "Exercises"] and found[0].texts
    for slide in found[1:]:
        words = sum(len(markdown.plain(text).split()) for text in slide.texts)
        assert slide.texts or slide.output
        assert notebook.PICTURE not in slide.output  # a slide has no cell
        assert words <= slides.MOST_WORDS or len(slide.texts) == 1, (slide.title, words)
        assert slide.kind == ("question" if any(markdown.PREDICT in text for text in slide.texts) else "idea")
        assert slide.given or not (slide.kind == "question" and slide.output)  # which would answer it
    assert sum(bool(slide.texts and slide.output) for slide in found) >= 4
    marked = [text for cell in chapter.cells for text in cell["metadata"].get("slides", [])]
    assert not re.search(r"[Nn]otebooks?\s+\d", " ".join(marked))  # which is a chapter here, as in its text
    assert [text for slide in found[1:] for text in slide.texts] == [re.sub("(?m)^> ?", "", text) for text in marked]


def as_script(notebook: dict) -> str:
    """The code of all cells, where the value of a cell's last line is displayed, as Jupyter does."""
    display = "def display(x):\n    return getattr(x, '_repr_html_', x.__repr__)()\n"
    trees = [ast.parse(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for last in [tree.body[-1] for tree in trees if tree.body]:
        if isinstance(last, ast.Expr):
            last.value = ast.Call(ast.Name("display"), [last.value], [])
    code = "\n".join(map(ast.unparse, trees))
    return display + code.replace("from IPython.display import display", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in build.ON_THE_HOST])
def test_runs_on_another_device(name: str, tmp_path: Path) -> None:
    """A wrong gradient on a device ended in a TypeError in place of a verdict, and nothing had looked."""
    script = tmp_path / f"{name}.py"
    script.write_text(as_script(build.on_device(build.read_source(name), "strict")), encoding="utf-8")
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    printed(run, str(script), MPLBACKEND="agg", MINITRANSFORMER_DEVICE="numpy")


# The tool itself.


def test_marks_are_kept_for_the_slides_and_shown_to_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "01_x.py").write_text("# %% [markdown]\n# ⟦One idea.⟧ And\n# ⟦two\n# lines.⟧\n\n# %%\nx = '⟦'\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    text, code = build.read_source("01_x")["cells"]
    assert (text["source"], text["metadata"]) == (
        "One idea. And\ntwo\nlines.",
        {"slides": ["One idea.", "two\nlines."]},
    )
    assert code["source"] == "x = '⟦'" and code["metadata"] == {}
    assert build.for_students(build.read_source("01_x"))["cells"][0]["metadata"] == {}


def test_a_heading_begins_a_slide_and_a_question_is_not_answered_on_its_own(tmp_path: Path) -> None:
    def text(source: str, *marked: str) -> dict:
        return {"cell_type": "markdown", "source": source, "metadata": {"slides": list(marked)}, "id": "t"}

    def code(printed: str, *tags: str) -> dict:
        output = {"output_type": "stream", "name": "stdout", "text": printed}
        return {"cell_type": "code", "source": "f()", "metadata": {"tags": list(tags)}, "outputs": [output], "id": "c"}

    question = "**Predict first.** g?"
    cells = [
        text("# 1 T\n\n- a goal"),
        text(f"## 1.1 First g\n\nSee f. {question}\n\n## 1.2 Not marked", "See f.", question),
        code("seven", "slide"),
        text("## 1.3 Third\n\nIt is seven. More.", "It is seven."),
        code("not marked"),
        code("eight", "slide-code", "varies"),
        text("Nine.", "Nine."),
    ]
    found = slides.slides_of(Site(tmp_path, "pyodide/", "x.whl"), notebook.Chapter("01_t", cells))
    assert [(s.title, s.kind, s.texts, re.sub("<.*?>|\\s", "", s.output)) for s in found] == [
        ("1 T", "title", ["- a goal"], ""),
        ("First g", "question", ["See f.", question], ""),
        ("Not marked", "idea", [], "seven"),
        ("Third", "idea", ["It is seven."], "f()eight"),
        ("Third", "idea", ["Nine."], ""),
    ]


def test_a_question_stands_with_what_it_asks_about(tmp_path: Path) -> None:
    """Slides asked about "these" and "the cell above", which only the chapter had."""

    def text(source: str) -> dict:
        return {"cell_type": "markdown", "source": source, "metadata": {"slides": [source]}, "id": "t"}

    def code(*tags: str) -> dict:
        output = {"output_type": "stream", "name": "stdout", "text": "seven"}
        return {"cell_type": "code", "source": "f()", "metadata": {"tags": list(tags)}, "outputs": [output], "id": "c"}

    def shown(*cells: dict) -> list[tuple[str, str]]:
        title = {"cell_type": "markdown", "source": "# 1 T\n\n## 1.1 G", "metadata": {}, "id": "h"}
        found = slides.slides_of(Site(tmp_path, "pyodide/", "x.whl"), notebook.Chapter("01_t", [title, *cells]))
        return [(s.kind, re.sub("<.*?>|\\s", "", s.output)) for s in found[1:]]

    question = text("**Predict first.** Which of these is wrong?")
    assert shown(code("slide-given"), question, code("slide")) == [("question", "seven"), ("idea", "seven")]
    assert shown(code("slide-given-code"), question) == [("question", "f()seven")]
    assert shown(question, code("slide-asked", "slide")) == [("question", "f()"), ("idea", "seven")]
    assert shown(text("**Predict first.** Which of these?\n\n- a\n- b")) == [("question", "")]
    for told in (
        "Which of these is wrong?",
        "Look at the cell above.",
        "What is it? Write it down before you run the cell.",
        "For which size does such a check reject it?",
        "Where will the right picture look like a barcode?",
        "The next cells open it. How many are there?",
        "In small numbers:",
        "What does our function return?",
        "Look at its sizes. What happens?",
        "What should this 32 × 32 matrix look like?",
        "Write your four answers down.",
    ):
        words = "these|the cell above|before you run|such a|right picture|next cells|numbers:"
        words += "|our function|its sizes|this 32 ×|Write your"
        with pytest.raises(ValueError, match=rf"slide 2 of 01_t, 'G': '({words})' is not on it"):
            shown(text(f"**Predict first.** {told}"))


def test_answers_to_predictions_are_kept_for_the_teacher_and_shown_to_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "01_x.py").write_text("# %% [markdown]\n# **Predict first.** x?\n#: x: 1; y: no\n#: z: 2\n\n# %%\nx\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    source = build.read_source("01_x")
    text, code = source["cells"]
    assert (text["source"], text["metadata"]) == ("**Predict first.** x?", {"answer": "x: 1; y: no; z: 2"})
    assert build.for_students(source)["cells"] == [text | {"metadata": {}}, code]
    assert build.student_differences(source, build.for_students(source)) == []
    assert build.student_differences(source, source) == ["cell 1: source and .ipynb differ"]
    assert build.source_differences(source, build.for_students(source))


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


@in_one(
    "stored, fresh, same",
    [
        ("0.1234", "0.1235", True),  # the last of four digits
        ("0.734", "0.7339", True),  # NumPy drops a trailing zero
        ("[ 0. -1.]", "[-0. -1.]", True),
        ("x   1.00e-08", "x 1.01e-08", True),
        ("0.1234", "0.1236", False),
        ("0.1234", "-0.1234", False),
        ("0.12", "0.13", False),  # two digits are too few to tell rounding from a mistake
        ("2.", "3.", False),
        ("0.0001", "0.0002", False),
        ("120 rows", "121 rows", False),  # counts are exact
        ("1.000", "1.000 1.000", False),
        ("right 0.500", "wrong 0.500", False),
        ("0.500", "nan", False),
    ],
)
def test_outputs_may_differ_by_rounding_alone(stored: str, fresh: str, same: bool) -> None:
    assert (build.output_differences(_notebook([], fresh), _notebook([], stored)) == []) is same
    assert (build.output_differences(_notebook([], stored), _notebook([], fresh)) == []) is same


def test_words_of_a_cell_that_varies_must_be_the_same() -> None:
    right, wrong = _notebook(["varies"], "all right, error 1e-11"), _notebook(["varies"], "WRONG, error 1e-11")
    assert build.output_differences(right, wrong)
    assert build.output_differences(_notebook(["samples"], "drei"), _notebook(["samples"], "vier")) == []


def _drawn(figure: Figure) -> dict:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    picture = {"image/png": base64.b64encode(file.getvalue()).decode()}
    notebook = _notebook([], "", "plt.figure()\nplt.show()")
    notebook["cells"][0]["outputs"] = [{"output_type": "display_data", "data": picture, "metadata": {}}]
    return notebook


def test_a_picture_must_be_there_and_show_something() -> None:
    figure = Figure(figsize=(1, 1))
    assert build.flaws(_drawn(figure))  # empty
    figure.subplots().plot([0, 1])
    assert build.flaws(_drawn(figure)) == []

    text = _drawn(figure)
    text["cells"][0]["outputs"][0]["data"] = {"text/plain": ["<Figure size 528x152 with 3 Axes>"]}
    assert len(build.flaws(text)) == 2  # text in place of a picture, and no picture
    missing = _drawn(figure)
    missing["cells"][0]["outputs"] = []
    assert build.flaws(missing)


def test_pictures_to_be_drawn_are_counted_outside_of_functions() -> None:
    assert build.drawings("def show_masks():\n    plt.subplots()\n\nshow_masks()\ndisplay(matrices(x=x))") == 2
    assert build.drawings("plots.training_curve(losses)") == 1
    assert build.drawings("plt.rcParams['figure.dpi'] = 80\nprint('plt.figure')") == 0


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
