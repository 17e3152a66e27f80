"""Scaled dot-product attention: forward, backward, and backward under a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _forward(draw: Draw) -> tuple[Any, ...]:
    batch, t_q, t_k, d_k, d_v = draw.sizes(5)
    q, k = draw.queries_and_keys((batch,), t_q, t_k, d_k)
    return q, k, draw.normal(batch, t_k, d_v)


_SOFTMAX = """exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)"""


@exercise(
    title="Attention",
    statement="""
        Each query takes a weighted mean of the values: output = weights v, weights = softmax(q kᵀ / √d_k), the softmax
        over the keys. Return both.

        q: (B, T_q, d_k); k: (B, T_k, d_k); v: (B, T_k, d_v); output: (B, T_q, d_v); weights: (B, T_q, T_k).
        Some scores are near 800, where exp overflows.
    """,
    outputs="output, weights",
    inputs=_forward,
    hint="k.swapaxes(-1, -2) transposes the keys of every sequence; @ then multiplies sequence by sequence.",
    mistakes=(
        Mistake(
            "no-scale",
            " / np.sqrt(q.shape[-1])",
            "",
            "The scores are not divided by √d_k.",
        ),
        Mistake(
            "scale-without-root",
            "np.sqrt(q.shape[-1])",
            "q.shape[-1]",
            "The scores are divided by d_k, not by its square root.",
        ),
        Mistake(
            "multiplied-by-root",
            "/ np.sqrt(q.shape[-1])",
            "* np.sqrt(q.shape[-1])",
            "The scores are multiplied by √d_k; they must be divided by it.",
        ),
        Mistake(
            "scale-by-length",
            "np.sqrt(q.shape[-1])",
            "np.sqrt(k.shape[-2])",
            "The scores are divided by √T_k, the root of the length; it must be that of the width d_k.",
        ),
        Mistake(
            "scale-by-value-width",
            "np.sqrt(q.shape[-1])",
            "np.sqrt(v.shape[-1])",
            "The scores are divided by √d_v; a score is a sum over d_k products, so it must be √d_k.",
        ),
        Mistake(
            "scale-after-softmax",
            _SOFTMAX,
            """scores = scores * np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True) / np.sqrt(q.shape[-1])""",
            "√d_k divides the weights after softmax, so they do not sum to one; it must divide the scores before.",
        ),
        Mistake(
            "softmax-over-queries",
            _SOFTMAX,
            """exponentials = np.exp(scores - scores.max(axis=-2, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-2, keepdims=True)""",
            "The softmax runs over the queries (axis -2); the weights of one query must sum to one over the keys.",
        ),
        Mistake(
            "no-softmax",
            _SOFTMAX,
            "weights = scores",
            "The scores themselves are used as weights: the softmax is missing.",
        ),
        Mistake(
            "keys-reshaped",
            "k.swapaxes(-1, -2)",
            "k.reshape(len(k), k.shape[2], k.shape[1])",
            "The keys are reshaped to (d_k, T_k), which scrambles them; they must be transposed.",
        ),
        Mistake(
            "swapped",
            "return output, weights",
            "return weights, output",
            "output and weights are returned in the wrong order.",
        ),
        Mistake(
            "no-shift",
            "scores - scores.max(axis=-1, keepdims=True)",
            "scores",
            "exp overflows where a score is near 800: subtract the largest score of each row first.",
        ),
    ),
)
def attention_forward(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    output = weights @ v
    return output, weights


def _backward(draw: Draw) -> tuple[Any, ...]:
    q, k, v = _forward(draw)
    output, weights = attention_forward(q, k, v)
    return q, k, v, weights, draw.gradient(*output.shape)


_DSCORES = "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))"

# Of both backward passes below: their lines are the same.
_IN_BACKWARD = (
    Mistake(
        "dq-not-scaled",
        "dscores @ k * scale",
        "dscores @ k",
        "dq lacks the factor 1/√d_k by which the scores were scaled.",
    ),
    Mistake(
        "dk-not-scaled",
        "@ q * scale",
        "@ q",
        "dk lacks the factor 1/√d_k by which the scores were scaled.",
    ),
    Mistake(
        "scale-by-length",
        "np.sqrt(q.shape[-1])",
        "np.sqrt(k.shape[-2])",
        "You scaled with √T_k, the root of the length; it must be that of the width d_k.",
    ),
    Mistake(
        "scale-by-value-width",
        "np.sqrt(q.shape[-1])",
        "np.sqrt(v.shape[-1])",
        "You scaled with √d_v; a score is a sum over d_k products, so it must be √d_k.",
    ),
    Mistake(
        "softmax-no-sum",
        _DSCORES,
        "weights * dweights",
        "In the backward of softmax the term -Σ_l dweights_il weights_il is missing. See it: each row of dscores must "
        "sum to 0.",
    ),
    Mistake(
        "softmax-diagonal-only",
        _DSCORES,
        "dweights * weights * (1.0 - weights)",
        "Softmax's Jacobian is taken to be diagonal, p (1 - p), as a sigmoid's is.",
    ),
    Mistake(
        "softmax-plain-mean",
        "(dweights * weights).sum(",
        "dweights.mean(",
        "The plain mean of dweights is subtracted; it must be the mean weighted by the weights.",
    ),
    Mistake(
        "softmax-plain-sum",
        "(dweights * weights).sum(",
        "dweights.sum(",
        "The plain sum of dweights is subtracted; each must be weighted, Σ_l dweights_il weights_il.",
    ),
    Mistake(
        "softmax-weighted-mean-divided",
        "(dweights * weights).sum(",
        "(dweights * weights).mean(",
        "Σ_l dweights_il weights_il is divided by T_k once more: the weights already sum to one.",
    ),
    Mistake(
        "softmax-plus-for-minus",
        "(dweights - (",
        "(dweights + (",
        "In the backward of softmax the sum is added to dweights, but it must be subtracted.",
    ),
    Mistake(
        "softmax-over-queries",
        "(dweights * weights).sum(axis=-1,",
        "(dweights * weights).sum(axis=-2,",
        "The sum in the backward of softmax runs over the queries; it must run over the keys, where the weights sum "
        "to one.",
    ),
    Mistake(
        "softmax-sum-over-everything",
        "(dweights * weights).sum(axis=-1, keepdims=True)",
        "(dweights * weights).sum()",
        "The sum in the backward of softmax runs over the whole array, so the rows get mixed; each row has its own.",
    ),
)


@exercise(
    title="Attention, backward",
    statement="""
        output = weights v, with weights = softmax(q kᵀ / √d_k). Given doutput, return the gradients of q, k and v. The
        weights of the forward pass are given.

        q, dq: (B, T_q, d_k); k, dk: (B, T_k, d_k); v, dv: (B, T_k, d_v); weights: (B, T_q, T_k);
        doutput: (B, T_q, d_v).
    """,
    outputs="dq, dk, dv",
    inputs=_backward,
    hint="""
        Go back line by line: output = weights v gives dweights and dv; softmax takes dweights to dscores, row by row;
        scores = q kᵀ / √d_k gives dq and dk. Watch the shapes: each line has one product that fits.
    """,
    mistakes=(
        *_IN_BACKWARD,
        Mistake(
            "no-scale",
            "1.0 / np.sqrt(q.shape[-1])",
            "1.0",
            "The factor 1/√d_k by which the scores were scaled is missing in dq and in dk.",
        ),
        Mistake(
            "scaled-twice",
            "1.0 / np.sqrt(q.shape[-1])",
            "1.0 / q.shape[-1]",
            "1/√d_k is applied twice: put it into dscores, or into dq and dk, but not into both.",
        ),
        Mistake(
            "scaled-inversely",
            "1.0 / np.sqrt(q.shape[-1])",
            "np.sqrt(q.shape[-1])",
            "You multiplied by √d_k; the scores were divided by it, and so are their gradients.",
        ),
        Mistake(
            "no-softmax",
            _DSCORES,
            "dweights",
            "dweights is taken for dscores: the way back through softmax is missing.",
        ),
        Mistake(
            "dscores-reshaped",
            "dscores.swapaxes(-1, -2) @ q",
            "dscores.reshape(len(k), k.shape[1], q.shape[1]) @ q",
            "dscores is brought to the shape (T_k, T_q) by a reshape, which scrambles it; dk needs its transpose.",
        ),
        Mistake(
            "weights-reshaped",
            "weights.swapaxes(-1, -2)",
            "weights.reshape(len(k), k.shape[1], q.shape[1])",
            "The weights are brought to the shape (T_k, T_q) by a reshape, which scrambles them; dv needs their "
            "transpose.",
        ),
        Mistake(
            "values-reshaped",
            "v.swapaxes(-1, -2)",
            "v.reshape(len(v), v.shape[2], v.shape[1])",
            "v is reshaped where dweights = doutput vᵀ needs it transposed; dq and dk are scrambled by it.",
        ),
        Mistake(
            "dv-of-dweights",
            "weights.swapaxes(-1, -2) @ doutput",
            "dweights.swapaxes(-1, -2) @ doutput",
            "dv uses dweights; the values were averaged under the weights themselves.",
        ),
        Mistake(
            "summed-over-batch",
            "return dq, dk, dv",
            "return dq.sum(axis=0), dk.sum(axis=0), dv.sum(axis=0)",
            "You summed over the batch: q, k and v are not shared by the sequences, so each keeps a gradient of "
            "its own.",
        ),
        Mistake(
            "dq-and-dk-mixed-up",
            "return dq, dk, dv",
            "return dk, dq, dv",
            "dq and dk are returned in the wrong order.",
        ),
    ),
)
def attention_backward(q: Array, k: Array, v: Array, weights: Array, doutput: Array) -> tuple[Array, Array, Array]:
    scale = 1.0 / np.sqrt(q.shape[-1])
    dweights = doutput @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ doutput
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dq = dscores @ k * scale
    dk = dscores.swapaxes(-1, -2) @ q * scale
    return dq, dk, dv


def _masked(draw: Draw) -> tuple[Any, ...]:
    t_q, t_k, d_k, d_v = draw.sizes(4, 3, 7)
    q, k = draw.queries_and_keys((), t_q, t_k, d_k)
    return q, k, draw.normal(t_k, d_v), draw.mask(t_q, t_k), draw.gradient(t_q, d_v)


@exercise(
    title="Attention under a mask, backward",
    statement="""
        output = softmax(q kᵀ / √d_k) v, the softmax over the keys that the mask allows. Given doutput, return the
        gradients of q, k and v; this time compute the weights yourself. One query may attend to nothing: its weights
        are zeros, so it outputs zeros and gives no gradient, and above all no NaN.

        q, dq: (T_q, d_k); k, dk: (T_k, d_k); v, dv: (T_k, d_v); mask: (T_q, T_k) booleans, True for "may attend";
        doutput: (T_q, d_v). Some scores are near 800, where exp overflows.
    """,
    outputs="dq, dk, dv",
    inputs=_masked,
    hint="""
        With the weights of masked_softmax_forward the rest is attention_backward: a hidden pair has the weight 0, so
        its dscore is 0 by itself.
    """,
    mistakes=(
        *_IN_BACKWARD,
        Mistake(
            "mask-ignored",
            "np.where(mask, q @ k.T * scale, -np.inf)",
            "q @ k.T * scale",
            "The mask is not used.",
        ),
        Mistake(
            "mask-inverted",
            "np.where(mask, q @ k.T * scale, -np.inf)",
            "np.where(mask, -np.inf, q @ k.T * scale)",
            'The mask is used the wrong way round: True means "may attend".',
        ),
        Mistake(
            "masked-score-zero",
            "-np.inf)\n    largest",
            "0.0)\n    largest",
            "A hidden key has the score 0, and exp(0) = 1 is not nothing: it needs -inf.",
        ),
        Mistake(
            "finite-mask",
            "-np.inf)\n    largest",
            "-1e9)\n    largest",
            "With a large negative number for -inf, the query that may attend to nothing attends to every key alike, "
            "and dv gets a share from it.",
        ),
        Mistake(
            "nan-in-empty-row",
            "np.where(largest == -np.inf, 0.0, largest)",
            "largest",
            "For the query that may attend to nothing, -inf - (-inf) is NaN, and through dk and dv the NaN spreads to "
            "all that comes before.",
        ),
        Mistake(
            "no-scale-in-backward",
            "dq = dscores @ k * scale\n    dk = dscores.T @ q * scale",
            "dq = dscores @ k\n    dk = dscores.T @ q",
            "dq and dk lack the factor 1/√d_k by which the scores were scaled.",
        ),
        Mistake(
            "scaled-twice",
            "dscores = weights * (",
            "dscores = scale * weights * (",
            "1/√d_k is applied twice: put it into dscores, or into dq and dk, but not into both.",
        ),
        Mistake(
            "no-softmax",
            _DSCORES,
            "dweights * mask",
            "dweights is taken for dscores: the way back through softmax is missing.",
        ),
        Mistake(
            "no-shift",
            "scores - np.where(largest == -np.inf, 0.0, largest)",
            "scores",
            "exp overflows where a score is near 800: subtract the largest score of each row first.",
        ),
    ),
)
def masked_attention_backward(q: Array, k: Array, v: Array, mask: Array, doutput: Array) -> tuple[Array, Array, Array]:
    scale = 1.0 / np.sqrt(q.shape[-1])
    scores = np.where(mask, q @ k.T * scale, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(largest == -np.inf, 0.0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0.0, 1.0, total)

    dweights = doutput @ v.T
    dv = weights.T @ doutput
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dq = dscores @ k * scale
    dk = dscores.T @ q * scale
    return dq, dk, dv
