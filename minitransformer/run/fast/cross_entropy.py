"""Cross-entropy that keeps two numbers for each row and recomputes the softmax in backward.

With s = logits - max_j logits_j and total = sum_j exp(s_j), the loss of a row and its gradient are

    log total - (1 - ε) s_wanted - ε mean_v s_v,        dlogits_j = (exp(s_j) / total - target_j) dloss / N

so dlogits is the only large array besides the logits. Rows whose target is ignored are not read.
"""

from __future__ import annotations

import numbers

import numpy as np

from ...core.arrays.backend import Array, Pullback
from .row_blocks import BLOCK, blocks, row_sums, takes


def cross_entropy(
    logits: Array, targets: Array, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> tuple[Array, Pullback] | None:
    """See core/ops/cross_entropy.py."""
    if not takes(logits) or logits.ndim < 1 or type(targets) is not np.ndarray or targets.shape != logits.shape[:-1]:
        return None
    if targets.dtype.kind not in "iu" or not targets.size or not isinstance(ignore_index, numbers.Integral):
        return None
    if reduction not in ("mean", "sum") or type(label_smoothing) not in (int, float) or not 0 <= label_smoothing <= 1:
        return None
    n_classes = logits.shape[-1]
    counted = np.flatnonzero(targets != ignore_index)
    wanted = targets.reshape(-1)[counted]
    if wanted.size and (wanted.min() < 0 or wanted.max() >= n_classes):
        return None
    rows = logits.reshape(-1, n_classes)
    n_counted = float(max(counted.size, 1)) if reduction == "mean" else 1.0
    largest = np.empty((counted.size, 1), logits.dtype)
    totals = np.empty_like(largest)
    losses = np.empty(counted.size, logits.dtype)
    for block in blocks(counted.size, n_classes, BLOCK * 8):
        scores = rows[counted[block]]  # a copy
        np.max(scores, axis=-1, keepdims=True, out=largest[block])
        scores -= largest[block]
        picked = np.take_along_axis(scores, wanted[block, None], axis=-1)[:, 0]
        mean = row_sums(scores) / n_classes if label_smoothing else 0.0
        np.exp(scores, out=scores)
        totals[block, 0] = row_sums(scores)
        losses[block] = np.log(totals[block, 0]) - (1.0 - label_smoothing) * picked - label_smoothing * mean
    loss = losses.sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        scale = float(dloss) / n_counted
        drows = np.zeros_like(rows) if counted.size < rows.shape[0] else np.empty_like(rows)
        for block in blocks(counted.size, n_classes, BLOCK * 8):
            dscores = rows[counted[block]]
            dscores -= largest[block]
            np.exp(dscores, out=dscores)
            dscores *= scale / totals[block]
            if label_smoothing:
                dscores -= scale * label_smoothing / n_classes
            dscores[np.arange(dscores.shape[0]), wanted[block]] -= scale * (1.0 - label_smoothing)
            drows[counted[block]] = dscores
        return drows.reshape(logits.shape)

    return loss, backward
