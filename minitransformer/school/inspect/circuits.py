"""The two circuits of a head: where it looks, and what it writes. Elhage et al. 2021, "A Mathematical Framework ..."

    score_ij = x_i W_Q W_Kᵀ x_jᵀ · scale           QK = W_Q W_Kᵀ · scale, (D, D): which vectors attend to which
    update_i = sum_j weights_ij x_j W_V W_O         OV = W_V W_O, (D, D): what the head writes for an attended vector

Both are matrices of rank d_k and d_v at most. A head adds weights · x · OV to the residual path; heads add up.
"""

import numpy as np

from ...core.arrays.backend import to_numpy
from ...core.layers import Linear, Module
from .interventions import Head, place_of
from .watch import attentions


def circuits(model: Module, head: Head, distance: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """QK and OV of a head, each (D, D). They act on the input of its attention; in pre-norm order, after the norm.

    head: (layer, head), indices from 0.
    distance: for rotary positions, how far the key is behind the query; other positions ignore it. Biases, of a map or
    of a distance, are not included. Heads that share keys and values have the same W_K and W_V.
    """
    kind, layer, number = place_of(model, head)
    attention = attentions(model)[kind][layer]
    turn = attention.turn_query
    normed = not all(isinstance(part, Linear) for part in (attention.query, attention.key))
    if normed or (turn is not None and any(turn.parameters())):
        raise ValueError("circuits: the norm of queries and keys is not linear, so this attention has no QK matrix")
    alone = attention.head(number)
    w_q, w_k, w_v, w_o = (
        np.asarray(to_numpy(part.weight.value)) for part in (alone.query, alone.key, alone.value, alone.output)
    )
    if turn is not None:  # rotate the query; the key is at position 0, where the rotation is the identity
        w_q = turn(w_q[None], 0, np.full(len(w_q), distance))[0][0]  # on the host, wherever the model is
    scale = w_q.shape[1] ** -0.5 if alone.mix.scale is None else alone.mix.scale
    return (w_q @ w_k.T) * scale, w_v @ w_o
