"""`minitransformer site`: the course as a folder of static files."""

import sys

from ..school.show.site.build import build
from ..school.show.site.frame import PUBLIC_PYODIDE
from ..school.show.stepper.examples import EXAMPLES
from . import Options
from .common import progress_bar


def main(options: Options) -> None:
    where = (options.pyodide or PUBLIC_PYODIDE, options.instructor, options.model, options.address)
    print(f"writing the site to {options.out}; its {len(EXAMPLES)} steppers take a few minutes", file=sys.stderr)
    n_files = build(options.out, options.source, *where, progress=progress_bar("steppers", "stepper"))
    print(f"wrote {n_files} files to {options.out}")
    print(f"to read it: python -m http.server --directory {options.out}")
