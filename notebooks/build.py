"""Build the notebooks: execute each source in source/ and write it, with its outputs, as an .ipynb beside this file.

    python notebooks/build.py [NAMES]            execute and write; a name or its beginning will do: 04, 07_att
    python notebooks/build.py --check [NAMES]    execute, write nothing, and fail where an .ipynb differs
    python notebooks/build.py --device cupy      execute on another device, write nothing, and fail on an error

A source is a Python file in percent format: a line "# %%" begins a cell of code, "# %% [markdown]" one of text, whose
lines are comments. `# %% tags=["varies"]` marks a cell whose printed numbers may differ from run to run or machine to
machine (times, rounding errors). All other text must come out the same each time; pictures may differ. A cell that
draws ends in plt.show(), or else the value of its last line is shown as well.

A recording of `minitransformer.step` shows itself as an interactive page in a frame. Jupyter shows no stored frame
before the notebook is trusted, so the frame is not stored: a sentence stands in its place until the cell is run.

Executing needs nbclient and ipykernel (pip install -e '.[notebooks]'); everything else here is the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "source"
LIMIT = 90.0  # seconds that a notebook may take
VARIES = "varies"
FRAME_NOTE = "<p><em>Run this cell: an interactive page appears here.</em></p>"

Notebook = dict[str, Any]
Cell = dict[str, Any]
_MARKER = re.compile(r"# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?")
_DEVICE = re.compile(r'^device = "numpy"', re.MULTILINE)
_CELL_FILE = re.compile(r"[^\s\"'<>&;]*ipykernel_\d+[/\\]\d+\.py")  # where Jupyter says that a cell's code stands
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
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
            raise ValueError(f"there is no notebook {name!r}; there are {', '.join(found)}")
    return [stem for stem in found if stem.startswith(tuple(wanted))]


def read_source(name: str) -> Notebook:
    """The source as a notebook without outputs. Raises ValueError for a line that looks like a marker and is none."""
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
            cells[-1]["source"] = _text(lines, cells[-1]["cell_type"])
        elif any(line.strip() for line in lines):
            raise ValueError(f"{name}.py: a source must begin with a cell marker")
        lines = []
        cells.append(_cell("markdown" if marker["markdown"] else "code", json.loads(marker["tags"] or "[]")))
    cells.pop()
    _number(cells)
    return {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}


def read_built(name: str) -> Notebook:
    """The notebook as it was built."""
    return json.loads((HERE / f"{name}.ipynb").read_text(encoding="utf-8"))


def _cell(kind: str, tags: list[str]) -> Cell:
    cell: Cell = {"cell_type": kind, "metadata": {"tags": tags} if tags else {}}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


def _text(lines: list[str], kind: str) -> str:
    if kind == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
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
        for kind in [kind for kind in data if kind.startswith("text/")]:
            text = _joined(data[kind])
            data[kind] = FRAME_NOTE if text.startswith("<iframe") else _CELL_FILE.sub("cell", text)
        settled.append(output)
    return settled


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def write(name: str, notebook: Notebook) -> None:
    """Write the .ipynb, whole or not at all, with texts as lists of lines, as Jupyter writes them."""
    for cell in notebook["cells"]:
        cell["source"] = _joined(cell["source"]).splitlines(keepends=True)
        for output in cell.get("outputs", []):
            for holder in (output, output.get("data", {})):
                for key, value in holder.items():
                    if isinstance(value, str) and (key == "text" or key.startswith("text/")):
                        holder[key] = value.splitlines(keepends=True)
    path = HERE / f"{name}.ipynb"
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path.with_suffix(".tmp").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".tmp"), path)


def source_differences(source: Notebook, built: Notebook) -> list[str]:
    """Where the cells of two notebooks differ, but for their outputs."""
    ours, theirs = ([_said(cell) for cell in notebook["cells"]] for notebook in (source, built))
    if len(ours) != len(theirs):
        return [f"the source has {len(ours)} cells, the .ipynb {len(theirs)}"]
    pairs = zip(ours, theirs, strict=True)
    return [f"cell {i}: source and .ipynb differ" for i, (a, b) in enumerate(pairs, 1) if a != b]


def output_differences(fresh: Notebook, built: Notebook) -> list[str]:
    """Where the outputs of two notebooks with the same cells differ."""
    found = []
    for i, (new, old) in enumerate(zip(fresh["cells"], built["cells"], strict=True), 1):
        exact = VARIES not in new["metadata"].get("tags", [])
        ours, theirs = ([_shown(output, exact) for output in cell.get("outputs", [])] for cell in (new, old))
        if ours != theirs:
            found.append(f"cell {i}: the output differs\n    now:   {ours}\n    .ipynb: {theirs}")
    return found


def _said(cell: Cell) -> tuple[str, str, list[str], str]:
    return cell["cell_type"], _joined(cell["source"]), cell["metadata"].get("tags", []), cell["id"]


def _shown(output: Cell, exact: bool) -> Any:
    """What counts of an output: its kind and, unless it may vary, its text. Of a picture only that there is one."""
    data = {key: _joined(value) if key.startswith("text/") else "..." for key, value in output.get("data", {}).items()}
    said = (output["output_type"], output.get("name"), sorted(data))
    return (*said, _joined(output.get("text", "")), data) if exact else said


def flaws(notebook: Notebook) -> list[str]:
    """What must not be in the outputs: an error, a warning, an address in memory."""
    found = []
    for i, cell in enumerate(notebook["cells"], 1):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                found.append(f"cell {i}: {output.get('ename')}: {output.get('evalue')}")
            if output.get("name") == "stderr":
                found.append(f"cell {i}: it writes to stderr: {_joined(output['text'])[:200]}")
            address = _ADDRESS.search(json.dumps(_shown(output, True)))
            if address:
                found.append(f"cell {i}: an address in memory, which differs each time: {address[0]}")
    return found


def on_device(notebook: Notebook, device: str) -> Notebook:
    """The notebook with its line `device = "numpy"` changed. Raises ValueError unless there is exactly one."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = [cell for cell in code if _DEVICE.search(cell["source"])]
    if len(found) != 1:
        raise ValueError(f'expected one cell with the line device = "numpy", found {len(found)}')
    line = f'import minitransformer.verify\n\ndevice = "{device}"'  # verify makes the device "strict" known
    found[0]["source"] = _DEVICE.sub(line, found[0]["source"])
    return notebook


def process(name: str, check: bool, device: str | None) -> tuple[list[str], float, Notebook]:
    """Execute one notebook, and write or compare it: what is wrong, the seconds it took, and the notebook."""
    source = read_source(name)
    if device:
        on_device(source, device)
    start = time.perf_counter()
    try:
        fresh = execute(source)
    except RuntimeError as error:
        return [str(error)], time.perf_counter() - start, source
    seconds = time.perf_counter() - start
    wrong = flaws(fresh)
    if seconds > LIMIT:
        wrong.append(f"it took {seconds:.0f} s, more than {LIMIT:.0f} s")
    if device:
        return wrong, seconds, fresh
    if not check:
        write(name, fresh)
    elif not (HERE / f"{name}.ipynb").exists():
        wrong.append("it has not been built")
    else:
        built = read_built(name)
        wrong += source_differences(source, built) or output_differences(fresh, built)
    return wrong, seconds, fresh


def main(arguments: list[str] | None = None) -> int:
    """Build or check the notebooks; 0 if all is well, 1 if one fails, 2 for a name that there is not."""
    parser = argparse.ArgumentParser(description="Execute the notebooks and write them with their outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all): 04, 07_attention_backward")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where an .ipynb differs")
    parser.add_argument("--device", help="execute on this device (cupy, strict); write nothing, fail on an error")
    options = parser.parse_args(arguments)
    try:
        chosen = names(options.names)
    except ValueError as error:
        parser.error(str(error))
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
