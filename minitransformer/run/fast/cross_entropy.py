"""Cross-entropy that keeps exponentials instead of logits.

With s = logits - max_j logits_j and total = sum_j exp(s_j), the loss of a row and its gradient are

    log total - (1 - ε) s_wanted - ε mean_v s_v,        dlogits_j = (exp(s_j) / total - target_j) dloss / N

so there are two large arrays at a time: logits and exp(s), then exp(s) and dlogits. Rows whose target is ignored are
not read.
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
    shape, rows = logits.shape, logits.reshape(-1, n_classes)
    n_rows, whole = len(rows), counted.size == len(rows)
    n_counted = float(max(counted.size, 1)) if reduction == "mean" else 1.0
    exponentials = np.empty((counted.size, n_classes), logits.dtype)
    totals = np.empty((counted.size, 1), logits.dtype)
    losses = np.empty(counted.size, logits.dtype)
    for block in blocks(counted.size, n_classes, BLOCK * 8):
        some, scores = rows[block if whole else counted[block]], exponentials[block]
        np.subtract(some, np.max(some, axis=-1, keepdims=True), out=scores)
        picked = np.take_along_axis(scores, wanted[block, None], axis=-1)[:, 0]
        mean = row_sums(scores) / n_classes if label_smoothing else 0.0
        np.exp(scores, out=scores)
        totals[block, 0] = row_sums(scores)
        losses[block] = np.log(totals[block, 0]) - (1.0 - label_smoothing) * picked - label_smoothing * mean
    loss = losses.sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        scale = float(dloss) / n_counted
        drows = np.empty_like(exponentials) if whole else np.zeros((n_rows, n_classes), totals.dtype)
        for block in blocks(counted.size, n_classes, BLOCK * 8):
            dscores = np.multiply(exponentials[block], scale / totals[block], out=drows[block] if whole else None)
            if label_smoothing:
                dscores -= scale * label_smoothing / n_classes
            dscores[np.arange(dscores.shape[0]), wanted[block]] -= scale * (1.0 - label_smoothing)
            if not whole:
                drows[counted[block]] = dscores
        return drows.reshape(shape)

    return loss, backward
