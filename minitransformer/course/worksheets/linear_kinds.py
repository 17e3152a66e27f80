"""Worksheets with whole numbers only: the linear map, the embedding, and a residual feed-forward network."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...arrays.backend import Array, Pullback
from .numbers import Draw
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
            Step("y", "y = x W + b", lambda v: v["x"] @ v["W"] + v["b"], lambda r: r["linear.y"]),
            Step("dx", "dx = dy Wᵀ", lambda v: v["dy"] @ v["W"].T, lambda r: r["linear.dx"], backward=True),
            Step("dW", "dW = xᵀ dy", lambda v: v["x"].T @ v["dy"], lambda r: r["linear.dweight"], backward=True),
            Step(
                "db", "db = sum over rows of dy", lambda v: v["dy"].sum(0), lambda r: r["linear.dbias"], backward=True
            ),
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
                "O",
                "O = one row for each position: 1 at its token",
                lambda v: np.eye(n_tokens)[v["ids"].astype(int)],
                lambda r: r["embedding.y"],
            ),
            Step(
                "y",
                "y = table[ids] = O table",
                lambda v: v["O"] @ v["table"],
                lambda r: r["embedding#2.y"],
            ),
            Step(
                "dtable",
                "dtable = Oᵀ dy",
                lambda v: v["O"].T @ v["dy"],
                lambda r: r["embedding#2.dtable"],
                backward=True,
            ),
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
            "∘ multiplies entry by entry; [h > 0] is 1 where h is positive, and 0 elsewhere.",
        ),
        given=(
            Given("x", x),
            Given("W1", w1),
            Given("b1", b1),
            Given("W2", w2),
            Given("b2", b2),
            Given("dy", dy),
        ),
        steps=(
            Step("h", "h = x W1 + b1", lambda v: v["x"] @ v["W1"] + v["b1"], lambda r: r["linear.y"]),
            Step("a", "a = relu(h)", lambda v: np.maximum(v["h"], 0.0), lambda r: r["relu.y"]),
            Step("f", "f = a W2 + b2", lambda v: v["a"] @ v["W2"] + v["b2"], lambda r: r["linear#2.y"]),
            Step("y", "y = x + f", lambda v: v["x"] + v["f"], lambda r: r["residual_feed_forward.y"]),
            Step("dW2", "dW2 = aᵀ dy", lambda v: v["a"].T @ v["dy"], lambda r: r["linear#2.dweight"], backward=True),
            Step(
                "db2",
                "db2 = sum over rows of dy",
                lambda v: v["dy"].sum(0),
                lambda r: r["linear#2.dbias"],
                backward=True,
            ),
            Step("da", "da = dy W2ᵀ", lambda v: v["dy"] @ v["W2"].T, lambda r: r["linear#2.dx"], backward=True),
            Step("dh", "dh = da ∘ [h > 0]", lambda v: v["da"] * (v["h"] > 0), lambda r: r["relu.dx"], backward=True),
            Step("dW1", "dW1 = xᵀ dh", lambda v: v["x"].T @ v["dh"], lambda r: r["linear.dweight"], backward=True),
            Step(
                "db1", "db1 = sum over rows of dh", lambda v: v["dh"].sum(0), lambda r: r["linear.dbias"], backward=True
            ),
            Step(
                "dx",
                "dx = dy + dh W1ᵀ",
                lambda v: v["dy"] + v["dh"] @ v["W1"].T,
                lambda r: r["residual_feed_forward.dx"],
                backward=True,
            ),
        ),
        output="y",
        run=lambda: (*residual_feed_forward(x, w1, b1, w2, b2), dy),
    )
