"""Cross-entropy between the predicted distribution softmax(logits) and the wanted token.

    log_p = logits - log sum_j exp(logits_j),      p = exp(log_p) = softmax(logits)
    loss  = -sum_v target_v log_p_v / N            the share of one position

The wanted distribution `target` is 1 at the wanted token. With label smoothing ε (Szegedy et al. 2016, "Rethinking the
Inception Architecture", section 7; Vaswani et al. 2017, section 5.4) it is 1 - ε + ε/V at the wanted token and ε/V at
every other of the V tokens.

This is the only place where softmax is fused with its loss. Since ∂log_p_v/∂logits_j = δ_vj - p_j and target sums to
one,

    -sum_v target_v (δ_vj - p_j) = p_j - target_j

and the softmax's Jacobian has cancelled. N is the number of positions that count, or 1 if losses are summed or left as
they are. At each of these positions

    dlogits_j = dloss (p_j - target_j) / N

and at all others the gradient is 0.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, library
from ..arrays.declared import op
from ..arrays.float16 import in_float32_with_result


@op(
    "logits: (..., V); targets: integers (...) < V or ignore_index; loss: (), or (...); 0 <= label_smoothing <= 1; "
    'reduction: "mean" or "sum" or "none"'
)
@in_float32_with_result
def cross_entropy(
    logits: Array, targets: Array, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> tuple[Array, Pullback]:
    """How surprised the model is, in nats: without smoothing, -log p of the wanted token.

    targets: the ids of the wanted tokens. loss: in the dtype of logits, at least float32.
    Positions whose target is ignore_index count neither in the loss nor in N. If no position counts, loss and gradient
    are 0. reduction: "mean" over the counted positions, "sum", or "none": the loss at each position, (...). The largest
    logit is subtracted first, so that huge logits cannot overflow. backward(dloss=1.0) returns dlogits.
    """
    xp, n_classes = library(type(logits)), logits.shape[-1]
    counted = targets != ignore_index  # (...)
    wanted = xp.where(counted, targets, 0)[..., None]  # (..., 1): any valid id at positions that do not count
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
    loss_at = -(1.0 - label_smoothing) * xp.take_along_axis(log_p, wanted, axis=-1)[..., 0]
    if label_smoothing:
        loss_at = loss_at - label_smoothing * log_p.mean(axis=-1)
    n_counted = xp.maximum(counted.sum(dtype=logits.dtype), 1.0) if reduction == "mean" else 1.0
    losses = xp.where(counted, loss_at, 0.0)
    loss = losses if reduction == "none" else losses.sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        hit = (xp.arange(n_classes) == wanted).astype(logits.dtype)
        target = (1.0 - label_smoothing) * hit + label_smoothing / n_classes
        dlosses = xp.zeros(logits.shape[:-1], log_p.dtype) + (dloss / n_counted)
        dlogits = xp.where(counted[..., None], xp.exp(log_p) - target, 0.0) * dlosses[..., None]
        return dlogits

    return loss, backward
