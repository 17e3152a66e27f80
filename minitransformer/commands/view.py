"""`minitransformer view`: where a model looks, as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..show.viewer.command import view_text
from .common import add_device


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    look = commands.add_parser(
        "view",
        help="show where a model looks: its attention weights and their gradients, as a page",
        description="Let a trained model read a text, which a translator translates first, and write one page with the "
        "attention weights of every layer and head, and the gradient of each logit with respect to them.",
    )
    look.add_argument("text", metavar="TEXT", help="what it reads, in quotes")
    look.add_argument("--model", type=Path, required=True, metavar="DIR", help="the model, as in demo/model")
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
