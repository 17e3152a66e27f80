"""Worksheets with a softmax. Their scores are whole multiples of ln 2, so e^score is a power of two. They are chosen to
make the weights short decimals: 2, 4, 4 out of 10 are 0.2, 0.4, 0.4. Nothing has to be rounded.
"""

from __future__ import annotations

import math

import numpy as np

from ....core import ops
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw, queries_and_keys, score_rows
from .sheet import LN2, Given, Step, Task

_POWERS_OF_TWO = "Scores are multiples of ln 2; the boxes hold the factor. For example e^(3 ln 2) = 2³ = 8."
_SHIFT = (
    "First subtract the smallest score of each row: then E is whole, and the weights do not change. "
    "(A program subtracts the largest, to prevent overflow.)"
)


def _softmax_steps(scores: str, weights: str) -> tuple[Step, ...]:
    """E, the sums of its rows, and the weights."""
    return (
        Step(
            f"E = e^({scores} − smallest of the row)",
            lambda s: np.exp(s - s.min(axis=-1, keepdims=True)),
            lambda r: r["softmax.exponentials"] / r["softmax.exponentials"].min(axis=-1, keepdims=True),
            of=(scores,),
        ),
        Step(
            "total = sum of the row of E",
            lambda E: E.sum(axis=-1, keepdims=True),
            lambda r: r["softmax.total"] / r["softmax.exponentials"].min(axis=-1, keepdims=True),
        ),
        Step(f"{weights} = E / total", lambda E, total: E / total, "softmax.y"),
    )


def row_sum_step(weights: str) -> Step:
    """r, the weighted mean of the gradient: the derivative of L when a whole row of weights grows by a factor 1 + t."""
    return Step(
        f"r = row sums of d{weights} ⊙ {weights}",
        lambda dw, w: (dw * w).sum(axis=-1, keepdims=True),
        moves=(weights, lambda w, t: w * (1.0 + t)),
        of=(f"d{weights}", weights),
    )


def softmax_backward(draw: Draw, size: int) -> Task:
    """y = softmax(x) by rows, and dx. x: (size - 1, size)."""
    x = score_rows(draw, size - 1, size, 10) * LN2
    dy = draw.matrix(-5, 6, size - 1, size)
    return Task(
        title="Softmax, backward",
        notes=("y is the softmax of x, row by row. ⊙ multiplies entry by entry.", _POWERS_OF_TWO, _SHIFT),
        given=(Given("x", x, "ln 2"), Given("dy", dy)),
        steps=(
            *_softmax_steps("x", "y"),
            row_sum_step("y"),
            Step("dx = y ⊙ (dy − r)", lambda y, dy, r: y * (dy - r), "softmax.dx"),
        ),
        output="y",
        run=lambda: (*ops.softmax(x), dy),
    )


def cross_entropy_backward(draw: Draw, size: int) -> Task:
    """The mean loss over two of three positions, and dlogits. logits: (3, size + 1)."""
    width, ignore = size + 1, -100
    logits = score_rows(draw, 3, width, 20) * LN2
    targets = np.array([draw.choose(range(width)) for _ in range(3)])
    targets[draw.choose(range(3))] = ignore
    counted = targets != ignore
    hit = np.eye(width)[np.where(counted, targets, 0)] * counted[:, None]
    probabilities = (0.05, 0.1, 0.2, 0.25, 0.4, 0.5, 0.8)
    logarithms = ", ".join(f"{p}: {-math.log(p):.3f}" for p in probabilities)

    def losses(p: np.ndarray) -> np.ndarray:
        return np.where(counted, -np.log((p * hit).sum(axis=-1) + ~counted), 0.0)[:, None]

    def run() -> tuple[Array, Pullback, float]:
        ops.softmax(logits)
        return *ops.cross_entropy(logits, targets, ignore), 1.0

    return Task(
        title="Cross-entropy, backward",
        notes=(
            f"The target is the number of the wanted column, counted from 0 to {width - 1}. The row to ignore counts "
            "neither in the loss nor in N; its losses and gradients are 0.",
            _POWERS_OF_TWO,
            _SHIFT,
            f"−ln p for p = {logarithms}. Give the losses to three decimals.",
        ),
        given=(
            Given("logits", logits, "ln 2"),
            Given("targets", targets[:, None], ignored=ignore, note="the wanted column"),
        ),
        steps=(
            *_softmax_steps("logits", "p"),
            Step(
                "losses = −ln p[target], or 0",
                losses,
                lambda r: np.where(counted, r["cross_entropy.loss_at"], 0.0)[:, None],
            ),
            Step("loss = sum of losses / N", lambda losses: losses.sum() / counted.sum(), "cross_entropy.loss"),
            Step(
                "T = 1 at the target, 0 elsewhere", lambda: hit, lambda r: r["cross_entropy.target"] * counted[:, None]
            ),
            Step(
                "dlogits = (p − T) / N, or 0",
                lambda p, T: np.where(counted[:, None], p - T, 0.0) / counted.sum(),
                "cross_entropy.dlogits",
            ),
        ),
        output="loss",
        run=run,
    )


def _attention(draw: Draw, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[Step, ...]]:
    """q, k, v, the notes on them, and the forward steps. q: (size - 1, 4); k: (size, 4); v: (size, 2)."""
    q, k = queries_and_keys(draw, size - 1, size)
    v = draw.matrix(-4, 5, size, 2)
    notes = (
        f"{size - 1} queries look at {size} keys, with d_k = 4 and so 1/√d_k = ½. The scores are also multiplied by "
        "ln 2; this factor is printed beside the boxes. For example e^(3 ln 2) = 2³ = 8.",
        _SHIFT,
    )
    steps = (
        Step("scores = ½ q kᵀ · ln 2", lambda q, k: 0.5 * LN2 * (q @ k.T), "attention.scores", unit="ln 2"),
        *_softmax_steps("scores", "weights"),
        Step("output = weights v", lambda weights, v: weights @ v, "attention.output"),
    )
    return q, k, v, notes, steps


def attention_forward(draw: Draw, size: int) -> Task:
    """softmax(½ ln 2 · q kᵀ) v."""
    q, k, v, notes, steps = _attention(draw, size)
    return Task(
        title="Attention, forward",
        notes=notes,
        given=(Given("q", q), Given("k", k), Given("v", v)),
        steps=steps,
        output="output",
        run=lambda: (*ops.attention(q, k, v, scale=0.5 * LN2), np.ones((size - 1, 2))),
    )


def attention_backward(draw: Draw, size: int) -> Task:
    """Attention forward, then dv, dweights, dscores, dq and dk."""
    q, k, v, notes, steps = _attention(draw, size)
    doutput = draw.matrix(-3, 4, size - 1, 2)
    return Task(
        title="Attention, backward",
        notes=(*notes, "dX is the gradient of the loss with respect to X. ⊙ multiplies entry by entry."),
        given=(Given("q", q), Given("k", k), Given("v", v), Given("doutput", doutput)),
        steps=(
            *steps,
            Step("dv = weightsᵀ doutput", lambda weights, doutput: weights.T @ doutput, "attention.dv"),
            Step("dweights = doutput vᵀ", lambda doutput, v: doutput @ v.T, "attention.dweights"),
            row_sum_step("weights"),
            Step(
                "dscores = weights ⊙ (dweights − r)",
                lambda weights, dweights, r: weights * (dweights - r),
                "attention.dscores",
            ),
            Step("dq = ½ dscores k · ln 2", lambda dscores, k: 0.5 * LN2 * (dscores @ k), "attention.dq", unit="ln 2"),
            Step(
                "dk = ½ dscoresᵀ q · ln 2", lambda dscores, q: 0.5 * LN2 * (dscores.T @ q), "attention.dk", unit="ln 2"
            ),
        ),
        output="output",
        run=lambda: (*ops.attention(q, k, v, scale=0.5 * LN2), doutput),
    )
