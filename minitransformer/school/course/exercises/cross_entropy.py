"""Cross-entropy: forward, and backward fused with softmax, unfused, and with label smoothing."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _forward(draw: Draw) -> Arguments:
    n, vocabulary = draw.sizes(2, 3, 8)
    logits = 2.0 * draw.scores(n, vocabulary)
    logits[0] += 1000.0
    targets = draw.indices(vocabulary, n)
    if draw.extreme:
        logits[0] -= 2000.0  # p of the wanted token is too small for a float, but its logarithm is not
        logits[0, targets[0] - 1] = 1000.0
    return logits, targets


@exercise(_forward)
def cross_entropy_forward(logits: Array, targets: Array) -> float:
    """Cross-entropy.

    How surprised is the model by the wanted tokens? The mean over the N positions of -log p[target], where
    p = softmax(logits).

    logits: (N, V); targets: (N,) integers, the wanted tokens; loss: one number. Some logits are around 1000,
    and a wanted token may be so unlikely that its p is too small for a float.

    Hint: Do not take the logarithm of softmax: log p = shifted - log Σ exp(shifted), where shifted is the logits minus
    the largest of their row. log_p[np.arange(N), targets] picks the wanted ones.
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = -log_p[np.arange(len(targets)), targets].mean()
    return loss


def _backward(draw: Draw) -> Arguments:
    n, vocabulary = draw.sizes(2, 3, 8)
    vocabulary = max(vocabulary, 2)
    logits = draw.scores(n, vocabulary)
    if draw.extreme:
        logits -= 1000.0
        logits[0, :2], logits[0, 2:] = (1000.0, 998.5), -2000.0
    return logits, draw.indices(vocabulary, n)


@exercise(_backward)
def cross_entropy_backward(logits: Array, targets: Array) -> Array:
    """Cross-entropy, backward.

    loss = the mean over the N positions of -log p[target], where p = softmax(logits). Return the gradient of the
    loss with respect to the logits. (Here softmax and the loss are one function: that is why the result is so
    short.)

    logits, dlogits: (N, V); targets: (N,) integers. Some logits are around 1000.

    Hint: -log p_t = -logits_t + log Σ_v exp(logits_v). The second term's derivative with respect to logits_v is p_v.
    And do not forget the mean.
    """
    n = len(targets)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    dlogits = (p - hit) / n
    return dlogits


def _unfused(draw: Draw) -> Arguments:
    n, vocabulary = draw.sizes(2, 3, 8)
    return draw.weights(n, vocabulary), draw.indices(vocabulary, n)


@exercise(_unfused)
def cross_entropy_unfused_backward(p: Array, targets: Array) -> tuple[Array, Array]:
    """Cross-entropy and softmax, backward in two steps.

    loss = the mean over the N positions of -log p[target], and p = softmax(logits). Given p, go back in two steps:
    return dp, the gradient with respect to p as if p were free, and then dlogits, by the softmax backward alone.

    p, dp, dlogits: (N, V); targets: (N,) integers. (Derive that dlogits is (p - target) / N; do not assume it.)

    Hint: The loss touches one entry of each row of p, so dp is zero elsewhere; the derivative of -log p is -1/p. The
    second step is the exercise softmax_backward.
    """
    n = len(targets)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    dp = -hit / p / n
    dlogits = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    return dp, dlogits


@exercise(lambda draw: (*_backward(draw), draw.uniform(0.1, 0.5)))
def label_smoothing_backward(logits: Array, targets: Array, epsilon: float) -> Array:
    """Label smoothing, backward.

    loss = the mean over the N positions of -Σ_v wanted_v log p_v, where p = softmax(logits). The wanted
    distribution shares ε equally among all V tokens: it is 1 - ε + ε/V at the target and ε/V at every other token.
    Return dlogits.

    logits, dlogits: (N, V); targets: (N,) integers; epsilon: a number. Some logits are around 1000.

    Hint: In the derivation of the backward pass of cross-entropy, the target may be any distribution that sums to one.
    So only the target changes.
    """
    n, vocabulary = logits.shape
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    wanted = (1.0 - epsilon) * hit + epsilon / vocabulary
    dlogits = (p - wanted) / n
    return dlogits
