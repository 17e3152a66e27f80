"""What the commands share: the error for bad usage, and options that several of them take."""

from __future__ import annotations

import argparse
import difflib
import functools
from collections.abc import Sequence

from tqdm import tqdm

from ..fast import accelerate
from ..training import Accelerate, as_written
from ..verify.gradients import Progress


class UsageError(Exception):
    """The command was called with an argument that it does not accept."""


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


def speed(options: argparse.Namespace) -> Accelerate:
    """The function that makes a model fast; with --textbook, one that returns the model itself."""
    return as_written if options.textbook else accelerate


def progress_bar(what: str, unit: str) -> Progress:
    """A function that iterates over a list and shows on a terminal how far it is."""
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
