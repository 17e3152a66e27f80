"""What the commands share when they run: models and their speed, settings that were given, names that they know."""

import dataclasses
import difflib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from ..core.models.opening import M, Opened, opened
from ..core.training import Accelerate, as_written
from ..ideas.published.opening import opened_packed
from ..run.fast import accelerate, compiler
from . import Options, UsageError


def opened_with(options: Options, kind: type[M]) -> Opened[M]:
    """The model of --model, with its weights as --weights says."""
    if options.weights is None:
        return opened(options.model, kind)
    if options.device != "numpy":
        raise UsageError(f"--weights {options.weights} needs --device numpy, got {options.device}")
    return opened_packed(options.model, kind, options.weights)


def speed(options: Options, order: tuple[str, ...] = compiler.PARTS) -> Accelerate:
    """The function that makes a model fast; with --textbook, one that returns the model itself. order: of compiling."""
    if options.textbook:
        return as_written
    if options.device == "numpy" and (note := compiler.start(order)):
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


def listed(names: Iterable[str]) -> int:
    """Print names that a command knows; return the exit status."""
    print(*names, sep="\n")
    return 0


def unknown(command: str, name: str, known: Sequence[str]) -> str:
    """The error message for an unknown name, with the nearest known one."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "try one of: " + ", ".join(known[:12])
    return f"{command} knows no {name!r}; {hint}"


def given(options: Options, settings: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass that were given on the command line."""
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(settings) if f.name in options}


def make(settings: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a dataclass or a function with values. A refused value is bad usage."""
    try:
        return settings(**values)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def check_search(options: Options) -> None:
    """Refuse now a --beam or --length-penalty that would make the command fail after the work."""
    in_range(options, "beam", 1)
    in_range(options, "length_penalty", 0.0, 10.0)


def in_range(options: Options, name: str, least: float, most: float = math.inf) -> None:
    """Refuse an option whose number is too small or too large."""
    value = getattr(options, name)
    if not least <= value <= most:
        wanted = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise UsageError(f"--{name.replace('_', '-')} must be {wanted}, got {value}")
