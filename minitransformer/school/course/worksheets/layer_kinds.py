"""Worksheets on layers: the linear map, the embedding, a residual feed-forward network, and LayerNorm.

All numbers are whole; the rows of LayerNorm have five of them, with a whole mean and the standard deviation 2.
"""

from __future__ import annotations

import numpy as np

from ....core import ops
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw, rows_of_deviation_two
from .sheet import Given, Step, Task


def matmul_backward(draw: Draw, size: int) -> Task:
    """y = x W + b and its gradients. x: (size - 1, size); W: (size, size + 1)."""
    rows, d_in, d_out = size - 1, size, size + 1
    x = draw.matrix(-3, 4, rows, d_in)
    w = draw.matrix(-3, 4, d_in, d_out)
    b = draw.matrix(-3, 4, d_out)
    dy = draw.matrix(-2, 3, rows, d_out)
    return Task(
        title="A linear map, backward",
        notes=(
            f"W maps rows of {d_in} numbers to rows of {d_out}; b is added to each row.",
            "dX is the gradient of the loss with respect to X, and dy is given.",
        ),
        given=(Given("x", x), Given("W", w), Given("b", b), Given("dy", dy)),
        steps=(
            Step("y = x W + b", lambda x, W, b: x @ W + b, "linear.y"),
            Step("dx = dy Wᵀ", lambda dy, W: dy @ W.T, "linear.dx"),
            Step("dW = xᵀ dy", lambda x, dy: x.T @ dy, "linear.dweight"),
            Step("db = sum over rows of dy", lambda dy: dy.sum(0), "linear.dbias"),
        ),
        output="y",
        run=lambda: (*ops.linear(x, w, b), dy),
    )


def embedding_backward(draw: Draw, size: int) -> Task:
    """y = table[ids] and dtable, with one id that occurs twice and one that does not occur."""
    n_tokens, width, length = size + 2, size, size + 1
    used = draw.several(range(n_tokens), n_tokens - 1)
    twice = draw.choose(used)
    others = draw.several([token for token in used if token != twice], length - 2)
    ids = np.array(draw.several([twice, twice, *others], length))
    table = draw.matrix(-9, 9, n_tokens, width)
    dy = draw.matrix(-5, 6, length, width)
    one_hot_table = np.eye(n_tokens)
    return Task(
        title="An embedding, backward",
        notes=(
            f"Tokens are counted from 0 to {n_tokens - 1}, so row 0 is the first row of the table.",
            "The row of O for a position has a 1 in the column of its token, and 0 elsewhere.",
        ),
        given=(Given("ids", ids, note="the token at each position"), Given("table", table), Given("dy", dy)),
        steps=(
            Step(
                "O = one row for each position: 1 at its token",
                lambda ids: np.eye(n_tokens)[ids.astype(int)],
                "embedding.y",
            ),
            Step("y = table[ids] = O table", np.matmul, "embedding#2.y", of=("O", "table")),
            Step("dtable = Oᵀ dy", lambda rows, dy: rows.T @ dy, "embedding#2.dtable", of=("O", "dy")),
        ),
        output="y",
        run=lambda: (ops.embedding(ids, one_hot_table)[0], ops.embedding(ids, table)[1], dy),
    )


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


def _away_from_the_kink(draw: Draw, rows: int, width: int, inner: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, W1 and b1 such that x W1 + b1 has both signs, a positive number in each row, and no 0 (relu's kink)."""
    while True:
        x = draw.matrix(-2, 3, rows, width)
        w1 = draw.matrix(-2, 2, width, inner)
        b1 = draw.matrix(-2, 2, inner)
        hidden = x @ w1 + b1
        if (hidden != 0).all() and (hidden > 0).any(axis=1).all() and (hidden < 0).any():
            return x, w1, b1


def residual_backward(draw: Draw, size: int) -> Task:
    """A residual block around a feed-forward network. x: (size - 1, size); W1: (size, size + 1)."""
    rows, width, inner = size - 1, size, size + 1
    x, w1, b1 = _away_from_the_kink(draw, rows, width, inner)
    w2 = draw.matrix(-2, 2, inner, width)
    b2 = draw.matrix(-2, 2, width)
    dy = draw.matrix(-2, 3, rows, width)
    return Task(
        title="A residual block, backward",
        notes=(
            "A feed-forward network with a residual connection: y = x + (relu(x W1 + b1) W2 + b2).",
            "⊙ multiplies entry by entry; [h > 0] is 1 where h is positive, and 0 elsewhere.",
        ),
        given=(Given("x", x), Given("W1", w1), Given("b1", b1), Given("W2", w2), Given("b2", b2), Given("dy", dy)),
        steps=(
            Step("h = x W1 + b1", lambda x, W1, b1: x @ W1 + b1, "linear.y"),
            Step("a = relu(h)", lambda h: np.maximum(h, 0.0), "relu.y"),
            Step("f = a W2 + b2", lambda a, W2, b2: a @ W2 + b2, "linear#2.y"),
            Step("y = x + f", lambda x, f: x + f, "residual_feed_forward.y"),
            Step("dW2 = aᵀ dy", lambda a, dy: a.T @ dy, "linear#2.dweight"),
            Step("db2 = sum over rows of dy", lambda dy: dy.sum(0), "linear#2.dbias"),
            Step("da = dy W2ᵀ", lambda dy, W2: dy @ W2.T, "linear#2.dx"),
            Step("dh = da ⊙ [h > 0]", lambda da, h: da * (h > 0), "relu.dx"),
            Step("dW1 = xᵀ dh", lambda x, dh: x.T @ dh, "linear.dweight"),
            Step("db1 = sum over rows of dh", lambda dh: dh.sum(0), "linear.dbias"),
            Step("dx = dy + dh W1ᵀ", lambda dy, dh, W1: dy + dh @ W1.T, "residual_feed_forward.dx"),
        ),
        output="y",
        run=lambda: (*residual_feed_forward(x, w1, b1, w2, b2), dy),
    )


_WIDTH = 5  # of LayerNorm


def _mean(x: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1, keepdims=True)


def _shifted(n: np.ndarray, t: np.ndarray) -> np.ndarray:
    """n with its mean moved by t: the displacement for `shift`."""
    return n + t / _WIDTH


def _stretched(n: np.ndarray, t: np.ndarray) -> np.ndarray:
    """n with each row stretched by the factor 1 + mean(t ⊙ n): the displacement for `stretch`."""
    return n * (1.0 + _mean(t * n))


def layer_norm_backward(draw: Draw, size: int) -> Task:
    """LayerNorm and dx in its three terms, dgamma and dbeta. x: (size - 1, 5)."""
    rows = draw.several(rows_of_deviation_two(_WIDTH), size - 1)
    x = np.array(rows, dtype=float) + draw.matrix(-3, 5, size - 1, 1)
    gamma = draw.matrix(-2, 3, _WIDTH)
    beta = draw.matrix(-2, 3, _WIDTH)
    dy = draw.matrix(-3, 4, size - 1, _WIDTH)
    return Task(
        title="LayerNorm, backward",
        notes=(
            "Mean and standard deviation are taken over a row; ε is negligible. Divide by 5, not by 4.",
            "⊙ multiplies entry by entry. Nothing has to be rounded.",
        ),
        given=(Given("x", x), Given("γ", gamma), Given("β", beta), Given("dy", dy)),
        steps=(
            Step("mean of the row of x", lambda x: _mean(x), lambda r: _mean(x - r["layer_norm.centered"])),
            Step("c = x − mean", lambda x, mean: x - mean, "layer_norm.centered"),
            Step(
                "s = √ mean of the row of c²",
                lambda c: np.sqrt(_mean(c**2)),
                lambda r: 1.0 / r["layer_norm.inverse_std"],
            ),
            Step("n = c / s", lambda c, s: c / s, "layer_norm.normalized"),
            Step("y = γ ⊙ n + β", lambda γ, n, β: γ * n + β, "layer_norm.y"),
            Step("dγ = sum over rows of dy ⊙ n", lambda dy, n: (dy * n).sum(axis=0), "layer_norm.dgamma"),
            Step("dβ = sum over rows of dy", lambda dy: dy.sum(axis=0), "layer_norm.dbeta"),
            Step("dn = dy ⊙ γ", lambda dy, γ: dy * γ, "layer_norm.dnormalized"),
            Step("shift = mean of the row of dn", lambda dn: _mean(dn), "layer_norm.shift", moves=("n", _shifted)),
            Step(
                "stretch = n · mean of the row of dn ⊙ n",
                lambda n, dn: n * _mean(dn * n),
                "layer_norm.stretch",
                moves=("n", _stretched),
            ),
            Step(
                "dx = (dn − shift − stretch) / s",
                lambda dn, shift, stretch, s: (dn - shift - stretch) / s,
                "layer_norm.dx",
            ),
        ),
        output="y",
        run=lambda: (*ops.layer_norm(x, gamma, beta, eps=1e-12), dy),
    )
