"""Linear layers, and a linear map of low rank."""

from __future__ import annotations

from typing import Any

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _linear_forward(draw: Draw) -> tuple[Any, ...]:
    batch, t, d_in, d_out = draw.sizes(4)
    return draw.normal(batch, t, d_in), draw.normal(d_in, d_out), draw.normal(d_out)


@exercise(
    title="A linear layer",
    statement="""
        y = x w + b at every position of every sequence.

        x: (B, T, d_in); w: (d_in, d_out); b: (d_out,); y: (B, T, d_out).
    """,
    outputs="y",
    inputs=_linear_forward,
    hint="@ multiplies the last two axes of x with w and repeats it over the batch; b broadcasts along the last axis.",
    mistakes=(
        Mistake("bias-forgotten", "x @ w + b", "x @ w", "The bias b is not added."),
        Mistake("bias-subtracted", "x @ w + b", "x @ w - b", "The bias b is subtracted, but it must be added."),
        Mistake(
            "bias-multiplied",
            "x @ w + b",
            "x @ w * b",
            "b multiplies the product; a bias is added.",
        ),
        Mistake(
            "mean-over-inputs",
            "x @ w + b",
            "x @ w / len(w) + b",
            "The product is divided by d_in; each output is a sum over the inputs, not their mean.",
        ),
        Mistake(
            "activation-added",
            "x @ w + b",
            "np.maximum(x @ w + b, 0.0)",
            "A ReLU is applied to the result; the linear layer has no activation of its own.",
        ),
        Mistake(
            "batch-flattened",
            "x @ w + b",
            "(x @ w + b).reshape(-1, len(b))",
            "The batch and the positions are still one axis: give y its axes (B, T, d_out) back.",
        ),
    ),
)
def linear_forward(x: Array, w: Array, b: Array) -> Array:
    y = x @ w + b
    return y


def _linear_backward(draw: Draw) -> tuple[Any, ...]:
    batch, t, d_in, d_out = draw.sizes(4)
    return draw.normal(batch, t, d_in), draw.normal(d_in, d_out), draw.gradient(batch, t, d_out)


@exercise(
    title="A linear layer, backward",
    statement="""
        y = x w + b at every position of every sequence. Given dy, return the gradients of x, w and b.

        x, dx: (B, T, d_in); w, dw: (d_in, d_out); db: (d_out,); dy: (B, T, d_out).
    """,
    outputs="dx, dw, db",
    inputs=_linear_backward,
    hint="""
        The same w and b serve all B·T positions, so their gradients sum over all of them. Flatten x and dy to rows
        first: then dw is one product of two matrices.
    """,
    mistakes=(
        Mistake(
            "w-reshaped",
            "w.T",
            "w.reshape(w.shape[::-1])",
            "w is brought to the shape (d_out, d_in) by a reshape, which scrambles its entries; it must be transposed.",
        ),
        Mistake(
            "dw-mean",
            "rows.T @ drows",
            "rows.T @ drows / len(rows)",
            "dw is divided by the number of positions; a mean belongs to the loss, and dy contains it already.",
        ),
        Mistake(
            "dw-divided-by-batch",
            "rows.T @ drows",
            "rows.T @ drows / len(x)",
            "dw is divided by the batch size; a mean belongs to the loss, and dy contains it already.",
        ),
        Mistake(
            "dw-per-sequence",
            "rows.T @ drows",
            "x.swapaxes(-1, -2) @ dy",
            "Each sequence still has a dw of its own; w is one and the same for all, so sum over the batch.",
        ),
        Mistake(
            "dw-last-sequence-only",
            "rows.T @ drows",
            "x[-1].T @ dy[-1]",
            "dw holds what the last sequence gave; the others' share has been overwritten (= for +=).",
        ),
        Mistake(
            "dw-first-sequence-only",
            "rows.T @ drows",
            "x[0].T @ dy[0]",
            "dw holds the first sequence's share only; those of all sequences must be summed.",
        ),
        Mistake(
            "dw-transposed",
            "rows.T @ drows",
            "drows.T @ rows",
            "This is dw transposed, (d_out, d_in): w is stored as (d_in, d_out), and its gradient has the same shape.",
        ),
        Mistake(
            "db-mean",
            "drows.sum(axis=0)",
            "drows.mean(axis=0)",
            "db is the mean of dy over the positions; b was added at every one of them, so it must be the sum.",
        ),
        Mistake(
            "db-over-batch-only",
            "drows.sum(axis=0)",
            "dy.sum(axis=0)",
            "db is summed over the batch only; b is the same at every position, so sum over T as well.",
        ),
        Mistake(
            "db-over-outputs",
            "drows.sum(axis=0)",
            "drows.sum(axis=1)",
            "db is summed over the outputs; sum over the positions and keep one number for each output.",
        ),
        Mistake(
            "db-total",
            "drows.sum(axis=0)",
            "np.full(dy.shape[-1], dy.sum())",
            "dy is summed over everything; each b_j needs the sum of its own column.",
        ),
    ),
)
def linear_backward(x: Array, w: Array, dy: Array) -> tuple[Array, Array, Array]:
    rows = x.reshape(-1, x.shape[-1])
    drows = dy.reshape(-1, dy.shape[-1])
    dx = dy @ w.T
    dw = rows.T @ drows
    db = drows.sum(axis=0)
    return dx, dw, db


def _low_rank(draw: Draw) -> tuple[Any, ...]:
    n, d_in, rank, d_out = draw.sizes(4)
    down, up = draw.normal(d_in, rank), draw.normal(rank, d_out)
    return draw.normal(n, d_in), down, up, draw.gradient(n, d_out)


@exercise(
    title="A low-rank linear map, backward",
    statement="""
        y = (x down) up: a matrix of rank r, kept as two factors. Given dy, return the gradients of x and of both
        factors. (The values of attention are such a pair: W_V brings them down, W_O up again.)

        x, dx: (N, d_in); down, ddown: (d_in, r); up, dup: (r, d_out); dy: (N, d_out).
    """,
    outputs="dx, ddown, dup",
    inputs=_low_rank,
    hint="Name the middle: hidden = x down, y = hidden up. Two matrix products, so go back through the second first.",
    mistakes=(
        Mistake(
            "up-reshaped",
            "up.T",
            "up.reshape(up.shape[::-1])",
            "`up` is reshaped where it must be transposed; that scrambles dhidden, and all that comes of it.",
        ),
        Mistake(
            "down-reshaped",
            "down.T",
            "down.reshape(down.shape[::-1])",
            "`down` is reshaped where it must be transposed.",
        ),
        Mistake(
            "ddown-not-through-up",
            "x.T @ dhidden",
            "x.T @ dy",
            "ddown uses dy; the gradient must first go back through `up` to hidden.",
        ),
        Mistake(
            "dup-of-x",
            "hidden.T @ dy",
            "x.T @ dy",
            "dup uses x; what entered `up` is hidden = x down.",
        ),
        Mistake(
            "ddown-halved",
            "x.T @ dhidden",
            "x.T @ dhidden / 2.0",
            "ddown is halved, as if the two factors shared one gradient; each has its full derivative.",
        ),
        Mistake(
            "ddown-mean",
            "x.T @ dhidden",
            "x.T @ dhidden / len(x)",
            "ddown is divided by the number of rows; their gradients add up.",
        ),
        Mistake(
            "dup-mean",
            "hidden.T @ dy",
            "hidden.T @ dy / len(x)",
            "dup is divided by the number of rows; their gradients add up.",
        ),
    ),
)
def low_rank_linear_backward(x: Array, down: Array, up: Array, dy: Array) -> tuple[Array, Array, Array]:
    hidden = x @ down
    dhidden = dy @ up.T
    dup = hidden.T @ dy
    dx = dhidden @ down.T
    ddown = x.T @ dhidden
    return dx, ddown, dup
