"""What the viewer has found, and the page of it."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..page import build, frame


@dataclass(frozen=True)
class Choice:
    """A logit that gradients are taken of: the one that was largest at a position, or that of one class."""

    position: int | None  # of the token it was predicted after; None for a class
    name: str
    logit: float
    probability: float


@dataclass(frozen=True)
class Maps:
    """One kind of attention. weights: (layers, heads, T_q, T_k); gradients: (choices, layers, heads, T_q, T_k)."""

    name: str
    queries: int  # which of the sequences asks
    keys: int  # which of the sequences answers
    causal: bool
    weights: np.ndarray
    gradients: np.ndarray


@dataclass(frozen=True)
class AttentionView:
    """What `view` found. In a notebook it shows itself.

    sequences: the tokens of each; choices: the logits that there are gradients of; chosen: the one shown first.
    """

    title: str
    sequences: tuple[tuple[str, ...], ...]
    choices: tuple[Choice, ...]
    chosen: int
    maps: tuple[Maps, ...]

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page, which is also written to `path` where one is given."""
        return build(__package__, self.title, "attention", _data(self), ["page_numbers.js"], path)

    def _repr_html_(self) -> str:
        return frame(self.to_html(), self.title, height=720)


def _data(view: AttentionView) -> dict[str, Any]:
    """The view as the page reads it. Arrays are flat, little-endian float32, in base64."""
    return {
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
