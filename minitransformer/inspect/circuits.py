"""The two circuits of a head: where it looks, and what it writes. Elhage et al. 2021, "A Mathematical Framework ..."

    score_ij = x_i W_Q W_Kᵀ x_jᵀ · scale           QK = W_Q W_Kᵀ · scale, (D, D): which vector looks for which
    update_i = sum_j weights_ij x_j W_V W_O         OV = W_V W_O, (D, D): what is written if a vector is looked at

Both are matrices of rank d_k and d_v at most. A head adds weights · x · OV to the residual path; heads add up.
"""

from __future__ import annotations

import numpy as np

from .. import ops
from ..arrays.backend import to_numpy
from ..layers import Module
from .interventions import Head, place_of
from .watch import attentions


def circuits(model: Module, head: Head, distance: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """QK and OV of a head, each (D, D), for vectors as they enter its attention, in pre-norm order after the norm.

    distance: for rotary positions, how far the key is behind the query; other positions ignore it. What a bias
    adds, of a map or of a distance, is not in them. Heads that share keys and values have the same W_K and W_V.
    """
    kind, layer, number = place_of(model, head)
    attention = attentions(model)[kind][layer]
    shared = number * attention.n_key_heads // attention.n_heads
    if attention.query_norm is not None:
        raise ValueError("circuits: the norm of queries and keys is not linear, so this attention has no QK matrix")
    query, key, value, output = (
        np.asarray(to_numpy(part.weight.value))
        for part in (attention.query, attention.key, attention.value, attention.output)
    )
    w_q = np.split(query, attention.n_heads, axis=1)[number]
    w_k = np.split(key, attention.n_key_heads, axis=1)[shared]
    w_v = np.split(value, attention.n_key_heads, axis=1)[shared]
    w_o = np.split(output, attention.n_heads, axis=0)[number]
    if attention.rotary_base is not None:
        turned = np.full(len(w_q), distance)
        w_q, _ = ops.rotary(w_q, base=attention.rotary_base, positions=turned)
    scale = w_q.shape[1] ** -0.5 if attention.scale is None else attention.scale
    return (w_q @ w_k.T) * scale, w_v @ w_o
