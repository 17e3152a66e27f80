"""`minitransformer site`: the course as a folder of static files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..school.show.site.build import build
from ..school.show.site.frame import PUBLIC_PYODIDE
from ..school.show.stepper.examples import EXAMPLES
from .common import progress_bar
from .outputs import folder_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Write the notebooks as chapters whose cells can be changed and run in the browser, the exercises "
        "with their check, the steppers, the annotated code, the reference and the teacher's guide. This takes a few "
        "minutes. Any web server can serve the folder, for example: python -m http.server --directory DIR"
    )
    command.add_argument("--out", type=folder_to_write, default="site", metavar="DIR", help="(default: site)")
    command.add_argument(
        "--source",
        type=Path,
        default=Path(__file__).parents[2],
        metavar="DIR",
        help="the repository, with notebooks/ and docs/ (default: the one that contains this package)",
    )
    command.add_argument(
        "--pyodide",
        default=PUBLIC_PYODIDE,
        metavar="WHERE",
        help="Python for the browser: the address of a Pyodide distribution, or a folder with one, which is copied "
        "into the site (default: the public distribution)",
    )
    command.add_argument("--instructor", action="store_true", help="also write solutions and answers")
    command.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="the translator that `minitransformer demo` trains, demo/model: the start page shows it at work",
    )
    command.add_argument(
        "--address", default="", metavar="URL", help="the site's address, from which notebooks install the package"
    )
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    where = (options.pyodide, options.instructor, options.model, options.address)
    print(f"writing the site to {options.out}; its {len(EXAMPLES)} steppers take a few minutes", file=sys.stderr)
    n_files = build(options.out, options.source, *where, progress=progress_bar("steppers", "stepper"))
    print(f"wrote {n_files} files to {options.out}")
    print(f"to read it: python -m http.server --directory {options.out}")
    return 0
