"""The commands of `minitransformer`: each has one file, such as fill_mask.py, whose function `main` runs it and returns
the exit status, if it is not 0, and one function in `options`, which adds its options.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

Options = argparse.Namespace


class UsageError(Exception):
    """The command was called with an argument that it does not accept."""


class Parser(argparse.ArgumentParser):
    """Reports bad usage in one line; argparse would print the whole usage before it.

    complete: called with the parser and the words, before they are read, to add the options that depend on them.
    """

    complete: Callable[[Parser, list[str]], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complete the options, then parse."""
        if self.complete:
            self.complete(self, args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")
