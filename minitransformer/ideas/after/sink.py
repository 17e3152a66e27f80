"""Attention with a sink. Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks", section 3.

Softmax makes the weights of a query sum to one, so a head must attend somewhere even if nothing is relevant. Trained
models then attend to the first token, whatever it is: it becomes a sink. A head can also have its own sink (gpt-oss,
OpenAI 2025): a learned score b that takes part in the softmax but has no value,

    weights_ij = exp(scores_ij) / (exp(b) + sum_l exp(scores_il)),      output = weights v

Backward. This is a softmax over T_k + 1 scores, the last of them b. The last weight was not used, so its gradient is 0.
softmax.py gives dscores. Every query of the head used the sink, so

    rest_i = 1 - sum_j weights_ij,          db = -sum_i rest_i sum_j weights_ij dweights_ij

A query that may attend to nothing gives all of its weight to the sink: it outputs zeros.
"""

from __future__ import annotations

import math

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module, device_of
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.arrays.masks import causal_mask
from ...core.layers import Cost, Module, Parameter, ScaledDotProduct
from ...core.ops.softmax import softmax


@op(
    "q: (..., H, T_q, d_k); k: (..., H, T_k, d_k); v: (..., H, T_k, d_v); output: (..., H, T_q, d_v); "
    "sink: (H,); mask: booleans that broadcast to (..., H, T_q, T_k)"
)
@in_float32
def sink_attention(
    q: Array,
    k: Array,
    v: Array,
    sink: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Array, Pullback]:
    """Attention in which a head can attend to nothing.

    sink: a score. mask: True means "may attend". causal, scale: as in attention.
    backward(doutput) returns (dq, dk, dv, dsink).
    """
    xp = array_module(q)
    t_q, t_k = q.shape[-2], k.shape[-2]
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    allowed = xp.ones((t_q, t_k), dtype=bool)
    if mask is not None:
        allowed = allowed & mask
    if causal:
        allowed = allowed & causal_mask(t_q, t_k, device_of(q).name)

    scores = (q @ k.swapaxes(-1, -2)) * factor
    visible = xp.where(allowed, scores, -xp.inf)
    column = xp.zeros_like(scores[..., :1]) + sink[:, None, None]
    every = xp.concatenate([visible, column], axis=-1)
    shared, softmax_backward = softmax(every)
    weights = shared[..., :-1]
    output = weights @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array, Array]:
        dweights = doutput @ v.swapaxes(-1, -2)
        dv = weights.swapaxes(-1, -2) @ doutput
        dshared = xp.concatenate([dweights, xp.zeros_like(dweights[..., :1])], axis=-1)
        of_all = softmax_backward(dshared)
        dscores = of_all[..., :-1]  # zero wherever the mask hid the score
        dsink = of_all[..., -1].sum(axis=(*range(of_all.ndim - 3), -1))
        dq = (dscores @ k) * factor
        dk = (dscores.swapaxes(-1, -2) @ q) * factor
        return dq, dk, dv, dsink

    return output, backward


class Sink(Module):
    """Attention whose weights sum to less than one. sink: (H,), a score for each head, which starts at zero."""

    alike = False

    @declared("n_heads > 0")
    def __init__(self, n_heads: int, scale: float | None = None) -> None:
        self.sink = Parameter(np.zeros(n_heads, np.float32))
        self.scale = scale

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv). There is no dropout, so rng is not used."""
        heads, attention_backward = sink_attention(q, k, v, self.sink.value, mask, causal, self.scale)

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dk, dv, dsink = attention_backward(dheads)
            self.sink.grad += dsink
            return dq, dk, dv

        return heads, backward

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """As scaled dot products, and the sink's weight for each query."""
        sinks = Cost(kept=batch * n_heads * length)
        return ScaledDotProduct().cost(batch, length, n_heads, d_k, d_v) + sinks

    def head(self, i: int) -> Sink:
        """The part that mixes only head i."""
        alone = Sink(1, self.scale)
        alone.sink = self.sink.part(np.s_[i : i + 1])
        return alone
