"""What the commands share: the complaint about bad usage, and options that several of them take."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

from ..fast import accelerate
from ..training import Accelerate, as_written


class UsageError(Exception):
    """The command was called with something it does not know."""


def add_device(command: argparse.ArgumentParser) -> None:
    """Add --device, which `main` resolves to the name of a device that is there."""
    command.add_argument(
        "--device", metavar="NAME", help="numpy or cupy (default: MINITRANSFORMER_DEVICE, or else numpy)"
    )


def add_speed(command: argparse.ArgumentParser) -> None:
    """Add --device and --textbook."""
    add_device(command)
    command.add_argument(
        "--textbook", action="store_true", help="run the ops and layers as they are written, without their fast forms"
    )


def speed(options: argparse.Namespace) -> Accelerate:
    """What makes a model fast, unless --textbook asks for it as it is written."""
    return as_written if options.textbook else accelerate


def known_as(command: str, name: str, known: Sequence[str]) -> str:
    """The known name that is meant: "layer_norm" and "layer-norm" are one. Raises UsageError for another name."""
    if name in known:
        return name
    spelled = {_spelling(other): other for other in known}
    if _spelling(name) not in spelled:
        raise UsageError(unknown(command, name, known))
    return spelled[_spelling(name)]


def _spelling(name: str) -> str:
    return name.replace("-", "_")


def unknown(command: str, name: str, known: Sequence[str]) -> str:
    """The complaint about a name that a command does not know, with the nearest one that it does."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "try one of: " + ", ".join(known[:12])
    return f"{command} knows no {name!r}; {hint}"
