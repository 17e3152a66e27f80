"""Cross-entropy on the GPU; see cross_entropy.cu."""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from .launching import ceil_div, contiguous, kernels_of, takes

ROWS = 4  # rows per block, one for each of its warps


def cross_entropy(
    logits: Array, targets: Array, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> tuple[Array, Pullback] | None:
    """See core/ops/cross_entropy.py.

    Targets are not checked, because the host would have to wait for the answer: a target outside the vocabulary makes
    the loss NaN.
    """
    if not takes(logits) or type(targets) is not type(logits) or logits.ndim < 1 or targets.shape != logits.shape[:-1]:
        return None
    if targets.dtype.kind not in "iu" or type(ignore_index) is not int or reduction not in ("mean", "sum"):
        return None
    if type(label_smoothing) not in (int, float) or not 0 <= label_smoothing <= 1:
        return None
    xp = array_module(logits)
    forward, backward_logits = kernels_of("cross_entropy.cu", logits)
    n_classes = logits.shape[-1]
    n_rows = logits.size // n_classes
    rows, wanted = contiguous(logits), contiguous(targets.astype("int64", copy=False))
    losses, largest, log_totals = (xp.empty(n_rows, dtype="float32") for _ in range(3))
    kept = (largest, log_totals)
    grid, block = (ceil_div(n_rows, ROWS),), (32, ROWS)
    sizes = (n_rows, n_classes, ignore_index, float(label_smoothing))
    forward(grid, block, rows, wanted, losses, *kept, *sizes)
    counted = (wanted != ignore_index).sum(dtype="float32")  # an array, because a number would leave the GPU
    n_counted = xp.maximum(counted, 1.0) if reduction == "mean" else 1.0
    loss = losses.sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        factor = (xp.ones((), dtype="float32") * dloss / n_counted).astype("float32")
        dlogits = xp.empty(rows.shape, dtype=rows.dtype)
        backward_logits(grid, block, rows, wanted, *kept, factor, dlogits, *sizes)
        return dlogits

    return loss, backward
