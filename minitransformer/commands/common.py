"""What the commands share: options that several of them take, flags from dataclasses, and the names they know."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from ..core.models.opening import M, Opened, opened
from ..core.training import Accelerate, as_written
from ..ideas.published.opening import opened_packed
from ..ideas.published.packed import WEIGHTS
from ..run.fast import accelerate, compiler
from . import UsageError

_TYPES = {"int": int, "float": float, "str": str}  # each may also be None


def add_device(command: argparse.ArgumentParser) -> None:
    """Add --device, which `main` resolves to the name of an available device."""
    command.add_argument(
        "--device", metavar="NAME", help="numpy or cupy (default: MINITRANSFORMER_DEVICE, otherwise numpy)"
    )


def add_speed(command: argparse.ArgumentParser) -> None:
    """Add --device and --textbook."""
    add_device(command)
    command.add_argument(
        "--textbook", action="store_true", help="run the ops and layers as written, without their fast forms"
    )


def add_weights(command: argparse.ArgumentParser) -> None:
    """Add --weights."""
    command.add_argument(
        "--weights",
        choices=("packed", *WEIGHTS),
        help="read the weights of a .gguf file as they are packed there; or pack those of any model (default: float32)",
    )


def opened_with(options: argparse.Namespace, kind: type[M]) -> Opened[M]:
    """The model of --model, with its weights as --weights says."""
    if options.weights is None:
        return opened(options.model, kind)
    if options.device != "numpy":
        raise UsageError(f"--weights {options.weights} needs --device numpy, got {options.device}")
    return opened_packed(options.model, kind, options.weights)


def speed(options: argparse.Namespace) -> Accelerate:
    """The function that makes a model fast; with --textbook, one that returns the model itself."""
    if options.textbook:
        return as_written
    if options.device == "numpy" and (note := compiler.start()):
        print(note, file=sys.stderr)
    return accelerate


def progress_bar(what: str, unit: str) -> Callable[[list[Any]], Any]:
    """A function that iterates over a list and shows its progress on a terminal."""
    return functools.partial(tqdm, desc=what, unit=unit, leave=False, disable=None)


def known_as(command: str, name: str, known: Sequence[str]) -> str:
    """The known name for `name`: "layer_norm" and "layer-norm" are the same. Raises UsageError for an unknown name."""
    if name in known:
        return name
    spelled = {_spelling(other): other for other in known}
    if _spelling(name) not in spelled:
        raise UsageError(unknown(command, name, known))
    return spelled[_spelling(name)]


def _spelling(name: str) -> str:
    return name.replace("-", "_")


def unknown(command: str, name: str, known: Sequence[str]) -> str:
    """The error message for an unknown name, with the nearest known one."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "try one of: " + ", ".join(known[:12])
    return f"{command} knows no {name!r}; {hint}"


def add_fields(
    command: argparse.ArgumentParser,
    title: str,
    settings: type[Any],
    meanings: Mapping[str, str],
    leave_out: Sequence[str] = (),
) -> None:
    """Add --NAME for every field of a dataclass, with its meaning. A field that is not given on the command line stays
    unset. An object and a list have no flag.
    """
    group = command.add_argument_group(title)
    for field in dataclasses.fields(settings):
        if field.name in leave_out:
            continue
        flag, default = "--" + field.name.replace("_", "-"), field.default
        kind_name = str(field.type).removesuffix(" | None")
        if kind_name.startswith(("dict", "tuple")):
            continue
        if kind_name == "bool":
            text = _help(meanings.get(field.name), default if default is None else "yes" if default else "no")
            action: Any = argparse.BooleanOptionalAction
            group.add_argument(flag, action=action, default=argparse.SUPPRESS, help=text)
        else:
            kind = _TYPES[kind_name]
            text, metavar = _help(meanings.get(field.name), default), kind.__name__.upper()
            if "file" in field.metadata:
                text, metavar = field.metadata["file"], "FILE"
            group.add_argument(flag, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)


def _help(meaning: str | None, default: object) -> str:
    shown = f"(default: {default})"
    return f"{meaning} {shown}".replace("%", "%%") if meaning else shown


def given(options: argparse.Namespace, settings: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass that were given on the command line."""
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(settings) if f.name in options}


def make(settings: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a dataclass or a function with values. A refused value is bad usage."""
    try:
        return settings(**values)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def add_search(command: argparse.ArgumentParser) -> None:
    """Add --beam, --length-penalty and --early-stopping."""
    command.add_argument("--beam", type=int, default=5, metavar="N", help="beams; 1 is greedy search (default: 5)")
    command.add_argument("--length-penalty", type=float, default=1.0, metavar="X", help="(default: 1.0)")
    command.add_argument(
        "--early-stopping",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end a search when it has as many finished texts as beams (default), or continue while an open beam "
        "has a better score",
    )


def check_search(options: argparse.Namespace) -> None:
    """Refuse now a --beam or --length-penalty that would make the command fail after the work."""
    if options.beam < 1:
        raise UsageError(f"--beam must be at least 1, got {options.beam}")
    if not 0.0 <= options.length_penalty <= 10.0:
        raise UsageError(f"--length-penalty must be from 0 to 10, got {options.length_penalty}")
