"""`minitransformer view`: a page that shows where a model looks."""

from __future__ import annotations

import argparse

from ..school.show.viewer.command import view_text


def main(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    shown = view_text(options.model, options.text, options.device, options.layer)
    shown.to_html(options.html)
    print(shown.title)
    print(f"wrote {options.html}")
    return 0
