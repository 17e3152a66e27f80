"""Linear maps of a few rows with a large matrix, as decoding has them; see decoding.py. Others run as written."""

from __future__ import annotations

from ...core import ops as textbook
from ...core.arrays.backend import Array, Pullback
from . import decoding
from .row_blocks import compiled, takes
from .weights import form_of


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback] | None:
    """See core/ops/linear.py."""
    given = (x, weight) if bias is None else (x, weight, bias)
    if not takes(*given) or weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[0]:
        return None
    d_in, d_out = weight.shape
    rows = x.reshape(-1, d_in)
    if len(rows) > decoding.FEW or weight.size < decoding.LARGE or min(weight.shape) < decoding.LEAST_SIDE:
        return None
    loops, form = compiled(rows, part="products"), form_of(weight)
    if not loops or form is None or (bias is not None and bias.shape != (d_out,)):
        return None
    y = decoding.few_rows(loops, rows, form, d_out)
    if bias is not None:
        y += bias

    def backward(dy: Array) -> tuple[Array, ...]:  # rarely asked for, so it may compute y again
        gradients: tuple[Array, ...] = textbook.linear(x, weight, bias)[1](dy)
        return gradients

    return y.reshape(*x.shape[:-1], d_out), backward
