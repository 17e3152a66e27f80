"""`minitransformer step`: walk through an example line by line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..school.show.stepper import drawing, terminal
from ..school.show.stepper.command import step_text
from ..school.show.stepper.examples import ALSO_CALLED, EXAMPLES
from . import UsageError
from .common import add_device, known_as, progress_bar
from .outputs import file_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Run a small example, forward and backward, and show what each line of the code computed. On a "
        "terminal the keys n and p (or → and ←) go forward and back, c shows how a number was computed, q quits. "
        "Elsewhere all steps are printed. With --model, EXAMPLE is a text that the model reads (a translator also "
        "translates it), and the steps show one of its layers, or one head."
    )
    command.add_argument("example", metavar="EXAMPLE", help=f"{', '.join(EXAMPLES)}; with --model a text, in quotes")
    command.add_argument(
        "--model", type=Path, metavar="DIR", help="the folder of a trained or published model, or a .gguf file"
    )
    command.add_argument("--layer", type=int, metavar="N", help="its layer, counted from 1 (default: the last)")
    command.add_argument("--head", type=int, metavar="N", help="one head of its attention, from 1 (default: the layer)")
    command.add_argument("--all", action="store_true", help="also show the lines that compute no number")
    command.add_argument("--verify", action="store_true", help="compare every gradient with finite differences")
    command.add_argument("--html", type=file_to_write, metavar="FILE", help="write a page to step through in a browser")
    command.add_argument("--json", action="store_true", help="print one JSON document instead")
    command.add_argument("--seed", type=int, default=0, help="seed of the example's numbers (default: 0)")
    add_device(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    labels: dict[str, Any] = {}
    how: dict[str, Any] = {"verify": options.verify, "progress": progress_bar("check", "gradient")}
    if options.model is not None:
        place = (options.layer, options.head)
        read = step_text(options.model, options.example, *place, options.device, **how, seed=options.seed)
        recording, labels = read.recording, read.labels()
    elif options.layer is not None or options.head is not None:
        raise UsageError("--layer and --head choose a part of a model: give the model with --model DIR")
    else:
        example = EXAMPLES[example_called("step", options.example)]
        recording = example.record(options.seed, options.device, **how)
    if options.html is not None:
        recording.to_html(options.html, **labels, progress=progress_bar("page", "mistake"))
    if options.json:
        print(recording.to_json())
    elif options.html is not None:
        print(f"wrote {options.html}")
    elif terminal.can_view():
        terminal.view(recording, options.all)
    else:
        for axis in ("tokens", "memory"):
            if names := labels.get(axis):
                print(f"{axis}: {', '.join(f'{i} {name}' for i, name in enumerate(names))}")
        print(drawing.plain(recording, options.all, terminal.colours()))
    return 0 if recording.report is None or recording.report.ok else 1


def example_called(command: str, name: str) -> str:
    """The example of this name, which may also be a name that papers use for it. Raises UsageError."""
    plain = name.lower().replace("_", "-").replace(" ", "-")
    return ALSO_CALLED.get(plain) or known_as(command, name, list(EXAMPLES))
