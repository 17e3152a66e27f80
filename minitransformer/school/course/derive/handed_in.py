"""The derivations of a hand-in: where they stand in it, and their marks.

In a notebook, a Markdown cell has the name of the exercise on a line of its own, as a heading or not, and the
derivation below it. In code, of a notebook or a Python file, the derivation is a string with three quotes that has the
name of the exercise: derive_softmax = ... It is taken as it stands, so that a backslash of LaTeX needs no care. If an
exercise is there several times, the last one counts.

No code of the hand-in runs. The texts are marked in a process of its own (`main`), apart from this machine as code is
(isolation.py), with limits on time and memory.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from ....check.derivation import functions, parsing
from .. import isolation
from .marking import mark
from .task import task, tasks

SECONDS = 60  # for all derivations of a hand-in
_MEMORY = 4 * 1024**3
_LONGEST = 50_000  # characters of a derivation; the longest model has about a thousand
_HEADING = re.compile(r"^[#>*_`\s]*(derive_\w+?)[*_`:.\s]*$", re.MULTILINE)
_STRING = re.compile(r"^(derive_\w+)\s*=\s*[rR]?(\"{3}|'{3})(.*?)\2", re.MULTILINE | re.DOTALL)
_PACKAGES = ("minitransformer", "lark", "num2words", "threadpoolctl")  # what `main` imports, besides NumPy and SciPy
_MAIN = "from minitransformer.school.course.derive.handed_in import main; main()"


def answers(file: str, data: bytes) -> dict[str, str]:
    """The derivations in a notebook (.ipynb) or a Python file, by exercise; none if the file cannot be read."""
    try:
        text = data.decode("utf-8-sig")
        cells = json.loads(text)["cells"] if file.endswith(".ipynb") else [{"cell_type": "code", "source": text}]
        parts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}  # the sandbox says what is wrong with it
    found: dict[str, str] = {}
    for kind, text in parts:
        if kind == "code":
            found.update((match[1], match[3]) for match in _STRING.finditer(text))
        elif kind == "markdown":
            _, *pieces = _HEADING.split(text)
            found.update(zip(pieces[::2], pieces[1::2], strict=True))
    return {name: text for name, text in found.items() if name in tasks()}


def marks(found: dict[str, str], desk: Path) -> dict[str, dict[str, Any]]:
    """The marks by exercise, as `Marked.as_dict` has them, or at least right, score and message. desk: a sandbox's."""
    if not found:
        return {}
    command = isolation.command(desk, _MAIN, _PACKAGES)
    order = json.dumps({"user": isolation.other_user(), "texts": found}).encode()
    try:
        lines = subprocess.run(command, input=order, capture_output=True, timeout=SECONDS).stdout.splitlines()
    except subprocess.TimeoutExpired as stopped:
        lines = (stopped.stdout or b"").splitlines()
    marked = dict(json.loads(line) for line in lines)
    lost = {"right": False, "score": 0.0, "message": "The derivation could not be marked within time and memory."}
    return {name: marked.get(name, lost) for name in found}


def main() -> None:
    """Mark the derivations of standard input, and print a line of JSON for each."""
    import resource  # not in a browser

    order = json.load(sys.stdin)
    with contextlib.suppress(ModuleNotFoundError):  # told for each text
        for load in (tasks, functions.load, parsing.parser):  # another user may not read their files
            load()
    if order["user"] is not None:
        os.setgroups([])
        os.setgid(order["user"])
        os.setuid(order["user"])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for name, text in order["texts"].items():
        print(json.dumps([name, _marked(name, text)]), flush=True)


def _marked(name: str, text: str) -> dict[str, Any]:
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"the derivation has {len(text)} characters; {_LONGEST} are the limit")
        return mark(task(name), text).as_dict()
    except (ValueError, ImportError, MemoryError) as problem:
        return {"right": False, "score": 0.0, "message": f"{name}: {problem or 'it needs too much memory'}"}
