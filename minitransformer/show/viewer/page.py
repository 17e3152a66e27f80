"""One self-contained page of an attention view: it needs no network, no server and no Python, and opens from a file.

Nothing in it is taken for markup: the script writes every text as text, and the JSON holds no "<".
"""

from __future__ import annotations

import base64
import html
import os
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.files import write
from ..stepper.page import as_script_data

if TYPE_CHECKING:
    from .viewer import AttentionView


def to_html(view: AttentionView, path: str | os.PathLike[str] | None = None) -> str:
    """The page as a text, which is also written to `path` where one is given."""
    parts = {
        "{{title}}": html.escape(view.title),
        "{{style}}": _read("page.css"),
        "{{data}}": as_script_data(page_data(view)),
        "{{script}}": _read("page_numbers.js") + _read("page.js"),
    }
    pieces = [_read("page.html")]
    for mark, text in parts.items():  # in the order in which they stand there; what is put in is not searched again
        before, _, after = pieces.pop().partition(mark)
        pieces += [before, text, after]
    text = "".join(pieces)
    if path is not None:
        write(path, text)
    return text


def frame(view: AttentionView) -> str:
    """The page in a frame of its own, for a notebook."""
    text, title = html.escape(to_html(view), quote=True), html.escape(view.title, quote=True)
    return f'<iframe title="{title}" srcdoc="{text}" width="100%" height="720" style="border: 0"></iframe>'


def page_data(view: AttentionView) -> dict[str, Any]:
    """The view as the page reads it. Arrays are flat, little-endian float32, in base64."""
    return {
        "title": view.title,
        "sequences": view.sequences,
        "choices": [vars(choice) for choice in view.choices],
        "chosen": view.chosen,
        "maps": [
            {
                "name": maps.name,
                "queries": maps.queries,
                "keys": maps.keys,
                "causal": maps.causal,
                "layers": maps.weights.shape[0],
                "heads": maps.weights.shape[1],
                "weights": _encoded(maps.weights),
                "gradients": [_encoded(gradients) for gradients in maps.gradients],
            }
            for maps in view.maps
        ],
    }


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(array.astype("<f4").tobytes()).decode("ascii")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
