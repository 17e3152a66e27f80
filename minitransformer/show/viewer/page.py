"""What the viewer found, and its page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..page import build, frame, packed


@dataclass(frozen=True)
class Choice:
    """A logit whose gradients are shown: the largest one at a position, or that of one class."""

    position: int | None  # of the token after which it was predicted; None for a class
    name: str
    logit: float
    probability: float


@dataclass(frozen=True)
class Maps:
    """One kind of attention. weights: (layers, heads, T_q, T_k); gradients: (choices, layers, heads, T_q, T_k)."""

    name: str
    queries: int  # which of the sequences the queries come from
    keys: int  # which of the sequences the keys come from
    causal: bool
    weights: np.ndarray
    gradients: np.ndarray


@dataclass(frozen=True)
class AttentionView:
    """The result of `view`. In a notebook it shows itself.

    sequences: the tokens of each sequence; choices: the logits that have gradients; chosen: which one is shown first.
    """

    title: str
    sequences: tuple[tuple[str, ...], ...]
    choices: tuple[Choice, ...]
    chosen: int
    maps: tuple[Maps, ...]

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained page as a text, also written to `path` if given."""
        return build(__package__, self.title, "attention", _data(self), ["page_numbers.js"], path)

    def _repr_html_(self) -> str:
        return frame(self.to_html(), self.title, height=720)


def _data(view: AttentionView) -> dict[str, Any]:
    """The view as data for the page. Arrays are flat, little-endian float32, in base64."""
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
                "weights": packed(maps.weights),
                "gradients": [packed(gradients) for gradients in maps.gradients],
            }
            for maps in view.maps
        ],
    }
