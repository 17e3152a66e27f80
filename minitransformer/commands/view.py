"""`minitransformer view`: a page that shows where a model looks."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..school.show.viewer.command import view_text
from .common import add_device
from .outputs import file_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Run a trained model on a text (a translator translates it first) and write one page with the "
        "attention weights of every layer and head, and the gradient of each logit with respect to them."
    )
    command.add_argument("text", metavar="TEXT", help="the text, in quotes")
    command.add_argument(
        "--model", type=Path, required=True, metavar="DIR", help="the model's folder, such as demo/model"
    )
    command.add_argument(
        "--html",
        type=file_to_write,
        default="attention-view.html",
        metavar="FILE",
        help="(default: attention-view.html)",
    )
    command.add_argument(
        "--layer", type=int, metavar="N", help="show only this layer, counted from 1: a page holds a longer text then"
    )
    add_device(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    shown = view_text(options.model, options.text, options.device, options.layer)
    shown.to_html(options.html)
    print(shown.title)
    print(f"wrote {options.html}")
    return 0
