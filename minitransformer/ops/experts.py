"""Routing for a mixture of experts: which experts a token is sent to, and a loss that keeps their shares equal.

Gates. Shazeer et al. 2017, "Outrageously Large Neural Networks", equations 3 and 5, without the noise; Jiang et al.
2024, "Mixtral of Experts", section 2.1. A token has a score for each of E experts. The k with the largest scores are
chosen, and only they share the weight:

    gates_i = exp(logits_i) / sum over chosen j of exp(logits_j)    for chosen i, and 0 for the others

This is the softmax of all E scores, scaled so that the chosen ones sum to one. The choice itself has no gradient: a
small change of the scores does not change it. Among the chosen it is a softmax, so

    dlogits_i = gates_i (dgates_i - sum_j gates_j dgates_j)

and an expert that was not chosen gets 0, since its gate is 0. With k = 1 the gate is always 1 and dlogits is 0: then
nothing but the loss below trains the router. So Fedus et al. take the gate from the softmax over all E scores.

Load balance. Fedus et al. 2021, "Switch Transformers", equations 4 to 6. Of N tokens

    f_i = (tokens that chose expert i) / N,     P_i = mean over tokens of p_i,     p = softmax(logits) over all E
    loss = E · sum_i f_i P_i

The f_i sum to k. If they are all equal, the loss is k; if the experts with larger f_i also have larger P_i, it is more.
f is a count and has no gradient; P has, so p of each token gets dp_i = dloss · E · f_i / N: a push away from experts
that have much to do, through the softmax.
"""

from __future__ import annotations

from typing import Any

from ..arrays.backend import Array, Pullback, array_module
from ..arrays.boundary import check_floats, check_sizes, op
from ..arrays.float16 import in_float32, in_float32_with_result
from .softmax import softmax


def chosen_experts(logits: Array, k: int) -> Array:
    """Where the k largest of (..., E) are: boolean, (..., E). Of equal scores the first wins."""
    xp = array_module(logits)
    order = xp.argsort(-logits, axis=-1, kind="stable")
    rank = xp.argsort(order, axis=-1, kind="stable")
    return rank < k


@op
@in_float32
def top_k_gates(logits: Array, k: int = 2) -> tuple[Array, Pullback]:
    """The weights of the k best experts, which sum to one, and 0 for the others. logits, gates: (..., E).

    Of equal scores the first counts as larger. backward(dgates) returns dlogits. Shazeer et al. 2017.
    """
    xp = _check("top_k_gates", logits, k)
    chosen = chosen_experts(logits, k)
    weights = xp.where(chosen, xp.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    gates = weights / weights.sum(axis=-1, keepdims=True)

    def backward(dgates: Array) -> Array:
        dlogits = gates * (dgates - (gates * dgates).sum(axis=-1, keepdims=True))
        return dlogits

    return gates, backward


@op
@in_float32_with_result
def load_balance(logits: Array, k: int = 2) -> tuple[Array, Pullback]:
    """How unequal the shares of the experts are: k if they are equal. logits: (..., E); loss: (), at least float32.

    backward(dloss=1.0) returns dlogits. Fedus et al. 2021.
    """
    xp = _check("load_balance", logits, k)
    tokens = logits.reshape(-1, logits.shape[-1])
    n, n_experts = tokens.shape
    shares = chosen_experts(tokens, k).sum(axis=0).astype(logits.dtype) / n
    p, softmax_backward = softmax(tokens)
    mean_p = p.mean(axis=0)
    loss = n_experts * (shares * mean_p).sum()

    def backward(dloss: Array | float = 1.0) -> Array:
        dmean_p = dloss * n_experts * shares
        dp = xp.broadcast_to(dmean_p / n, p.shape)
        dtokens = softmax_backward(dp)
        dlogits = dtokens.reshape(logits.shape)
        return dlogits

    return loss, backward


def _check(where: str, logits: Array, k: int) -> Any:
    xp = check_floats(where, logits=logits)
    check_sizes(where, k=k)
    if logits.ndim == 0 or logits.shape[-1] < k:
        raise ValueError(f"{where}: logits must have a last axis of at least k = {k} experts, got shape {logits.shape}")
    return xp
