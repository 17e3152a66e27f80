"""Causal attention alone, forward and backward, for longer and longer sequences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer import fast, ops

from .. import ours
from .counting import causal_pairs


@dataclass(frozen=True)
class Sizes:
    length: int
    n_heads: int = 8
    d_head: int = 64


def inputs(sizes: Sizes) -> list[np.ndarray]:
    """q, k, v and the gradient of the output, (1, H, T, d)."""
    shape = (1, sizes.n_heads, sizes.length, sizes.d_head)
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for _ in range(4)]


def operations(s: Sizes) -> float:
    """Two products forward and four backward for each pair of positions; recomputing the scores is not counted."""
    return 12.0 * s.n_heads * causal_pairs(s.length) * s.d_head


def needs(program: str, s: Sizes) -> float:
    """Bytes that a program needs: at its peak the textbook op holds four to five arrays (H, T, T)."""
    return 5.0 * 4.0 * s.n_heads * s.length**2 if program == "textbook" else 0.0


class Ours(ours.Program):
    ops = fast.ops

    def __init__(self, sizes: Sizes, weights: object = None) -> None:
        self.q, self.k, self.v, self.doutput = inputs(sizes)

    def run(self) -> tuple[np.ndarray, ...]:
        output, backward = self.ops.attention(self.q, self.k, self.v, causal=True)
        return (output, *backward(self.doutput))

    def prove(self) -> dict[str, np.ndarray]:
        return dict(zip(("output", "dq", "dk", "dv"), self.run(), strict=True))


class Textbook(Ours):
    ops = ops
