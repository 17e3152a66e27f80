"""Options that several commands take, and flags made of the fields of a dataclass."""

import dataclasses
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..outputs import file_to_write, folder_to_write, named

_TYPES = {"int": int, "float": float, "str": str}  # each may also be None


def add_model(command: ArgumentParser, meaning: str, required: bool = True) -> None:
    """Add --model."""
    command.add_argument("--model", type=named, required=required, metavar="DIR", help=meaning)


def add_input(command: ArgumentParser, flag: str, meaning: str) -> None:
    """Add an option that names a file to read."""
    command.add_argument(flag, type=named, metavar="FILE", help=meaning)


def add_output(command: ArgumentParser, flag: str, meaning: str, default: str | None = None) -> None:
    """Add an option that names a file to write."""
    command.add_argument(flag, type=file_to_write, default=default, metavar="FILE", help=meaning)


def add_folder(command: ArgumentParser, meaning: str, default: str | None = None, required: bool = False) -> None:
    """Add --out, a folder to write."""
    command.add_argument("--out", type=folder_to_write, default=default, required=required, metavar="DIR", help=meaning)


def add_device(command: ArgumentParser) -> None:
    """Add --device, which `main` resolves to the name of an available device."""
    command.add_argument(
        "--device", metavar="NAME", help="numpy or cupy (default: MINITRANSFORMER_DEVICE, otherwise numpy)"
    )


def add_speed(command: ArgumentParser) -> None:
    """Add --device and --textbook."""
    add_device(command)
    command.add_argument(
        "--textbook", action="store_true", help="run the ops and layers as written, without their fast forms"
    )


def add_weights(command: ArgumentParser) -> None:
    """Add --weights."""
    command.add_argument(
        "--weights",
        choices=("packed", "int8", "bfloat16"),
        help="read the weights of a .gguf file as they are packed there; or pack those of any model (default: float32)",
    )


def add_search(command: ArgumentParser) -> None:
    """Add --beam, --length-penalty and --early-stopping."""
    command.add_argument("--beam", type=int, default=5, metavar="N", help="beams; 1 is greedy search (default: 5)")
    command.add_argument("--length-penalty", type=float, default=1.0, metavar="X", help="(default: 1.0)")
    command.add_argument(
        "--early-stopping",
        action=BooleanOptionalAction,
        default=True,
        help="end a search when it has as many finished texts as beams (default), or continue while an open beam "
        "has a better score",
    )


def add_fields(
    command: ArgumentParser,
    title: str,
    settings: Iterable[dataclasses.Field[Any]],
    meanings: Mapping[str, str],
    leave_out: Sequence[str] = (),
) -> None:
    """Add --NAME for every field of a dataclass, with its meaning. A field that is not given on the command line stays
    unset. An object and a list have no flag.
    """
    group = command.add_argument_group(title)
    for field in settings:
        if field.name in leave_out:
            continue
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
