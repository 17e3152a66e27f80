"""A mixture of experts: the gates of the chosen ones, and what flows back through them."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _scores(draw: Draw) -> Arguments:
    n, n_experts = draw.sizes(2, 4, 7)
    # All different, and exact in float32, so that none become equal there.
    different = draw.scores(n, n_experts) + np.arange(n_experts) / 1024.0
    apart = 4096.0 * (np.arange(n)[:, None] % 2)  # a shift by the largest of all would lose every second token,
    different[0, 0] += 8.0 * draw.extreme  # and one by the smallest of the chosen would overflow here
    logits = 256.0 * different + apart if draw.extreme else 2.0 * different
    return logits, 1 if draw.ones else draw.integer(2, n_experts - 1)


@exercise(_scores)
def top_k_gates(logits: Array, k: int) -> Array:
    """The gates of the k best experts.

    A token is sent to the k experts with the largest scores. Their weights, the gates, are the softmax over the
    scores of these k alone; the other experts have the gate 0. No two scores of a token are equal.

    logits, gates: (N, E), a row for each token; k: from 1 to E. Some scores are in the thousands, where exp
    overflows; other tokens have only scores far below.

    Hint: np.sort finds the k-th largest score of a row; what is smaller is not chosen. exp must not overflow.
    """
    smallest = np.sort(logits, axis=1)[:, -k][:, None]
    weights = np.where(logits >= smallest, np.exp(logits - logits.max(axis=1, keepdims=True)), 0.0)
    gates = weights / weights.sum(axis=1, keepdims=True)
    return gates


def _mixed(draw: Draw) -> Arguments:
    n, n_experts, d = draw.sizes(3, 3, 7)
    gates = draw.weights(n, n_experts)
    k = 1 if draw.ones else 2
    gates = np.where(gates >= np.sort(gates, axis=1)[:, -k][:, None], gates, 0.0)
    return gates / gates.sum(axis=1, keepdims=True), draw.normal(n, n_experts, d), draw.gradient(n, d)


@exercise(_mixed)
def mixture_backward(gates: Array, outputs: Array, dy: Array) -> tuple[Array, Array]:
    """A mixture of experts, backward.

    The output of a mixture is the sum of its experts, weighted by the gates:

        y[n] = Σ_e gates[n, e] outputs[n, e]

    gates is the softmax over the scores of the chosen experts, and 0 for the others, as top_k_gates makes it. Given
    dy, return the gradients of outputs and of the scores, logits. The choice itself has no gradient.

    gates, dlogits: (N, E); outputs, doutputs: (N, E, D); dy: (N, D).

    Hint: First the gradient of the gates, a sum over D. Then among the chosen it is softmax_backward.
    """
    doutputs = gates[:, :, None] * dy[:, None, :]
    dgates = (outputs * dy[:, None, :]).sum(axis=2)
    dlogits = gates * (dgates - (gates * dgates).sum(axis=1, keepdims=True))
    return doutputs, dlogits
