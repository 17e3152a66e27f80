"""Worksheets with a softmax. Their scores are whole multiples of ln 2, so e^score is a power of two. They are chosen to
make the weights short decimals: 2, 4, 4 out of 10 are 0.2, 0.4, 0.4. Nothing has to be rounded.
"""

from __future__ import annotations

import numpy as np

from ....core import ops
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw, queries_and_keys, score_rows
from .sheet import LN2, Given, Run, kind


@kind(3, 5)
def softmax_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """Softmax, backward.

    y is the softmax of x, row by row. ⊙ multiplies entry by entry.

    Scores are multiples of ln 2; the boxes hold the factor. For example e^(3 ln 2) = 2³ = 8.

    First subtract the smallest score of each row: then E is whole, and the weights do not change. (A program subtracts
    the largest, to prevent overflow.)

    E = e^(x − smallest of the row) | np.exp(x - row_min(x))
    total = sum of the row of E | row_sum(E)
    y = E / total | E / total | softmax.y
    r = row sums of dy ⊙ y | row_sum(dy * y) | | moves y * (1 + t)
    dx = y ⊙ (dy − r) | y * (dy - r) | softmax.dx
    """
    x, dy = score_rows(draw, size - 1, size, 10) * LN2, draw.matrix(-5, 6, size - 1, size)
    return [Given("x", x, "ln 2"), Given("dy", dy)], lambda: (*ops.softmax(x), dy)


@kind(3, 5)
def cross_entropy_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """Cross-entropy, backward.

    The target is the number of the wanted column, counted from 0 to {size}. The row to ignore counts neither in the
    loss nor in N; its losses and gradients are 0.

    Scores are multiples of ln 2; the boxes hold the factor. For example e^(3 ln 2) = 2³ = 8.

    First subtract the smallest score of each row: then E is whole, and the weights do not change. (A program subtracts
    the largest, to prevent overflow.)

    −ln p for p = 0.05: 2.996, 0.1: 2.303, 0.2: 1.609, 0.25: 1.386, 0.4: 0.916, 0.5: 0.693, 0.8: 0.223. Give the losses
    to three decimals.

    E = e^(logits − smallest of the row) | np.exp(logits - row_min(logits))
    total = sum of the row of E | row_sum(E)
    p = E / total | E / total | softmax.y
    losses = −ln p[target], or 0 | np.where(targets < 0, 0.0, -np.log(np.take_along_axis(p, np.maximum(targets, 0), 1)))
    loss = sum of losses / N | losses.sum() / (targets >= 0).sum() | cross_entropy.loss
    T = 1 at the target, 0 elsewhere | 1.0 * (targets == np.arange(p.shape[1]))
    dlogits = (p − T) / N, or 0 | np.where(targets < 0, 0.0, p - T) / (targets >= 0).sum() | cross_entropy.dlogits
    """
    width, ignore = size + 1, -100
    logits = score_rows(draw, 3, width, 20) * LN2
    targets = np.array([draw.choose(range(width)) for _ in range(3)])
    targets[draw.choose(range(3))] = ignore

    def run() -> tuple[Array, Pullback, float]:
        ops.softmax(logits)
        return *ops.cross_entropy(logits, targets, ignore), 1.0

    column = Given("targets", targets[:, None], ignored=ignore, note="the wanted column")
    return [Given("logits", logits, "ln 2"), column], run


@kind(3, 5)
def attention_forward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """Attention, forward.

    {less} queries look at {size} keys, with d_k = 4 and so 1/√d_k = ½. The scores are also multiplied by ln 2; this
    factor is printed beside the boxes. For example e^(3 ln 2) = 2³ = 8.

    First subtract the smallest score of each row: then E is whole, and the weights do not change. (A program subtracts
    the largest, to prevent overflow.)

    scores = ½ q kᵀ · ln 2 | 0.5 * LN2 * (q @ k.T) | attention.scores | unit ln 2
    E = e^(scores − smallest of the row) | np.exp(scores - row_min(scores))
    total = sum of the row of E | row_sum(E)
    weights = E / total | E / total | softmax.y
    output = weights v | weights @ v | attention.output
    """
    (q, k), v = queries_and_keys(draw, size - 1, size), draw.matrix(-4, 5, size, 2)
    given = [Given("q", q), Given("k", k), Given("v", v)]
    return given, lambda: (*ops.attention(q, k, v, scale=0.5 * LN2), np.ones((size - 1, 2)))


@kind(3, 5)
def attention_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """Attention, backward.

    {less} queries look at {size} keys, with d_k = 4 and so 1/√d_k = ½. The scores are also multiplied by ln 2; this
    factor is printed beside the boxes. For example e^(3 ln 2) = 2³ = 8.

    First subtract the smallest score of each row: then E is whole, and the weights do not change. (A program subtracts
    the largest, to prevent overflow.)

    dX is the gradient of the loss with respect to X. ⊙ multiplies entry by entry.

    scores = ½ q kᵀ · ln 2 | 0.5 * LN2 * (q @ k.T) | attention.scores | unit ln 2
    E = e^(scores − smallest of the row) | np.exp(scores - row_min(scores))
    total = sum of the row of E | row_sum(E)
    weights = E / total | E / total | softmax.y
    output = weights v | weights @ v | attention.output
    dv = weightsᵀ doutput | weights.T @ doutput | attention.dv
    dweights = doutput vᵀ | doutput @ v.T | attention.dweights
    r = row sums of dweights ⊙ weights | row_sum(dweights * weights) | | moves weights * (1 + t)
    dscores = weights ⊙ (dweights − r) | weights * (dweights - r) | attention.dscores
    dq = ½ dscores k · ln 2 | 0.5 * LN2 * (dscores @ k) | attention.dq | unit ln 2
    dk = ½ dscoresᵀ q · ln 2 | 0.5 * LN2 * (dscores.T @ q) | attention.dk | unit ln 2
    """
    (q, k), v = queries_and_keys(draw, size - 1, size), draw.matrix(-4, 5, size, 2)
    doutput = draw.matrix(-3, 4, size - 1, 2)
    given = [Given("q", q), Given("k", k), Given("v", v), Given("doutput", doutput)]
    return given, lambda: (*ops.attention(q, k, v, scale=0.5 * LN2), doutput)
