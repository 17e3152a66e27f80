"""What each command takes: options.txt says it, and the rest here adds what only the source tells, as for `train`. None
of it imports NumPy or a model, so that every --help is there at once. What a command does is in the file of its name in
the folder above.
"""

from __future__ import annotations

from argparse import SUPPRESS, BooleanOptionalAction
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import Parser
from .reading import add_options, sections
from .training import train


@dataclass(frozen=True)
class Command:
    """A command, which adds its options to a parser. help: what it does, for the list of all commands."""

    name: str
    help: str

    def __call__(self, parser: Parser) -> None:
        add_options(parser, self.name)
        if self.name in _MORE:
            _MORE[self.name](parser)


def _info(command: Parser) -> None:
    command.complete = _sizes


def _sizes(command: Parser, words: Sequence[str]) -> None:
    """A flag for every size of every kind of model, unless only the general help is asked for."""
    if words and {*words} <= {"-h", "--help"}:
        return
    from ..info import fields, flag  # here, because it imports every family

    sizes = command.add_argument_group("sizes, depending on the kind of model")
    for name, (kind, help_text) in fields().items():
        options: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        if kind is bool:
            options = {"action": BooleanOptionalAction}
        sizes.add_argument(flag(name), dest=name, default=SUPPRESS, help=help_text, **options)


_MORE: dict[str, Callable[[Parser], None]] = {
    "train": train,
    "info": _info,
    "site": lambda command: command.set_defaults(source=Path(__file__).parents[3]),
}
COMMANDS = {name: Command(name, told) for name, (told, _) in sections().items() if " " not in name}

__all__ = ["COMMANDS", "Command"]
