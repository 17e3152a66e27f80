"""Additive attention. Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate".

The first attention: a small network scores how well a state of a recurrent decoder matches each state of the encoder:

    s_ijc     = q_ic + k_jc,     t_ijc = tanh(s_ijc)
    scores_ij = sum_c w_c t_ijc                         (T_q, T_k)
    weights   = softmax(scores)
    output    = weights v

q and k are linear maps of the decoder's and the encoder's states (equation 6 and appendix A.1.2). Luong et al. 2015
multiply instead, scores_ij = q_i · k_j. That is attention.py with scale = 1, and needs one matrix product in place of
T_q · T_k · A evaluations of tanh.

Backward. The softmax and the values are those of attention.py. Each s_ij is a vector:

    dt_ijc = dscores_ij w_c             ds_ijc = dt_ijc (1 - t_ijc²)
    dw_c   = sum_ij dscores_ij t_ijc
    dq_ic  = sum_j ds_ijc               dk_jc  = sum_i ds_ijc

because query i is a term of every s_ij in row i, and key j of every s_ij in column j.

A layer between a recurrent decoder and a recurrent encoder takes such a mean, the context c_i, of the encoder's states:

    additive         scores_ij = w · tanh(x_i W_q + m_j W_k)      Bahdanau et al. 2015, appendix A.1.2
    multiplicative   scores_ij = x_i · (m_j W_k)                  Luong et al. 2015, equation 8, "general"
    y_i = tanh((c_i, x_i) W_c)                                    Luong et al. 2015, equation 5

Each decoder state x_i asks once it is computed, as Luong has it; Bahdanau asks with x_{i-1} and feeds c_i into the
cell. So all queries of a sequence are one product.
"""

from __future__ import annotations

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_visible
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers.linear import Linear
from ...core.layers.module import Module, Parameter, generator
from ...core.layers.part_cost import Cost
from ...core.ops.softmax import softmax


@op(
    "q: (..., T_q, A); k: (..., T_k, A); v: (..., T_k, d_v); w: (A,); output: (..., T_q, d_v); "
    "mask: booleans that broadcast to (..., T_q, T_k)"
)
@in_float32
def additive_attention(q: Array, k: Array, v: Array, w: Array, mask: Array | None = None) -> tuple[Array, Pullback]:
    """Each query takes a weighted mean of the values, with the scores sum_c w_c tanh(q_ic + k_jc).

    mask: True means "may attend". backward(doutput) returns (dq, dk, dv, dw).
    """
    xp = array_module(q)

    match = xp.tanh(q[..., :, None, :] + k[..., None, :, :])  # (..., T_q, T_k, A)
    scores = match @ w
    visible = scores if mask is None else xp.where(mask, scores, -xp.inf)
    weights, softmax_backward = softmax(visible)
    output = weights @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array, Array]:
        dweights = doutput @ v.swapaxes(-1, -2)
        dv = weights.swapaxes(-1, -2) @ doutput
        dscores = softmax_backward(dweights)  # zero wherever the mask hid the score
        dw = (dscores[..., None] * match).sum(axis=tuple(range(dscores.ndim)))
        dmatch = dscores[..., None] * w
        of_sums = dmatch * (1.0 - match * match)
        dq = of_sums.sum(axis=-2)
        dk = of_sums.sum(axis=-3)
        return dq, dk, dv, dw

    return output, backward


SCORES = ("additive", "multiplicative")


class Alignment(Module):
    """Attention of a decoder's states to an encoder's. x: (..., T_q, D); memory: (..., T_k, D); y: like x.

    score: "additive" or "multiplicative". No map has a bias.
    """

    @declared('d_model > 0; score: "additive" or "multiplicative"')
    def __init__(self, d_model: int, score: str = "multiplicative", rng: Rng | None = None) -> None:
        rng = generator(rng)
        limit = d_model**-0.5
        additive = score == "additive"
        self.key = Linear(d_model, d_model, bias=False, rng=rng)
        self.query = Linear(d_model, d_model, bias=False, rng=rng) if additive else None
        self.w = Parameter(rng.uniform(-limit, limit, d_model).astype(np.float32, copy=False)) if additive else None
        self.output = Linear(2 * d_model, d_model, bias=False, rng=rng)

    def __call__(self, x: Array, memory: Array, mask: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns (dx, dmemory). mask: broadcasts to (..., T_q, T_k)."""
        context, context_backward = self._context(x, memory, mask)
        both = array_module(x).stack([context, x], axis=-2).reshape(*x.shape[:-1], 2 * x.shape[-1])
        mixed, output_backward = self.output(both)
        y, tanh_backward = self.ops.tanh(mixed)

        def backward(dy: Array) -> tuple[Array, Array]:
            dmixed = tanh_backward(dy)
            dboth = output_backward(dmixed)
            dcontext = dboth[..., : x.shape[-1]]
            dx_asking, dmemory = context_backward(dcontext)
            dx = dboth[..., x.shape[-1] :] + dx_asking
            return dx, dmemory

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """The maps, the scores and the context. Kept: the keys, the weights, and what is joined."""
        rows, d = batch * length, self.key.weight.value.shape[0]
        match = d if self.query is not None else 0  # the tanh of each pair
        pairs = rows * length
        scores = 2 * pairs * d  # w, or the query, times each
        kept = rows * (2 * d + (d if match else 2 * d)) + pairs * (1 + match)
        return super().cost(batch, length) + Cost(flops=scores + 2 * pairs * d, kept=kept)

    def _context(self, x: Array, memory: Array, mask: Array | None) -> tuple[Array, Pullback]:
        k, key_backward = self.key(memory)
        if self.query is None or self.w is None:
            q, query_backward = x, None
            check_visible("Alignment", mask, False, q, memory)
            context, attention_backward = self.ops.attention(q, k, memory, mask, scale=1.0)
        else:
            q, query_backward = self.query(x)
            context, attention_backward = additive_attention(q, k, memory, self.w.value, mask)

        def backward(dcontext: Array) -> tuple[Array, Array]:
            dq, dk, dvalues, *dw = attention_backward(dcontext)
            if self.w is not None:
                self.w.grad += dw[0]
            dx = dq if query_backward is None else query_backward(dq)
            dmemory = key_backward(dk) + dvalues  # memory gives the keys, and it is the values
            return dx, dmemory

        return context, backward
