"""Padding left out: only the rows of real tokens go through the layers.

A batch is as long as its longest text, and the other texts have padding up to there. A row of padding takes as long as
a real one, and nobody reads what becomes of it. So the rows of the real tokens are put one after the other, (N, D), and
go through all layers like that. Only attention needs to know where a text starts (sublayers.py). At the end each row
goes back to its place, and the padding is zeros.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng
from ...core.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from ...core.layers.residual import Recompute, Residual
from .decoding import FEW
from .row_blocks import class_of, compiled

LEAST = 1 / 16  # of a batch must be padding, since rows are copied to be packed; 2 keeps all padding
_LAYERS: dict[Any, Any] = {Encoder: EncoderLayer, Decoder: DecoderLayer}


class Rows:
    """The places of the real tokens in a batch, (B, T). lengths: how many each sequence begins with, (B,)."""

    def __init__(self, lengths: Array, length: int) -> None:
        self.lengths, self.shape = lengths, (len(lengths), length)
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.places = np.flatnonzero(np.arange(length) < lengths[:, None])

    @classmethod
    def of(cls, mask: Any, x: Array) -> Rows | None:
        """From the mask of the keys of x, (B, 1, T); None if it is another one, or padding comes before a token."""
        length = x.shape[1]
        if mask is None:
            return cls(np.full(len(x), length), length)
        if type(mask) is not np.ndarray or mask.dtype != bool or mask.shape != (len(x), 1, length):
            return None
        rows = cls(mask.sum(axis=(1, 2)), length)
        return rows if mask.ravel()[rows.places].all() else None

    def packed(self, x: Array) -> Array:
        """(B, T, D) as (N, D)."""
        return x.reshape(-1, x.shape[-1]).take(self.places, axis=0)

    def padded(self, rows: Array) -> Array:
        """(N, D) as (B, T, D), with zeros for padding."""
        x = np.zeros((math.prod(self.shape), rows.shape[-1]), rows.dtype)
        x[self.places] = rows
        return x.reshape(*self.shape, -1)


class WithoutPadding:
    """An encoder or a decoder that leaves padding out of its layers, if there is enough and they have compiled forms.

    counted: boolean, (B, T), where a target counts, of a causal stack. What comes after the last one is padding: what
    comes before cannot see it.
    """

    def __init__(self, stack: Any, counted: Array | None = None) -> None:
        self.stack, self.layers = stack, getattr(stack, "layers", [])
        self.lengths = None
        if counted is not None:
            self.lengths = (counted * np.arange(1, counted.shape[1] + 1)).max(axis=1)

    def __call__(self, x: Array, *memory: Array, **how: Any) -> tuple[Array, Pullback]:
        """See core/layers/blocks.py."""
        given = x, *memory
        found = [Rows.of(how.get(name), each) for name, each in zip(("mask", "memory_mask"), given, strict=False)]
        if self.lengths is not None and found[0] is not None:
            fits = (self.lengths <= found[0].lengths).all()
            found[0] = Rows(self.lengths, x.shape[1]) if fits else None
        rows = [each for each in found if each is not None]
        if len(rows) < len(given) or not self._pays(rows) or not compiled(x, part="sublayers"):
            result: tuple[Array, Pullback] = self.stack(*given, **how)
            return result
        y, backward = self._of_rows(rows)(*(each.packed(a) for each, a in zip(rows, given, strict=True)), **how)

        def padded_backward(dy: Array) -> Any:
            gradients = backward(rows[0].packed(dy))
            if not memory:
                return rows[0].padded(gradients)
            return tuple(each.padded(d) for each, d in zip(rows, gradients, strict=True))

        return rows[0].padded(y), padded_backward

    def _pays(self, rows: list[Rows]) -> bool:
        n_real, n_all = sum(len(each.places) for each in rows), sum(math.prod(each.shape) for each in rows)
        if n_real > (1.0 - LEAST) * n_all or len(rows[0].places) <= FEW or not rows[-1].lengths.all():
            return False
        kind, across = _LAYERS.get(class_of(self.stack)), {"cross_attention": (None,)}
        if kind is None:
            return False
        layers = self.stack.plain_layers
        parts = [part for layer in layers for part in layer.children()]
        return all(class_of(layer) is kind for layer in layers) and all(
            class_of(part) is Residual and part.form(across.get(name, ()), {}) for name, part in parts
        )

    def _of_rows(self, rows: list[Rows]) -> Any:
        """The same stack for rows of real tokens."""
        plain, recompute = self.stack.plain_layers, isinstance(self.layers[0], Recompute)
        parts = {id(layer): [_OfRows(part, rows) for _, part in layer.children()] for layer in plain}
        layers = {id(layer): class_of(layer).of(*parts[id(layer)]) for layer in plain}
        return class_of(self.stack).of([layers[id(layer)] for layer in plain], self.stack.final_norm, recompute)


class _OfRows:
    """A residual connection that takes and returns the rows of real tokens. rows: of x, and of the memory if any."""

    def __init__(self, residual: Any, rows: list[Rows]) -> None:
        self.residual, self.rows = residual, rows

    def __call__(self, *given: Array, mask: Any = None, rng: Rng | None = None, **how: Any) -> tuple[Array, Pullback]:
        """See core/layers/residual.py. The compiled forms need no mask; the ops, which run where those decline, do."""
        options = {"causal": True} if how.get("causal") else {}
        rows, form = self.rows[: len(given)], self.residual.form(given[1:], options)
        fast: tuple[Array, Pullback] | None = form(self.residual, *given, rng=rng, rows=(rows[0], rows[-1]), **options)
        if fast is not None:
            return fast
        padded = [each.padded(a) for each, a in zip(rows, given, strict=True)]
        y, backward = self.residual(*padded, rng=rng, **options | ({} if mask is None else {"mask": mask}))

        def packed_backward(dy: Array) -> Any:
            gradients = backward(rows[0].padded(dy))
            if len(given) == 1:
                return rows[0].packed(gradients)
            return tuple(each.packed(d) for each, d in zip(rows, gradients, strict=True))

        return rows[0].packed(y), packed_backward
