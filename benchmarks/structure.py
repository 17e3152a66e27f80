"""The structure of the package, counted from its imports, and the way of one call through it.

    python -m benchmarks.structure            a table; --json for programs

A room is a folder with code, seen at two depths: the folders of the package (its wings), and their folders. A file
directly in the package is a room of its own. An arrow leads from a room to another that it imports from, wherever in a
file the import stands. Floors: how many rooms the longest chain of arrows passes. Circles: sets of rooms that reach
each other. What only one room loads (lesson.py: course, example.py: show) counts as that room's, and the package's own
`__init__`, which hands on names, has no arrows.

The walk is one loss of a GPT-2 of one layer, in textbook form with dropout: the calls of the package's own functions,
how often a call enters another folder than the call before it, and the files that it passes.
"""

from __future__ import annotations

import ast
import functools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import minitransformer
from minitransformer import models

PACKAGE = Path(minitransformer.__file__).parent
LOADED_BY = {"lesson.py": "course", "example.py": "show"}  # what core/arrays/rooms.py finds for one room alone
Graph = dict[str, set[str]]


def imports(name: str, source: str) -> list[tuple[str, ...]]:
    """The dotted path within the package of everything that a file of it imports."""
    folder, found = tuple(name.split("/")[:-1]), list[tuple[str, ...]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            paths = (tuple(alias.name.split(".")) for alias in node.names)
            found += (path[1:] for path in paths if path[0] == PACKAGE.name)
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                module = (*folder[: len(folder) - node.level + 1], *module)
            elif module[:1] != (PACKAGE.name,):
                continue
            else:
                module = module[1:]
            found += ((*module, alias.name) for alias in node.names)
    return found


def files(sources: dict[str, str]) -> Graph:
    """From each file of the package those that it imports."""
    modules = {tuple(name[:-3].removesuffix("__init__").strip("/").split("/")): name for name in sources}
    modules[()] = modules.pop(("",), "__init__.py")
    graph: Graph = {}
    for name, source in sources.items():
        paths = [] if name == "__init__.py" else imports(name, source)
        reached = (next(modules[path[:n]] for n in range(len(path), -1, -1) if path[:n] in modules) for path in paths)
        graph[name] = set(reached) - {name}
    return graph


def room_of(name: str, depth: int, folders: dict[str, str]) -> str:
    """The room of a file, at a depth. folders: the path of each folder that LOADED_BY names."""
    path, _, last = name.rpartition("/")
    path = folders.get(LOADED_BY.get(last, "no other"), path)
    return "/".join(path.split("/")[:depth]) if path else name


def rooms(graph: Graph, depth: int) -> Graph:
    """From each room those that it imports from."""
    folders = {Path(name).parent.name: str(Path(name).parent) for name in graph if name.endswith("__init__.py")}
    place = functools.partial(room_of, depth=depth, folders=folders)
    found: Graph = {place(name): set() for name in graph}
    for name, reached in graph.items():
        found[place(name)] |= {place(other) for other in reached} - {place(name)}
    return found


def circles(graph: Graph) -> list[list[str]]:
    """The sets of rooms that reach each other."""
    reach = {room: _reached(graph, room) for room in graph}
    found = {tuple(sorted({room, *(o for o in reach[room] if room in reach[o])})) for room in graph}
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def _reached(graph: Graph, room: str) -> set[str]:
    found, open_ones = set[str](), [room]
    while open_ones:
        new = graph[open_ones.pop()] - found
        found |= new
        open_ones += new
    return found


def floors(graph: Graph) -> int:
    """The number of rooms on the longest chain of arrows; a circle counts as one room."""
    reach = {room: _reached(graph, room) for room in graph}

    @functools.cache
    def height(room: str) -> int:
        return 1 + max((height(below) for below in reach[room] if room not in reach[below]), default=0)

    return max(map(height, graph))


def walk() -> dict[str, int]:
    """One loss of a GPT-2 of one layer: own calls, changes of room, files, and the lines of these files."""
    config = models.LanguageModelConfig(vocabulary=50, max_length=16, d_model=8, n_heads=2, d_ff=16, n_layers=1)
    model, rng = models.LanguageModel(config, np.random.default_rng(0)), np.random.default_rng(0)
    ids = np.array([[1, 2, 3, 4]])
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            called.append(frame.f_code.co_filename)

    for _ in range(2):  # what a first call alone does is not counted
        called.clear()
        sys.setprofile(note)
        try:
            model.loss(ids[:, :-1], ids[:, 1:], rng=rng)
        finally:
            sys.setprofile(None)
    entered = [Path(file).parent for file in called]
    changes = sum(now != before for now, before in zip(entered, [None, *entered], strict=False))
    lines = sum(len(Path(file).read_text(encoding="utf-8").splitlines()) for file in set(called))
    return {"own calls": len(called), "changes of room": changes, "files": len(set(called)), "lines": lines}


def counted() -> dict[str, Any]:
    """All figures of the table."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    sources = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    graph, lines = files(sources), Counter[str]()
    for name, source in sources.items():
        lines[room_of(name, 1, {}) if "/" in name else "top"] += len(source.splitlines())
    depths = {
        f"depth {depth}": {
            "rooms": sum("." not in room for room in found),
            "files beside them": sum("." in room for room in found),
            "arrows": sum(map(len, found.values())),
            "floors": floors(found),
            "circles": circles(found),
        }
        for depth in (1, 2)
        if (found := rooms(graph, depth))
    }
    return {**depths, "lines": dict(lines.most_common()), "walk": walk()}


def main() -> None:
    found = counted()
    if "--json" in sys.argv[1:]:
        print(json.dumps(found, indent=1))
        return
    for title, figures in found.items():
        print(title)
        for name, figure in figures.items():
            print(f"  {name:<20} {figure:>7,}" if isinstance(figure, int) else f"  {name:<20} {figure or 'none'}")


if __name__ == "__main__":
    main()
