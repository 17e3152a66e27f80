"""`minitransformer step`: walk through an example line by line."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..show.stepper import drawing, terminal
from ..show.stepper.examples import EXAMPLES
from .common import add_device, known_as


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    walk = commands.add_parser(
        "step",
        help="step through an example line by line, forward and backward, with every number",
        description="Run a small example, forward and backward, and show what each line of the code computed. On a "
        "terminal the keys n and p (or → and ←) go forward and back, c shows how a number was computed, q quits. "
        "Elsewhere all steps are printed.",
    )
    walk.add_argument("example", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    walk.add_argument("--all", action="store_true", help="also show the lines that compute no number")
    walk.add_argument("--verify", action="store_true", help="compare every gradient with finite differences")
    walk.add_argument("--html", type=Path, metavar="FILE", help="write a page to step through in a browser")
    walk.add_argument("--json", action="store_true", help="print one JSON document instead")
    walk.add_argument("--seed", type=int, default=0, help="seed of the example's numbers (default: 0)")
    add_device(walk)
    walk.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    example = EXAMPLES[known_as("step", options.example, list(EXAMPLES))]
    recording = example.record(options.seed, options.device, options.verify, progress=_progress("check", "gradient"))
    if options.html is not None:
        recording.to_html(options.html, progress=_progress("page", "mistake"))
    if options.json:
        print(recording.to_json())
    elif options.html is not None:
        print(f"wrote {options.html}")
    elif terminal.can_view():
        terminal.view(recording, options.all)
    else:
        print(drawing.plain(recording, options.all, terminal.colours()))
    return 0 if recording.report is None or recording.report.ok else 1


def _progress(what: str, unit: str) -> Any:
    """A progress bar on a terminal for a long list of tasks."""
    return functools.partial(tqdm, desc=what, unit=unit, leave=False, disable=None)
