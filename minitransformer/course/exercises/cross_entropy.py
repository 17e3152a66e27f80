"""Cross-entropy: forward, and backward fused with softmax, unfused, and with label smoothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _forward(draw: Draw) -> tuple[Any, ...]:
    n, vocabulary = draw.sizes(2, 3, 8)
    logits = 2.0 * draw.scores(n, vocabulary)
    logits[0] += 1000.0
    targets = draw.rng.integers(0, vocabulary, size=n)
    if draw.extreme:
        logits[0, targets[0]] = 0.0  # p of the wanted token is too small for a float, but its logarithm is not
    return logits, targets


@exercise(
    title="Cross-entropy",
    statement="""
        How surprised is the model by the wanted tokens? The mean over the N positions of -log p[target], where
        p = softmax(logits).

        logits: (N, V); targets: (N,) integers, the wanted tokens; loss: one number. Some logits are around 1000,
        and a wanted token may be so unlikely that its p is too small for a float.
    """,
    outputs="loss",
    inputs=_forward,
    hint="""
        Do not take the logarithm of softmax: log p = shifted - log Σ exp(shifted), where shifted is the logits minus
        the largest of their row. log_p[np.arange(N), targets] picks the wanted ones.
    """,
    mistakes=(
        Mistake(
            "no-shift",
            "logits - logits.max(axis=-1, keepdims=True)",
            "logits",
            "exp(1000) overflows: subtract the largest logit of each row first.",
        ),
        Mistake(
            "sum-for-mean",
            ".mean()",
            ".sum()",
            "The losses are summed; return their mean over the N positions.",
        ),
        Mistake(
            "wrong-sign",
            "-log_p[",
            "log_p[",
            "The sign is missing: log p is negative, and surprise is -log p.",
        ),
        Mistake(
            "p-for-log-p",
            "-log_p[",
            "-np.exp(log_p)[",
            "This is the mean of -p; take the logarithm of p.",
        ),
        Mistake(
            "logarithm-to-base-2",
            "].mean()",
            "].mean() / np.log(2.0)",
            "This is in bits, with the logarithm to base 2; take the natural one, np.log.",
        ),
        Mistake(
            "mean-over-vocabulary",
            "-log_p[np.arange(len(targets)), targets].mean()",
            "-log_p[np.arange(len(targets)), targets].mean() / logits.shape[-1]",
            "The loss is divided by V as well: the mean is over the positions only.",
        ),
        Mistake(
            "all-pairs",
            "log_p[np.arange(len(targets)), targets]",
            "log_p[:, targets]",
            "log_p[:, targets] picks all targets in every row, (N, N) numbers; each row has one target of its own.",
        ),
        Mistake(
            "softmax-over-positions",
            "logits - logits.max(axis=-1, keepdims=True)\n"
            "    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
            "logits - logits.max(axis=0, keepdims=True)\n"
            "    log_p = shifted - np.log(np.exp(shifted).sum(axis=0, keepdims=True))",
            "The sum runs over the positions (axis 0); p must sum to one over the vocabulary.",
        ),
        Mistake(
            "log-of-softmax",
            "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
            "np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))",
            "Where p is too small for a float it is 0, and its logarithm -inf: log p = shifted - log Σ exp(shifted).",
        ),
    ),
)
def cross_entropy_forward(logits: Array, targets: Array) -> float:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = -log_p[np.arange(len(targets)), targets].mean()
    return loss


def _backward(draw: Draw) -> tuple[Any, ...]:
    n, vocabulary = draw.sizes(2, 3, 8)
    vocabulary = max(vocabulary, 2)
    logits = draw.scores(n, vocabulary)
    if draw.extreme:
        logits[0] += 1000.0
        logits[-1] -= 1000.0
    return logits, draw.rng.integers(0, vocabulary, size=n)


@exercise(
    title="Cross-entropy, backward",
    statement="""
        loss = the mean over the N positions of -log p[target], where p = softmax(logits). Return the gradient of the
        loss with respect to the logits. (Here softmax and the loss are one function: that is why the result is so
        short.)

        logits, dlogits: (N, V); targets: (N,) integers. Some logits are around 1000.
    """,
    outputs="dlogits",
    inputs=_backward,
    hint="""
        -log p_t = -logits_t + log Σ_v exp(logits_v). The second term's derivative with respect to logits_v is p_v.
        And do not forget the mean.
    """,
    mistakes=(
        Mistake(
            "not-divided",
            "(p - hit) / n",
            "p - hit",
            "The loss is a mean, so its gradient is divided by N. (An optimiser such as Adam would hide this.)",
        ),
        Mistake(
            "divided-twice",
            "(p - hit) / n",
            "(p - hit) / n / n",
            "The gradient is divided by N twice; once is the mean.",
        ),
        Mistake(
            "divided-by-all-entries",
            "(p - hit) / n",
            "(p - hit) / p.size",
            "The gradient is divided by N·V, the number of logits; the mean is over the N positions.",
        ),
        Mistake(
            "divided-by-vocabulary",
            "(p - hit) / n",
            "(p - hit) / p.shape[-1]",
            "The gradient is divided by V; the mean is over the N positions.",
        ),
        Mistake(
            "wrong-sign",
            "(p - hit)",
            "(hit - p)",
            "The sign is the wrong way round: a step against the gradient must raise the wanted logit.",
        ),
        Mistake(
            "target-forgotten",
            "(p - hit)",
            "p",
            "The wanted token's own share, -1 at the target, is missing; each row of the gradient must sum to 0.",
        ),
        Mistake(
            "wanted-entry-only",
            "(p - hit)",
            "(p - hit) * hit",
            "Only the wanted logit gets a gradient; the others stand in the denominator of softmax, and get p_v.",
        ),
        Mistake(
            "of-log-p",
            "(p - hit)",
            "-hit",
            "This is the gradient with respect to log p; go on from there to the logits.",
        ),
        Mistake(
            "of-p",
            "(p - hit)",
            "-hit / p",
            "This is the gradient with respect to p; go on through softmax to the logits.",
        ),
        Mistake(
            "log-p-for-p",
            "(p - hit)",
            "(np.log(p) - hit)",
            "log p stands where p belongs.",
        ),
        Mistake(
            "logits-for-p",
            "(p - hit)",
            "(logits - hit)",
            "The logits themselves stand where p = softmax(logits) belongs.",
        ),
        Mistake(
            "softmax-over-positions",
            "exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))\n"
            "    p = exponentials / exponentials.sum(axis=-1, keepdims=True)",
            "exponentials = np.exp(logits)\n    p = exponentials / exponentials.sum(axis=0, keepdims=True)",
            "The softmax runs over the positions (axis 0); p must sum to one over the vocabulary.",
        ),
        Mistake(
            "no-shift",
            "logits - logits.max(axis=-1, keepdims=True)",
            "logits",
            "exp overflows where a logit is around 1000: subtract the largest logit of each row first.",
        ),
    ),
)
def cross_entropy_backward(logits: Array, targets: Array) -> Array:
    n = len(targets)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    dlogits = (p - hit) / n
    return dlogits


def _unfused(draw: Draw) -> tuple[Any, ...]:
    n, vocabulary = draw.sizes(2, 3, 8)
    return draw.weights(n, vocabulary), draw.rng.integers(0, vocabulary, size=n)


@exercise(
    title="Cross-entropy and softmax, backward in two steps",
    statement="""
        loss = the mean over the N positions of -log p[target], and p = softmax(logits). Given p, go back in two steps:
        return dp, the gradient with respect to p as if p were free, and then dlogits, by the backward of softmax alone.

        p, dp, dlogits: (N, V); targets: (N,) integers. (That dlogits is (p - target) / N should come out, not go in.)
    """,
    outputs="dp, dlogits",
    inputs=_unfused,
    hint="""
        The loss touches one entry of each row of p, so dp is zero elsewhere; the derivative of -log p is -1/p. The
        second step is the exercise softmax_backward.
    """,
    mistakes=(
        Mistake(
            "dp-not-divided",
            "-hit / p / n",
            "-hit / p",
            "The loss is a mean, so its gradient is divided by N.",
        ),
        Mistake(
            "dp-wrong-sign",
            "-hit / p / n",
            "hit / p / n",
            "The derivative of -log p is -1/p: the sign is missing.",
        ),
        Mistake(
            "dp-without-one-over-p",
            "-hit / p / n",
            "-hit / n",
            "The derivative of the logarithm, 1/p, is missing.",
        ),
        Mistake(
            "dp-everywhere",
            "-hit / p / n",
            "-1.0 / p / n",
            "Every entry of p gets -1/p; only the wanted one stands in the loss.",
        ),
        Mistake(
            "dp-is-fused",
            "-hit / p / n",
            "(p - hit) / n",
            "(p - target) / N is the gradient of the logits; then the Jacobian of softmax is applied once more to it.",
        ),
        Mistake(
            "dlogits-no-sum",
            "dp - (dp * p).sum(axis=-1, keepdims=True)",
            "dp",
            "In the backward of softmax the term -Σ_i dp_i p_i is missing.",
        ),
        Mistake(
            "dlogits-diagonal-only",
            "p * (dp - (dp * p).sum(axis=-1, keepdims=True))",
            "dp * p * (1.0 - p)",
            "Only the diagonal p (1 - p) of softmax's Jacobian is used.",
        ),
        Mistake(
            "dlogits-divided-again",
            "p * (dp - (dp * p).sum(axis=-1, keepdims=True))",
            "p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / n",
            "dlogits is divided by N again; dp contains the mean already.",
        ),
        Mistake(
            "dlogits-is-dp",
            "p * (dp - (dp * p).sum(axis=-1, keepdims=True))",
            "dp * 1.0",
            "dp is handed on as it is; it must go back through softmax.",
        ),
    ),
)
def cross_entropy_unfused_backward(p: Array, targets: Array) -> tuple[Array, Array]:
    n = len(targets)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    dp = -hit / p / n
    dlogits = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    return dp, dlogits


def _smoothing(draw: Draw) -> tuple[Any, ...]:
    return *_backward(draw), draw.uniform(0.1, 0.5)


@exercise(
    title="Label smoothing, backward",
    statement="""
        loss = the mean over the N positions of -Σ_v wanted_v log p_v, where p = softmax(logits). The wanted
        distribution shares out ε among all V tokens alike: it is 1 - ε + ε/V at the target and ε/V at every other.
        Return dlogits.

        logits, dlogits: (N, V); targets: (N,) integers; epsilon: a number. Some logits are around 1000.
    """,
    outputs="dlogits",
    inputs=_smoothing,
    hint="""
        In the derivation of cross-entropy's backward, the target may be any distribution that sums to one. So only the
        target changes.
    """,
    mistakes=(
        Mistake(
            "smoothing-forgotten",
            "(1.0 - epsilon) * hit + epsilon / vocabulary",
            "hit",
            "The gradient is that of the loss without smoothing.",
        ),
        Mistake(
            "mass-above-one",
            "(1.0 - epsilon) * hit",
            "hit",
            "The wanted distribution sums to 1 + ε: what all tokens get must be taken from the target.",
        ),
        Mistake(
            "mass-below-one",
            "(1.0 - epsilon) * hit + epsilon / vocabulary",
            "(1.0 - epsilon) * hit",
            "The wanted distribution sums to 1 - ε: the ε taken from the target is not given to anyone.",
        ),
        Mistake(
            "others-only",
            "(1.0 - epsilon) * hit + epsilon / vocabulary",
            "(1.0 - epsilon) * hit + epsilon / (vocabulary - 1) * (1.0 - hit)",
            "ε is shared among the V - 1 other tokens; here all V have a share, the target too.",
        ),
        Mistake(
            "target-gets-no-share",
            "(1.0 - epsilon) * hit + epsilon / vocabulary",
            "np.where(hit == 1.0, 1.0 - epsilon, epsilon / vocabulary)",
            "The target has 1 - ε, without its own share ε/V, so the distribution does not sum to one.",
        ),
        Mistake(
            "not-divided",
            "(p - wanted) / n",
            "p - wanted",
            "The loss is a mean, so its gradient is divided by N.",
        ),
        Mistake(
            "wrong-sign",
            "(p - wanted)",
            "(wanted - p)",
            "The sign is the wrong way round: a step against the gradient must raise the wanted logit.",
        ),
        Mistake(
            "no-shift",
            "logits - logits.max(axis=-1, keepdims=True)",
            "logits",
            "exp overflows where a logit is around 1000: subtract the largest logit of each row first.",
        ),
    ),
)
def label_smoothing_backward(logits: Array, targets: Array, epsilon: float) -> Array:
    n, vocabulary = logits.shape
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    hit = np.zeros_like(p)
    hit[np.arange(n), targets] = 1.0
    wanted = (1.0 - epsilon) * hit + epsilon / vocabulary
    dlogits = (p - wanted) / n
    return dlogits
