"""Build the notebooks: from each source in source/, the teacher's .ipynb with outputs and the student's without.

    python notebooks/build.py [NAMES]            execute and write; a name or its beginning will do: 04, 07_att
    python notebooks/build.py --check [NAMES]    execute, write nothing, and fail where an .ipynb differs
    python notebooks/build.py --device cupy      execute on another device, write nothing, and fail on an error

The teacher's files are beside this one, the student's are in student/.

A source is a Python file in percent format: a line "# %%" begins a cell of code, "# %% [markdown]" one of text, whose
lines are comments. `# %% tags=["varies"]` marks a cell that prints times, rounding errors or losses: its words must
come out the same each time, its numbers may differ. With `tags=["samples"]` all text may differ. Elsewhere numbers
may differ by rounding alone (`_agree`).

Lines "#: name: answer; name: answer" in a cell of text say what its prediction should be. The teacher's notebook keeps
them without showing them, and the site compares a reader's answer with them (minitransformer/school/show/site/predictions.py
lists the kinds). The student's has none.

Marks make the slides: what stands between ⟦ and ⟧ in a text, and the outputs of a cell of code with
`tags=["slide"]`; with `tags=["slide-code"]` the code as well. `slide-given` and `slide-given-code` put what a cell shows
beside the question that follows, `slide-asked` the code of the cell that answers. The notebooks do not show the marks.
A slide has the heading above it, what is marked, and one output; a question has a slide of its own
(minitransformer/school/show/site/slides.py).

A cell that draws ends in plt.show(), or else the value of its last line is shown as well. Stored pictures have no text
beside them, may differ in their pixels, and must be there: `flaws` counts and decodes them.

A recording of `minitransformer.step` shows itself as an interactive page in a frame. Jupyter shows no stored frame
before the notebook is trusted, so the frame is not stored: a sentence replaces it until the cell is run.

Executing needs nbclient and ipykernel: pip install -e '.[notebooks]'.
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "source"
STUDENT = HERE / "student"
LIMIT = 90.0  # seconds of processor time that a notebook may take
ON_THE_HOST = ("19_why_attention", "24_memories")  # without a line for the device: measured there, or too small
VARIES, SAMPLES = "varies", "samples"
FEW_COLOURS = 8  # a picture that has no more is taken for an empty one
FRAME_NOTE = "<p><em>Run this cell: an interactive page appears here.</em></p>"

Notebook = dict[str, Any]
Cell = dict[str, Any]
_MARKER = re.compile(r"# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?")
_MARKED = re.compile("⟦(.*?)⟧", re.DOTALL)
_DEVICE = re.compile(r'^device = "numpy"', re.MULTILINE)
_CELL_FILE = re.compile(r"[^\s\"'<>&;]*ipykernel_\d+[/\\]\d+\.py")  # the file that Jupyter names for a cell's code
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_UNDRAWN = re.compile(r"<\w+ size [\d.]+x[\d.]+ with \d+ Axes>")
_DRAWS = re.compile(
    r"\b(?:plt\.(?:figure|subplots)|matrices|plots\.\w+|schematics\.\w+|show_masks|draw_dependencies)\("
)
_NUMBER = re.compile(r"(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def names(wanted: list[str] | None = None) -> list[str]:
    """The notebooks that have a source, in order; of those the ones whose name begins as one of `wanted` does."""
    found = sorted(path.stem for path in SOURCES.glob("*.py"))
    if not wanted:
        return found
    wanted = [Path(name).stem for name in wanted]
    for name in wanted:
        if not any(stem.startswith(name) for stem in found):
            raise ValueError(f"unknown notebook {name!r}; expected one of {', '.join(found)}")
    return [stem for stem in found if stem.startswith(tuple(wanted))]


def read_source(name: str) -> Notebook:
    """The source as a notebook without outputs. Raises ValueError for a malformed marker."""
    cells: list[Cell] = []
    lines: list[str] = []
    for number, line in enumerate([*(SOURCES / f"{name}.py").read_text(encoding="utf-8").splitlines(), "# %%"], 1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        marker = _MARKER.fullmatch(line)
        if marker is None:
            raise ValueError(f'{name}.py:{number}: expected "# %%", "# %% [markdown]" or "# %% tags=[...]": {line}')
        if cells:
            if answer := "; ".join(line[2:].strip() for line in lines if line.startswith("#:")):
                cells[-1]["metadata"]["answer"] = answer
            text = _text(lines, cells[-1]["cell_type"])
            if marked := _MARKED.findall(text) if cells[-1]["cell_type"] == "markdown" else []:
                cells[-1]["metadata"]["slides"] = marked
                text = _MARKED.sub(r"\1", text)
            cells[-1]["source"] = text
        elif any(line.strip() for line in lines):
            raise ValueError(f"{name}.py: a source must begin with a cell marker")
        lines = []
        cells.append(_cell("markdown" if marker["markdown"] else "code", json.loads(marker["tags"] or "[]")))
    cells.pop()
    _number(cells)
    return {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}


def for_students(source: Notebook) -> Notebook:
    """The notebook without the answers to predictions, and without the marks of the slides."""
    plain = json.loads(json.dumps(source))
    for cell in plain["cells"]:
        cell["metadata"].pop("answer", None)
        cell["metadata"].pop("slides", None)
    return plain


def read_built(name: str, folder: Path = HERE) -> Notebook:
    """The notebook as it was built. Raises OSError if it is missing."""
    return json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))


def _cell(kind: str, tags: list[str]) -> Cell:
    cell: Cell = {"cell_type": kind, "metadata": {"tags": tags} if tags else {}}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


def _text(lines: list[str], kind: str) -> str:
    if kind == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines if not line.startswith("#:")]
    return "\n".join(lines).strip("\n")


def _number(cells: list[Cell]) -> None:
    """Give each cell an id that depends on its text alone, so that a new cell does not change the ids of others."""
    seen: dict[str, int] = {}
    for cell in cells:
        digest = hashlib.sha256(cell["source"].encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def execute(notebook: Notebook) -> Notebook:
    """The notebook with fresh outputs, run in an empty folder. Raises RuntimeError with a failing cell's traceback."""
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise RuntimeError(f"executing needs the extra: pip install -e '.[notebooks]' ({error})") from error

    with tempfile.TemporaryDirectory() as folder:
        node = nbformat.from_dict(notebook)
        place = {"metadata": {"path": folder}}
        quietly = ["--log-level=ERROR"]
        client = NotebookClient(node, timeout=600, kernel_name="python3", resources=place, extra_arguments=quietly)
        try:
            client.execute()
        except CellExecutionError as error:
            raise RuntimeError(_COLOUR.sub("", str(error))) from None
    done = json.loads(nbformat.writes(node))
    for cell in done["cells"]:
        if cell["cell_type"] == "code":
            cell["metadata"].pop("execution", None)
            cell["outputs"] = _settled(cell["outputs"])
    return done | {"metadata": _METADATA}


def _settled(outputs: list[Cell]) -> list[Cell]:
    """Outputs without what differs from run to run: how a stream was cut into pieces, frames, names of cells' files."""
    settled: list[Cell] = []
    for output in outputs:
        if output["output_type"] == "stream":
            output["text"] = _CELL_FILE.sub("cell", _joined(output["text"]))
            if settled and settled[-1].get("name") == output["name"]:
                settled[-1]["text"] += output["text"]
                continue
        data = output.get("data", {})
        if "image/png" in data:
            data.pop("text/plain", None)  # "<Figure size ...>"
        for kind in [kind for kind in data if kind.startswith("text/")]:
            text = _joined(data[kind])
            data[kind] = FRAME_NOTE if text.startswith("<iframe") else _CELL_FILE.sub("cell", text)
        settled.append(output)
    return settled


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def write(name: str, notebook: Notebook, folder: Path = HERE) -> None:
    """Write the .ipynb, whole or not at all, with texts as lists of lines, as Jupyter writes them."""
    for cell in notebook["cells"]:
        cell["source"] = _joined(cell["source"]).splitlines(keepends=True)
        for output in cell.get("outputs", []):
            for holder in (output, output.get("data", {})):
                for key, value in holder.items():
                    if isinstance(value, str) and (key == "text" or key.startswith("text/")):
                        holder[key] = value.splitlines(keepends=True)
    path = folder / f"{name}.ipynb"
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path.with_suffix(".tmp").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".tmp"), path)


def source_differences(source: Notebook, built: Notebook) -> list[str]:
    """Where the cells of two notebooks differ, outputs aside."""
    ours, theirs = ([_said(cell) for cell in notebook["cells"]] for notebook in (source, built))
    if len(ours) != len(theirs):
        return [f"the source has {len(ours)} cells, the .ipynb {len(theirs)}"]
    pairs = zip(ours, theirs, strict=True)
    return [f"cell {i}: source and .ipynb differ" for i, (a, b) in enumerate(pairs, 1) if a != b]


def output_differences(fresh: Notebook, built: Notebook) -> list[str]:
    """Where the outputs of two notebooks with the same cells differ by more than rounding."""
    found = []
    for i, (new, old) in enumerate(zip(fresh["cells"], built["cells"], strict=True), 1):
        tags = new["metadata"].get("tags", [])
        ours, theirs = (cell.get("outputs", []) for cell in (new, old))
        if len(ours) != len(theirs) or not all(_alike(a, b, tags) for a, b in zip(ours, theirs, strict=True)):
            shown = [
                "\n".join(f"{kind}: {text}" for o in outputs for kind, text in _shown(o)) for outputs in (ours, theirs)
            ]
            found.append(f"cell {i}: the output differs\n--- now:\n{shown[0]}\n--- .ipynb:\n{shown[1]}")
    return found


def _said(cell: Cell) -> tuple[str, str, Cell, str]:
    return cell["cell_type"], _joined(cell["source"]), cell["metadata"], cell["id"]


def _shown(output: Cell) -> list[tuple[str, str]]:
    """The kinds of an output with their texts; of a picture only that there is one."""
    data = {output.get("name", output["output_type"]): output.get("text", "")} | output.get("data", {})
    return [(kind, "" if kind.startswith("image/") else _joined(text)) for kind, text in sorted(data.items())]


def _alike(new: Cell, old: Cell, tags: list[str]) -> bool:
    ours, theirs = _shown(new), _shown(old)
    if [kind for kind, _ in ours] != [kind for kind, _ in theirs]:
        return False
    return SAMPLES in tags or all(_same_text(a, b, VARIES in tags) for (_, a), (_, b) in zip(ours, theirs, strict=True))


def _same_text(new: str, old: str, varies: bool) -> bool:
    """Whether words and numbers are the same, apart from spaces, and where it `varies` from the numbers."""
    ours, theirs = _NUMBER.split(new), _NUMBER.split(old)  # words at even places, numbers at odd ones
    if [words.split() for words in ours[::2]] != [words.split() for words in theirs[::2]]:
        return False
    return varies or all(map(_agree, ours[1::2], theirs[1::2]))


def _agree(a: str, b: str) -> bool:
    """Whether two numbers are equal, or have a fraction and three digits or more, of which the last differs by one."""
    x, y = Decimal(a), Decimal(b)
    place = min(int(number.as_tuple().exponent) for number in (x, y))
    unit = Decimal(1).scaleb(place)
    return x == y or (place < 0 and abs(x - y) <= unit and max(abs(x), abs(y)) >= 100 * unit)


def flaws(notebook: Notebook) -> list[str]:
    """What must not be in the outputs: an error, a warning, an address in memory, a picture that is none."""
    found = []
    for i, cell in enumerate(notebook["cells"], 1):
        outputs = cell.get("outputs", [])
        pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        for output in outputs:
            if output["output_type"] == "error":
                found.append(f"cell {i}: {output.get('ename')}: {output.get('evalue')}")
            if output.get("name") == "stderr":
                found.append(f"cell {i}: it writes to stderr: {_joined(output['text'])[:200]}")
            text = "\n".join(text for _, text in _shown(output))
            if address := _ADDRESS.search(text):
                found.append(f"cell {i}: an address in memory, which differs each time: {address[0]}")
            if undrawn := _UNDRAWN.search(text):
                found.append(f"cell {i}: the text {undrawn[0]} in place of a picture")
        if cell["cell_type"] == "code" and len(pictures) != drawings(_joined(cell["source"])):
            found.append(f"cell {i}: it draws {drawings(_joined(cell['source']))} pictures and shows {len(pictures)}")
        few = [n for n in map(colours, pictures) if n <= FEW_COLOURS]
        found += [f"cell {i}: an empty picture, its colours are {n}" for n in few]
    return found


def drawings(source: str) -> int:
    """How many pictures a cell is to show: calls that draw, apart from those in the functions that it defines."""
    statements = [node for node in ast.parse(source).body if not isinstance(node, ast.FunctionDef)]
    return sum(len(_DRAWS.findall(ast.unparse(node))) for node in statements)


def colours(picture: str | list[str]) -> int:
    """The number of colours of a PNG in base 64. Raises an error where it cannot be decoded."""
    import numpy as np
    from matplotlib import image

    pixels = image.imread(io.BytesIO(base64.b64decode(_joined(picture))), format="png")
    levels = np.rint(255 * pixels).astype(np.int64)
    return len(np.unique(levels @ 256 ** np.arange(levels.shape[-1])))  # a colour as one number


def on_device(notebook: Notebook, device: str) -> Notebook:
    """The notebook with its line `device = "numpy"` changed. Raises ValueError unless there is exactly one."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = [cell for cell in code if _DEVICE.search(cell["source"])]
    if len(found) != 1:
        raise ValueError(f'expected one cell with the line device = "numpy", found {len(found)}')
    found[0]["source"] = _DEVICE.sub(f'device = "{device}"', found[0]["source"])
    return notebook


def differences(name: str, fresh: Notebook) -> list[str]:
    """Where the stored files differ from the source, or from a fresh run by more than rounding."""
    source = read_source(name)
    try:
        built, student = read_built(name), read_built(name, STUDENT)
    except FileNotFoundError as error:
        return [f"not built yet: {error.filename}"]
    wrong = source_differences(source, built) or flaws(built) + output_differences(fresh, built)
    return wrong + [f"student/: {difference}" for difference in student_differences(source, student)]


def student_differences(source: Notebook, student: Notebook) -> list[str]:
    """Where a student's file differs from the source, shows an output, or tells the answer to a prediction."""
    ran = (cell for cell in student["cells"] if cell.get("outputs") or cell.get("execution_count"))
    return source_differences(for_students(source), student) + [f"cell {cell['id']} has been run" for cell in ran]


def _processor_time() -> float:
    """Seconds that the ended child processes have computed; unlike the clock's, they do not depend on other programs."""
    times = os.times()
    return times.children_user + times.children_system


def process(name: str, check: bool, device: str | None) -> tuple[list[str], float, Notebook]:
    """Execute one notebook, and write or compare it: what is wrong, its seconds of processor time, and the notebook."""
    source = read_source(name)
    if device:
        on_device(source, device)
    start = _processor_time()
    try:
        fresh = execute(source)
    except RuntimeError as error:
        return [str(error)], _processor_time() - start, source
    seconds = _processor_time() - start
    wrong = flaws(fresh)
    if seconds > LIMIT:
        wrong.append(f"it took {seconds:.0f} s of processor time, more than {LIMIT:.0f} s")
    if not device:
        wrong += differences(name, fresh) if check else []
        if not check and not wrong:
            write(name, fresh)
            write(name, for_students(source), STUDENT)
    return wrong, seconds, fresh


def main(arguments: list[str] | None = None) -> int:
    """Build or check the notebooks; 0 if all is well, 1 if one fails, 2 for an unknown name."""
    parser = argparse.ArgumentParser(description="Execute the notebooks and write them with their outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all): 04, 07_attention_backward")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where an .ipynb differs")
    parser.add_argument("--device", help="execute on this device (cupy, strict); write nothing, fail on an error")
    options = parser.parse_args(arguments)
    try:
        chosen = names(options.names)
    except ValueError as error:
        parser.error(str(error))
    chosen = [name for name in chosen if not (options.device and name in ON_THE_HOST)]
    print(f"{'notebook':<36}{'cells':>6}{'code':>6}{'text':>6}{'seconds':>9}")
    failed = False
    for name in chosen:
        wrong, seconds, notebook = process(name, options.check, options.device)
        n_code = sum(cell["cell_type"] == "code" for cell in notebook["cells"])
        n_cells = len(notebook["cells"])
        print(f"{name:<36}{n_cells:>6}{n_code:>6}{n_cells - n_code:>6}{seconds:>9.1f}  {'FAILED' if wrong else 'ok'}")
        for problem in wrong:
            print(f"  {name}: {problem}", file=sys.stderr)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
