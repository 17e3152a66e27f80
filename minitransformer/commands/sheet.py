"""`minitransformer sheet`: an example as a workbook whose cells compute it."""

from __future__ import annotations

import argparse

from ..core.arrays.files import write
from ..school.show.sheet import workbook
from ..school.show.sheet.sizes import resized
from ..school.show.stepper.examples import EXAMPLES
from . import UsageError
from .outputs import file_to_write
from .step import example_called


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Write an example of `minitransformer step` as a workbook (.xlsx): a block of cells for each array, forward "
        "and backward, in which each computed number is a formula. Change an input, and everything that depends on it "
        "changes. Another sheet has blanks to fill in, which turn green when they are right. There are no macros."
    )
    command.add_argument("example", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    command.add_argument(
        "--out", type=file_to_write, metavar="FILE", help="the workbook to write (default: EXAMPLE.xlsx)"
    )
    command.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="LETTER=N",
        help="another length of an axis, such as T_q=3; again for another axis. A wrong letter lists the right ones",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the example's numbers (default: 0)")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    name = example_called("sheet", options.example)
    path = options.out or file_to_write(f"{name}.xlsx")
    if path.suffix.lower() != ".xlsx":
        raise UsageError(f"--out must end in .xlsx, got {path}; spreadsheets tell the kind of a file by it")
    sizes = dict(_size(given) for given in options.size)
    write(path, workbook(resized(EXAMPLES[name], name, sizes).record(options.seed), name))
    print(f"wrote {path}")
    return 0


def _size(given: str) -> tuple[str, int]:
    letter, _, number = given.partition("=")
    if not letter or not number.isdecimal():
        raise UsageError(f"--size takes a letter and a number, such as T_q=3, got {given!r}")
    return letter, int(number)
