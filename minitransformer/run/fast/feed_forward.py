"""The feed-forward network as one kernel, so that backward keeps only one large array.

With h = x W_1 + b_1, the separate ops keep f(h) for the gradient of W_2 and f'(h) for the gradient of h. Both can be
recomputed from h, in one quick pass if the loop is compiled or f is ReLU. So keeping only h takes half the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback
from ...core.arrays.boundary import check_gradient
from .decoding import product
from .row_blocks import BLOCK, blocks, column_sums, compiled, takes

Curve = Callable[[Array, Array, Array], None]  # from a block of h to f(h) and f'(h), written in place


def feed_forward(x: Array, inner: Any, output: Any, activation: Any) -> tuple[Array, Pullback] | None:
    """See core/layers/feed_forward.py. inner, output: its Linear layers; backward adds to their gradients."""
    weights = [p.value for layer in (inner, output) for p in (layer.weight, layer.bias) if p is not None]
    if not takes(x, *weights) or not _fits(x.shape[-1:], inner) or not _fits(inner.weight.value.shape[1:], output):
        return None
    curve = _curve(activation, x)
    if curve is None:
        return None
    w1, w2 = inner.weight.value, output.weight.value
    rows, shape = x.reshape(-1, x.shape[-1]), x.shape

    h = product(rows, w1)
    if inner.bias is not None:
        np.add(h, inner.bias.value, out=h)
    y = product(_through(h, curve), w2)
    if output.bias is not None:
        y += output.bias.value
    y = y.reshape(*shape[:-1], w2.shape[1])
    y_shape, dtype = y.shape, y.dtype

    def backward(dy: Array) -> Array:
        check_gradient("feed_forward", dy, y_shape, dtype, np)
        dout = dy.reshape(-1, w2.shape[1])
        dh = dout @ w2.T  # the gradient of f(h); the next line turns it into the gradient of h
        active = _through(h, curve, dh)
        _add_gradients(output, active, dout)
        _add_gradients(inner, rows, dh)
        return (dh @ w1.T).reshape(shape)

    return y, backward


def _fits(width: tuple[int, ...], layer: Any) -> bool:
    """Whether a Linear layer's arrays have the right shapes for rows of this width."""
    weight, bias = layer.weight.value, layer.bias
    return weight.ndim == 2 and weight.shape[:1] == width and (bias is None or bias.value.shape == weight.shape[1:])


def _curve(activation: Any, x: Array) -> Curve | None:
    loops = compiled(x)
    if loops and activation in ("gelu", "gelu_tanh"):
        return getattr(loops, activation)
    return _relu if activation == "relu" else None


def _relu(h: Array, active: Array, slope: Array) -> None:
    np.maximum(h, 0.0, out=active)
    np.greater(h, 0.0, out=slope)


def _through(h: Array, curve: Curve, dactive: Array | None = None) -> Array:
    """f(h). If its gradient is given, this turns it into the gradient of h, in place."""
    active = np.empty_like(h)
    flat_h, flat_active = h.reshape(-1), active.reshape(-1)
    slopes = np.empty(min(h.size, BLOCK), h.dtype)
    for block in blocks(h.size, 1):
        slope = slopes[: block.stop - block.start]
        curve(flat_h[block], flat_active[block], slope)
        if dactive is not None:
            dactive.reshape(-1)[block] *= slope
    return active


def _add_gradients(layer: Any, rows: Array, dproduct: Array) -> None:
    layer.weight.grad += rows.T @ dproduct
    if layer.bias is not None:
        layer.bias.grad += column_sums(dproduct)
