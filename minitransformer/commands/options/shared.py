"""Options that several commands take, and flags made of the fields of a dataclass."""

import inspect
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from typing import Any

from ..outputs import file_to_write, folder_to_write, named

_TYPES = {"int": int, "float": float, "str": str}  # each may also be None


def texts(add: Callable[..., None]) -> dict[str, Any]:
    """What a function that adds options says of its command: its first line, and the paragraphs below it."""
    return dict(zip(("help", "description", "epilog"), str(inspect.getdoc(add)).split("\n\n"), strict=False))


def add(command: ArgumentParser, name: str, meaning: str, **how: Any) -> None:
    """Add an argument or an option."""
    command.add_argument(name, help=meaning, **how)


def add_switch(command: ArgumentParser, flag: str, meaning: str) -> None:
    """Add an option that takes no value."""
    add(command, flag, meaning, action="store_true")


def add_number(
    command: ArgumentParser, flag: str, meaning: str, default: float | None = None, metavar: str | None = None
) -> None:
    """Add an option that takes a number: a whole one if its default is, or if it has none."""
    if default is not None:
        meaning = f"{meaning} (default: {default:g})".lstrip()
    kind = float if isinstance(default, float) else int
    add(command, flag, meaning, type=kind, default=default, metavar=metavar)


def add_model(command: ArgumentParser, meaning: str, required: bool = True) -> None:
    """Add --model."""
    add(command, "--model", meaning, type=named, required=required, metavar="DIR")


def add_input(command: ArgumentParser, flag: str, meaning: str) -> None:
    """Add an option that names a file to read."""
    add(command, flag, meaning, type=named, metavar="FILE")


def add_output(command: ArgumentParser, flag: str, meaning: str, default: str | None = None) -> None:
    """Add an option that names a file to write."""
    add(command, flag, meaning, type=file_to_write, default=default, metavar="FILE")


def add_folder(command: ArgumentParser, meaning: str, default: str | None = None, required: bool = False) -> None:
    """Add --out, a folder to write."""
    add(command, "--out", meaning, type=folder_to_write, default=default, required=required, metavar="DIR")


def add_device(command: ArgumentParser) -> None:
    """Add --device, which `main` resolves to the name of an available device."""
    add(command, "--device", "numpy or cupy (default: MINITRANSFORMER_DEVICE, otherwise numpy)", metavar="NAME")


def add_speed(command: ArgumentParser, weights: bool = False) -> None:
    """Add --device and --textbook; and, where models of others are read, --weights."""
    if weights:
        meaning = (
            "read the weights of a .gguf file as they are packed there; or pack those of any model (default: float32)"
        )
        add(command, "--weights", meaning, choices=("packed", "int8", "bfloat16"))
    add_device(command)
    add_switch(command, "--textbook", "run the ops and layers as written, without their fast forms")


def add_search(command: ArgumentParser) -> None:
    """Add --beam, --length-penalty and --early-stopping."""
    add_number(command, "--beam", "beams; 1 is greedy search", 5, "N")
    add_number(command, "--length-penalty", "", 1.0, "X")
    meaning = (
        "end a search when it has as many finished texts as beams (default), or continue while an open beam has a "
        "better score"
    )
    add(command, "--early-stopping", meaning, action=BooleanOptionalAction, default=True)


def add_fields(command: ArgumentParser, title: str, fields: Iterable[Field[Any]], meanings: Mapping[str, str]) -> None:
    """Add --NAME for every field of a dataclass, with its meaning. A field that is not given on the command line stays
    unset. An object and a list have no flag.
    """
    group = command.add_argument_group(title)
    for field in fields:
        flag, default = "--" + field.name.replace("_", "-"), field.default
        kind_name = str(field.type).removesuffix(" | None")
        if kind_name.startswith(("dict", "tuple")):
            continue
        if kind_name == "bool":
            text = _help(meanings.get(field.name), default if default is None else "yes" if default else "no")
            action: Any = BooleanOptionalAction
            group.add_argument(flag, action=action, default=SUPPRESS, help=text)
        else:
            kind = _TYPES[kind_name]
            text, metavar = _help(meanings.get(field.name), default), kind.__name__.upper()
            if "file" in field.metadata:
                text, metavar = field.metadata["file"], "FILE"
            group.add_argument(flag, type=kind, metavar=metavar, default=SUPPRESS, help=text)


def _help(meaning: str | None, default: object) -> str:
    shown = f"(default: {default})"
    return f"{meaning} {shown}".replace("%", "%%") if meaning else shown
