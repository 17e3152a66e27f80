"""Worksheets on layers: the linear map, LayerNorm, the embedding, and a residual feed-forward network.

All numbers are whole; the rows of LayerNorm have five of them, with a whole mean and the standard deviation 2.
"""

from __future__ import annotations

import functools

import numpy as np

from ....core import ops
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw, rows_of_deviation_two
from .sheet import Given, Run, kind


@kind(2, 5)
def matmul_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """A linear map, backward.

    W maps rows of {size} numbers to rows of {more}; b is added to each row.

    dX is the gradient of the loss with respect to X, and dy is given.

    y = x W + b | x @ W + b | linear.y
    dx = dy Wᵀ | dy @ W.T | linear.dx
    dW = xᵀ dy | x.T @ dy | linear.dweight
    db = sum over rows of dy | dy.sum(0) | linear.dbias
    """
    x, w = draw.matrix(-3, 4, size - 1, size), draw.matrix(-3, 4, size, size + 1)
    b, dy = draw.matrix(-3, 4, size + 1), draw.matrix(-2, 3, size - 1, size + 1)
    return [Given("x", x), Given("W", w), Given("b", b), Given("dy", dy)], lambda: (*ops.linear(x, w, b), dy)


@kind(3, 5)
def layer_norm_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """LayerNorm, backward.

    Mean and standard deviation are taken over a row; ε is negligible. Divide by 5, not by 4.

    ⊙ multiplies entry by entry. Nothing has to be rounded.

    mean of the row of x | row_mean(x)
    c = x − mean | x - mean | layer_norm.centered
    s = √ mean of the row of c² | np.sqrt(row_mean(c**2))
    n = c / s | c / s | layer_norm.normalized
    y = γ ⊙ n + β | γ * n + β | layer_norm.y
    dγ = sum over rows of dy ⊙ n | (dy * n).sum(0) | layer_norm.dgamma
    dβ = sum over rows of dy | dy.sum(0) | layer_norm.dbeta
    dn = dy ⊙ γ | dy * γ | layer_norm.dnormalized
    shift = mean of the row of dn | row_mean(dn) | layer_norm.shift | moves n + t / 5
    stretch = n · mean of the row of dn ⊙ n | n * row_mean(dn * n) | layer_norm.stretch | moves n + n * row_mean(t * n)
    dx = (dn − shift − stretch) / s | (dn - shift - stretch) / s | layer_norm.dx
    """
    width = 5
    rows = draw.several(rows_of_deviation_two(width), size - 1)
    x = np.array(rows, dtype=float) + draw.matrix(-3, 5, size - 1, 1)
    gamma, beta = draw.matrix(-2, 3, width), draw.matrix(-2, 3, width)
    dy = draw.matrix(-3, 4, size - 1, width)
    given = [Given("x", x), Given("γ", gamma), Given("β", beta), Given("dy", dy)]
    return given, lambda: (*ops.layer_norm(x, gamma, beta, eps=1e-12), dy)


@kind(2, 5)
def embedding_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """An embedding, backward.

    Tokens are counted from 0 to {more}, so row 0 is the first row of the table.

    The row of O for a position has a 1 in the column of its token, and 0 elsewhere.

    O = one row for each position: 1 at its token | np.eye(len(table))[ids]
    y = table[ids] = O table | O @ table | embedding.y
    dtable = Oᵀ dy | O.T @ dy | embedding.dtable
    """
    n_tokens, width, length = size + 2, size, size + 1
    used = draw.several(range(n_tokens), n_tokens - 1)  # one token does not occur, and one occurs twice
    twice = draw.choose(used)
    others = draw.several([token for token in used if token != twice], length - 2)
    ids = np.array(draw.several([twice, twice, *others], length))
    table, dy = draw.matrix(-9, 9, n_tokens, width), draw.matrix(-5, 6, length, width)
    given = [Given("ids", ids, note="the token at each position"), Given("table", table), Given("dy", dy)]
    return given, lambda: (*ops.embedding(ids, table), dy)


def residual_feed_forward(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> tuple[Array, Pullback]:
    """y = x + (relu(x W1 + b1) W2 + b2): a feed-forward network with a residual connection.

    x, y: (T, D); w1: (D, F); b1: (F,); w2: (F, D); b2: (D,). backward(dy) returns (dx, dw1, db1, dw2, db2).
    """
    hidden, hidden_backward = ops.linear(x, w1, b1)
    active, relu_backward = ops.relu(hidden)
    update, update_backward = ops.linear(active, w2, b2)
    y = x + update

    def backward(dy: Array) -> tuple[Array, ...]:
        dactive, dw2, db2 = update_backward(dy)
        dhidden = relu_backward(dactive)
        dthrough, dw1, db1 = hidden_backward(dhidden)
        dx = dy + dthrough
        return dx, dw1, db1, dw2, db2

    return y, backward


@kind(2, 4)
def residual_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """A residual block, backward.

    A feed-forward network with a residual connection: y = x + (relu(x W1 + b1) W2 + b2).

    ⊙ multiplies entry by entry; [h > 0] is 1 where h is positive, and 0 elsewhere.

    h = x W1 + b1 | x @ W1 + b1 | linear.y
    a = relu(h) | np.maximum(h, 0.0) | relu.y
    f = a W2 + b2 | a @ W2 + b2 | linear#2.y
    y = x + f | x + f | residual_feed_forward.y
    dW2 = aᵀ dy | a.T @ dy | linear#2.dweight
    db2 = sum over rows of dy | dy.sum(0) | linear#2.dbias
    da = dy W2ᵀ | dy @ W2.T | linear#2.dx
    dh = da ⊙ [h > 0] | da * (h > 0) | relu.dx
    dW1 = xᵀ dh | x.T @ dh | linear.dweight
    db1 = sum over rows of dh | dh.sum(0) | linear.dbias
    dx = dy + dh W1ᵀ | dy + dh @ W1.T | residual_feed_forward.dx
    """
    while True:  # until hidden has both signs, a positive number in each row, and no 0 (relu's kink)
        x, w1 = draw.matrix(-2, 3, size - 1, size), draw.matrix(-2, 2, size, size + 1)
        b1 = draw.matrix(-2, 2, size + 1)
        hidden = x @ w1 + b1
        if (hidden != 0).all() and (hidden > 0).any(axis=1).all() and (hidden < 0).any():
            break
    w2, b2 = draw.matrix(-2, 2, size + 1, size), draw.matrix(-2, 2, size)
    dy = draw.matrix(-2, 3, size - 1, size)
    given = [Given("x", x), Given("W1", w1), Given("b1", b1), Given("W2", w2), Given("b2", b2), Given("dy", dy)]
    forward = functools.partial(residual_feed_forward, x, w1, b1, w2, b2)
    return given, lambda: (*forward(), dy)
