"""Whole layers, backward: the encoder layer on arrays, the decoder layer from its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise
from .attention import attention_backward, attention_forward
from .normalization import layer_norm_backward, layer_norm_forward

_EPS = 1e-5


def _encoder(draw: Draw) -> Arguments:
    batch, t, d, d_k, d_ff = draw.sizes(5, 3, 8)
    d = max(d, 4)  # a norm of fewer entries leaves little more than rounding errors
    small = 0.002 if draw.extreme else 1.0  # so small that ε counts in both norms

    def matrix(d_in: int, d_out: int) -> Array:
        return draw.normal(d_in, d_out) / np.sqrt(d_in)

    params = {"w_q": matrix(d, d_k), "w_k": matrix(d, d_k), "w_v": matrix(d, d_k), "w_o": matrix(d_k, d)}
    params |= {"w_1": matrix(d, d_ff), "w_2": matrix(d_ff, d)}
    params |= {"gamma_1": small * draw.normal(d), "gamma_2": draw.normal(d)}
    x = 1.5 * small * draw.normal(batch, t, d)
    q, k, v = (x @ params[name] for name in ("w_q", "w_k", "w_v"))
    heads, weights = attention_forward(q, k, v)
    sum_1 = x + heads @ params["w_o"]
    attended = layer_norm_forward(sum_1, params["gamma_1"], np.zeros(d), _EPS)
    active = np.maximum(attended @ params["w_1"], 0.0)
    sum_2 = attended + active @ params["w_2"]
    saved = {"x": x, "q": q, "k": k, "v": v, "weights": weights, "heads": heads, "sum_1": sum_1}
    saved |= {"attended": attended, "active": active, "sum_2": sum_2}
    return params, saved, draw.gradient(*x.shape)


@exercise(_encoder)
def encoder_layer_backward(params: dict[str, Array], saved: dict[str, Array], dy: Array) -> tuple[Array, ...]:
    """The encoder layer, backward.

    A post-norm encoder layer with one head and no biases, from the first line to the last:

        q, k, v  = x w_q, x w_k, x w_v
        weights  = softmax(q kᵀ / √d_k);   heads = weights v
        sum_1    = x + heads w_o
        attended = layer_norm(sum_1)       with gamma_1, β = 0 and ε = 1e-5
        active   = relu(attended w_1)
        sum_2    = attended + active w_2
        y        = layer_norm(sum_2)       with gamma_2, β = 0 and ε = 1e-5

    Given dy, return dx and the gradients of the parameters, dw_q, dw_k, dw_v, dw_o, dgamma_1, dw_1, dw_2 and
    dgamma_2, each in the shape of its parameter. All values of the forward pass are saved under the names above.
    You may call your attention_backward and layer_norm_backward.

    params: a dictionary: "w_q", "w_k", "w_v": (D, d_k); "w_o": (d_k, D); "w_1": (D, d_ff); "w_2": (d_ff, D);
    "gamma_1", "gamma_2": (D,). saved: a dictionary: "x", "sum_1", "attended", "sum_2": (B, T, D);
    "q", "k", "v", "heads": (B, T, d_k); "weights": (B, T, T); "active": (B, T, d_ff). dy: (B, T, D).

    Hint: Read the seven lines from the bottom up, and for each one write down the gradients of the values on its right.
    `attended` is used twice (by w_1 and in the sum), and x four times: add their gradients. A helper that flattens (B,
    T, n) to (B·T, n) makes every dw one product.
    """

    def rows(x: Array) -> Array:
        return x.reshape(-1, x.shape[-1])

    eps = 1e-5
    dsum_2, dgamma_2, _ = layer_norm_backward(saved["sum_2"], params["gamma_2"], eps, dy)
    dw_2 = rows(saved["active"]).T @ rows(dsum_2)
    dhidden = (dsum_2 @ params["w_2"].T) * (saved["active"] > 0.0)
    dw_1 = rows(saved["attended"]).T @ rows(dhidden)
    dattended = dsum_2 + dhidden @ params["w_1"].T

    dsum_1, dgamma_1, _ = layer_norm_backward(saved["sum_1"], params["gamma_1"], eps, dattended)
    dw_o = rows(saved["heads"]).T @ rows(dsum_1)
    dheads = dsum_1 @ params["w_o"].T
    dq, dk, dv = attention_backward(saved["q"], saved["k"], saved["v"], saved["weights"], dheads)
    dw_q, dw_k, dw_v = (rows(saved["x"]).T @ rows(d) for d in (dq, dk, dv))
    dx = dsum_1 + dq @ params["w_q"].T + dk @ params["w_k"].T + dv @ params["w_v"].T
    return dx, dw_q, dw_k, dw_v, dw_o, dgamma_1, dw_1, dw_2, dgamma_2


def _decoder(draw: Draw) -> Arguments:
    t, t_k, d = draw.sizes(3, 3, 7)

    def linear() -> Callable[[Array], Array]:
        over_positions, matrix = draw.normal(t, t) / np.sqrt(t), draw.normal(d, d) / np.sqrt(d)
        return lambda dy: over_positions @ dy @ matrix

    through_queries, to_memory = linear(), draw.normal(t_k, t) / np.sqrt(t)
    pullbacks = {name: linear() for name in ("self_attention", "feed_forward", "norm_1", "norm_2", "norm_3")}
    crossing = {"cross_attention": lambda dy: (through_queries(dy), to_memory @ dy)}
    return draw.gradient(t, d), pullbacks | crossing


@exercise(_decoder)
def decoder_layer_backward(dy: Array, pullbacks: dict[str, Callable[[Array], Any]]) -> tuple[Array, Array]:
    """The decoder layer, backward.

    A post-norm decoder layer reads x and the encoder's output, the memory:

        attended = norm_1(x + self_attention(x))
        informed = norm_2(attended + cross_attention(attended, memory))
        y        = norm_3(informed + feed_forward(informed))

    Given dy and the pullbacks of all six parts, return dx and dmemory. Call each pullback once: it also adds to the
    gradients of its parameters.

    dy, dx: (T, D); dmemory: (T_k, D); pullbacks: a dictionary of functions: "self_attention", "feed_forward",
    "norm_1", "norm_2", "norm_3" take (T, D) to (T, D); "cross_attention" takes (T, D) to a pair, the gradients of
    the queries' input and of the memory.

    Hint: The same step three times: back through the norm to a sum, then along the residual path and the part.
    """
    dtotal_3 = pullbacks["norm_3"](dy)
    dinformed = dtotal_3 + pullbacks["feed_forward"](dtotal_3)
    dtotal_2 = pullbacks["norm_2"](dinformed)
    dqueries, dmemory = pullbacks["cross_attention"](dtotal_2)
    dattended = dtotal_2 + dqueries
    dtotal_1 = pullbacks["norm_1"](dattended)
    dx = dtotal_1 + pullbacks["self_attention"](dtotal_1)
    return dx, dmemory
