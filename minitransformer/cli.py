"""The command line: `minitransformer COMMAND`.

Errors are one line on stderr; exit status 2 for bad usage, 1 for a failed run, 130 after Ctrl-C.
"""

import argparse
import difflib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from . import __version__
from .commands import Parser, UsageError
from .commands.options import COMMANDS
from .commands.options.shared import texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal or pipe that cannot show ε gets a ? instead of an error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _say  # type: ignore[assignment]
                return _run(_options(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()  # here, where an error can still be handled, and not at Python's end
    except UsageError as error:
        return _fail(str(error), status=2)
    except BrokenPipeError:  # the reader of our output is gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", status=130)
    except (ValueError, TypeError, ArithmeticError, RuntimeError, ImportError, MemoryError, OSError) as error:
        return _fail(str(error), status=1)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command that was called. Only its own are added."""
    parser = Parser(
        prog="minitransformer",
        description="The Transformer from scratch, every backward pass derived by hand and checked.",
    )
    parser.add_argument("--version", action="version", version=f"minitransformer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    asked_for = next((word for word in arguments if not word.startswith("-")), None)
    if asked_for is not None and asked_for not in COMMANDS:
        near = difflib.get_close_matches(asked_for, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        parser.error(f"there is no command {asked_for!r}; {hint}choose from {', '.join(COMMANDS)}")
    for name, add in COMMANDS.items():
        command = commands.add_parser(name, **texts(add))
        if name == asked_for:
            add(command)
    options, others = parser.parse_known_args(arguments)
    if others:
        raise UsageError(f"unrecognized arguments: {' '.join(others)}; see minitransformer {options.command} --help")
    return options


def _run(options: argparse.Namespace) -> int:
    if "seed" in options and options.seed is not None and options.seed < 0:
        raise UsageError(f"--seed must be at least 0, got {options.seed}")
    if "device" in options:
        from .core.arrays.backend import get_device  # here, because it imports NumPy

        try:
            options.device = get_device(options.device).name
        except ValueError as error:
            raise UsageError(str(error)) from error
    # Here, because it imports NumPy, which takes longer than --help may take.
    return import_module(f"{__package__}.commands.{options.command.replace('-', '_')}").main(options) or 0


def _say(message: Warning | str, *where: Any) -> None:
    print(f"minitransformer: {message}", file=sys.stderr)  # without the line of code that warned


def _fail(message: str, status: int) -> int:
    print(f"minitransformer: error: {' '.join(message.split())}", file=sys.stderr)  # always one line
    return status
