"""Reads options.txt, which is the manual of all commands as well."""

from __future__ import annotations

import functools
import re
from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from ..outputs import file_to_write, folder_to_write

_TYPES: dict[str, Any] = {"int": int, "float": float, "path": Path, "file": file_to_write, "folder": folder_to_write}
_HOW: dict[str, dict[str, Any]] = {
    "needed": {"required": True}, "again": {"action": "append", "default": []},
    "optional": {"nargs": "?"}, "some": {"nargs": "+"}, "any": {"nargs": "*"},
}  # fmt: skip


@functools.cache
def sections() -> dict[str, tuple[str, list[str]]]:
    """By the name of a command, or "+ name" of a group: what it does, and its lines."""
    text = Path(__file__).with_name("options.txt").read_text(encoding="utf-8")
    found = {}
    for block in re.sub(r"\n {6}", " ", text).strip().split("\n\n")[1:]:  # the first one is about the file
        head, *lines = block.split("\n  ")
        name, _, told = head.partition(": ")
        found[name] = told, lines
    return found


def add_options(command: ArgumentParser, name: str) -> None:
    """Add what a section says to a parser."""
    words = []
    for line in sections()[name][1]:
        if " | " in line:
            _add(command, name, *line.split(" | ", 2))
        elif line.startswith("+ "):
            add_options(command, line)
        else:
            words.append(line)
    if words:
        about, _, end = " ".join(words).partition("... ")
        command.description, command.epilog = about.strip(), end or None


def _add(command: ArgumentParser, section: str, left: str, kind: str, told: str) -> None:
    flag, _, metavar = left.partition(" ")
    if kind == "commands":
        inner = command.add_subparsers(title=told, metavar=flag, dest=flag.lower(), required=True)
        for name, (does, _) in sections().items():
            if name.startswith(f"{section} "):
                add_options(inner.add_parser(name.removeprefix(f"{section} "), help=does), name)
        return
    metavar, _, dest = metavar.partition(" as ")
    kind, _, default = kind.partition(" = ")
    kind, *how = kind.split(", ")
    options: dict[str, Any] = {"help": told}
    options |= {name: value for name, value in (("metavar", metavar), ("dest", dest)) if value}
    if default:
        options["default"] = _TYPES[kind](default) if kind in ("int", "float") else default.strip("'")
    if kind == "switch":
        options["action"] = "store_true"
    elif kind == "yes or no":
        options |= {"action": BooleanOptionalAction, "default": default == "yes"}
    elif "/" in kind:
        options["choices"] = tuple(kind.split("/"))
    elif kind in _TYPES:
        options["type"] = _TYPES[kind]
    for word in how:
        options |= _HOW[word]
    command.add_argument(flag, **options)
