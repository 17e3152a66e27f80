"""`minitransformer grade`: grade the exercises in notebooks and Python files."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path

from tqdm import tqdm

from ..course.exercises import EXERCISES
from ..course.grading import Grades, grade
from ..course.sandbox import Limits
from .common import UsageError, unknown


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    command = commands.add_parser(
        "grade",
        help="grade the exercises in notebooks or Python files",
        description="Run a hand-in and grade every function in it that is named like an exercise of "
        "minitransformer.course. Each is run in a process of its own with limits of time and memory, which gets the "
        "inputs and gives back arrays; they are compared here. Exit status 0 when grading worked, whatever the grades.",
        epilog="A hand-in that loops, exits or patches NumPy or this package neither passes nor breaks grading. Still "
        "it runs on this machine, under your name: grade what strangers send you in a container.",
    )
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="notebooks (.ipynb) or Python files (.py)")
    command.add_argument("--exercises", metavar="A,B,...", help="those that were set (default: all that are there)")
    command.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    command.add_argument("--csv", action="store_true", help="print a line for each exercise, for a spreadsheet")
    command.add_argument("--verbose", action="store_true", help="print all that there is to say of each exercise")
    command.add_argument("--seed", type=int, default=0, help="of the inputs that functions are tried on (default: 0)")
    command.add_argument("--seconds", type=float, default=60.0, help="for each exercise, the whole file included (60)")
    command.add_argument("--memory", type=int, default=2048, metavar="MB", help="for each exercise (default: 2048)")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if sys.platform == "win32":
        raise UsageError("grade needs Linux or macOS: Windows has no limits for a process that it could set")
    if options.csv and options.json:
        raise UsageError("--csv and --json are two formats; choose one")
    if not 0 < options.seconds < 1e6:
        raise UsageError(f"--seconds must be greater than 0, got {options.seconds:g}")
    if not 256 <= options.memory < 1e9:
        raise UsageError(f"--memory must be at least 256 (MB), which Python and NumPy need, got {options.memory}")
    wanted = None if options.exercises is None else [name.strip() for name in options.exercises.split(",")]
    for name in wanted or ():
        if name not in EXERCISES:
            raise UsageError(unknown("grade", name, list(EXERCISES)))
    limits = Limits(options.seconds, options.memory * 1024**2)
    found: list[tuple[Path, Grades | None, str]] = []
    with tqdm(desc="grade", unit="exercise", leave=False, disable=None) as bar:
        for path in options.files:
            try:
                found.append((path, grade(path, wanted, options.seed, limits, progress=bar.update), ""))
            except (ValueError, OSError) as error:
                found.append((path, None, str(error)))
    graded = [grades for _, grades, _ in found if grades is not None]
    if options.json:
        files = [
            {"file": str(path), "error": problem} if grades is None else grades.as_dict()
            for path, grades, problem in found
        ]
        print(json.dumps({"seed": options.seed, "files": files}, indent=1, ensure_ascii=False, allow_nan=False))
    elif options.csv:
        print(_table(graded), end="")
    else:
        print("\n\n".join(_text(grades, options.verbose) for grades in graded))
    for _, grades, problem in found:
        if grades is None:
            print(f"minitransformer: error: {' '.join(problem.split())}", file=sys.stderr)
    return 0 if len(graded) == len(found) else 1


def _text(grades: Grades, verbose: bool) -> str:
    details = [one.message for one in grades.grades if verbose and one.verdict not in ("right", "missing")]
    return "\n\n".join([str(grades), *details])


def _table(graded: list[Grades]) -> str:
    target = io.StringIO()
    table = csv.writer(target, lineterminator="\n")
    table.writerow(["file", "exercise", "verdict", "score", "mistake", "message"])
    for grades in graded:
        for one in grades.grades:
            mistake = (one.result.mistake if one.result is not None else None) or ""
            texts = [shown(grades.file), one.exercise, one.verdict, f"{one.score:.4f}", mistake, shown(one.summary)]
            table.writerow(texts)
    return target.getvalue()


def shown(text: str) -> str:
    """A text that a spreadsheet shows and does not compute: one that begins with =, +, - or @ would be a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
