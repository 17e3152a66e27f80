"""Scaled dot-product attention. Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.

    output = softmax(q kᵀ · scale) v,       scale = 1/√d_k

Row i of q asks, row j of k answers: scores_ij = scale · sum_c q_ic k_jc says how well they match. Softmax turns the
scores of one query into weights over the keys, and the output is the mean of the values under these weights:

    scores  = scale · q kᵀ            (T_q, T_k)
    weights = softmax(scores)         (T_q, T_k), each row sums to one
    kept    = weights ⊙ m             (T_q, T_k), m the factors of the dropout, all 1 when there is none
    output  = kept v                  (T_q, d_v)

Why the scale: if the entries of q and k are independent, with mean 0 and variance 1, their product summed over d_k
terms has variance d_k. Without 1/√d_k the softmax saturates, and its gradient becomes tiny.

Backward takes these lines in reverse. Write dX for the gradient of the loss with respect to X. A product C = A B,
C_ij = sum_m A_im B_mj, has dA_im = sum_j dC_ij B_mj, which is dA = dC Bᵀ, and likewise dB = Aᵀ dC. So

    dkept       = doutput vᵀ                                          (T_q, T_k)
    dv          = keptᵀ doutput                                       (T_k, d_v)
    dweights    = dkept ⊙ m                                           (T_q, T_k), see dropout.py
    dscores_ij  = weights_ij (dweights_ij - sum_l dweights_il weights_il)   the softmax, row by row; see softmax.py
    dq          = scale · dscores k                                   (T_q, d_k)
    dk          = scale · dscoresᵀ q                                  (T_k, d_k)

A value gets gradient from every query that looked at it: keptᵀ doutput sums over the queries, and so does dscoresᵀ q.

A bias, such as a learned score for each distance, is added to the scores: scores + bias. A sum passes its gradient on
to both, so dbias = dscores, summed over every axis along which one number of the bias served several scores.

Masks need no separate line in backward. A masked pair has the score -inf and so the weight 0, hence dscores 0:
nothing flows through it, neither forward nor backward. A query that may attend to nothing has only zero weights (the
softmax returns zeros there, not NaN): it outputs zeros and passes no gradient.
"""

from __future__ import annotations

import math

from ..arrays.backend import Array, Pullback, Rng, library
from ..arrays.declared import inside, op
from ..arrays.float16 import in_float32
from ..arrays.masks import kept_causal_mask as causal_mask
from .dropout import dropout as checked_dropout
from .softmax import softmax as checked_softmax

drop, softmax = inside(checked_dropout), inside(checked_softmax)


@op(
    "q: (..., T_q, d_k); k: (..., T_k, d_k); v: (..., T_k, d_v); output: (..., T_q, d_v); "
    "mask: booleans that broadcast to (..., T_q, T_k); 0 <= dropout < 1; bias: broadcasts to (..., T_q, T_k)"
)
@in_float32
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
    bias: Array | None = None,
) -> tuple[Array, Pullback]:
    """Each query takes a weighted mean of the values: softmax(q kᵀ · scale) v.

    mask: True means "may attend". For arrays with heads, (B, H, T, d), a mask for each sequence needs an axis for the
    heads, (B, 1, T_q, T_k).
    causal: a query sees no key after its own position. Where T_q ≠ T_k the queries are the last T_q of the T_k
    positions, as when a decoder goes on from a cache (were T_q larger, the first queries would see nothing).
    scale: 1/√d_k unless given; any number, and with 0 each query takes the plain mean of what it sees.
    dropout: the rate at which weights are dropped, after the softmax; without an rng nothing is dropped.
    bias: added to the scaled scores.
    backward(doutput) returns (dq, dk, dv), or (dq, dk, dv, dbias) where there is a bias.
    """
    xp = library(type(q))
    t_q, d_k = q.shape[-2:]
    t_k = k.shape[-2]
    factor = 1.0 / math.sqrt(d_k) if scale is None else scale
    allowed = mask
    if causal:
        seen = causal_mask(t_q, t_k, xp.__name__)
        allowed = seen if mask is None else mask & seen

    scores = (q @ k.swapaxes(-1, -2)) * factor
    biased = scores if bias is None else scores + bias
    visible = biased if allowed is None else xp.where(allowed, biased, -xp.inf)
    weights, softmax_backward = softmax(visible)
    kept, dropout_backward = drop(weights, dropout, rng)
    output = kept @ v

    def backward(doutput: Array) -> tuple[Array, ...]:
        dkept = doutput @ v.swapaxes(-1, -2)
        dv = kept.swapaxes(-1, -2) @ doutput
        dweights = dropout_backward(dkept)
        dscores = softmax_backward(dweights)  # zero wherever the mask hid the score
        dq = (dscores @ k) * factor
        dk = (dscores.swapaxes(-1, -2) @ q) * factor
        if bias is None:
            return dq, dk, dv
        dbias = _summed_to(dscores, bias.shape)
        return dq, dk, dv, dbias

    return output, backward


def _summed_to(dscores: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of this shape that was broadcast to that of the scores."""
    missing = dscores.ndim - len(shape)
    repeated = [missing + axis for axis, size in enumerate(shape) if size == 1]
    return dscores.sum(axis=(*range(missing), *repeated), keepdims=True).reshape(shape)
