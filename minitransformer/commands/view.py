"""`minitransformer view`: a page that shows where a model looks."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..show.viewer.command import view_text
from .common import add_device


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    look = commands.add_parser(
        "view",
        help="write a page that shows where a model looks: its attention weights and their gradients",
        description="Let a trained model read a text (a translator translates it first) and write one page with the "
        "attention weights of every layer and head, and the gradient of each logit with respect to them.",
    )
    look.add_argument("text", metavar="TEXT", help="the text, in quotes")
    look.add_argument("--model", type=Path, required=True, metavar="DIR", help="the model's folder, such as demo/model")
    look.add_argument(
        "--html", type=Path, default=Path("attention-view.html"), metavar="FILE", help="(default: attention-view.html)"
    )
    add_device(look)
    look.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    shown = view_text(options.model, options.text, options.device)
    shown.to_html(options.html)
    print(shown.title)
    print(f"wrote {options.html}")
    return 0
