"""Cross-entropy with a weight for each class. King and Zeng 2001, "Logistic Regression in Rare Events Data", (15).

Where one class is rare, a model has a low loss without ever predicting it. So let each class have a weight w_v:

    log_p = log softmax(logits),       loss_i = -sum_v w_v target_iv log_p_iv

and the mean divides by the weights of the wanted classes, sum_i w_{y_i}, not by the number of positions. target is as
in `cross_entropy`: 1 at the wanted class, or smoothed. Let t = w ⊙ target. It does not sum to one, so its sum stays in
the gradient:

    p          = softmax(logits),     t_iv = w_v target_iv
    dlogits_ij = dloss_i (p_ij sum_v t_iv - t_ij)
    dw_v       = -sum_i dloss_i target_iv log_p_iv

and for the mean also -dloss loss / total for each position that wants v.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32_with_result


@op(
    "logits: (..., V); targets: integers (...) < V or ignore_index; class_weights: (V,); loss: (), or (...); "
    '0 <= label_smoothing <= 1; reduction: "mean" or "sum" or "none"'
)
@in_float32_with_result
def weighted_cross_entropy(
    logits: Array,
    targets: Array,
    class_weights: Array,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Array, Pullback]:
    """`cross_entropy` with a weight for each class.

    The mean divides by the weights of the
    wanted classes. backward(dloss=1.0) returns (dlogits, dclass_weights). King and Zeng 2001.
    """
    xp = array_module(logits)
    n_classes = logits.shape[-1]

    counted = targets != ignore_index
    wanted = xp.where(counted, targets, 0)[..., None]
    hit = ((xp.arange(n_classes) == wanted) & counted[..., None]).astype(logits.dtype)  # a row of zeros does not count
    share = (1.0 - label_smoothing) * hit + label_smoothing / n_classes * counted[..., None].astype(logits.dtype)
    target = class_weights * share
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
    losses = -(target * log_p).sum(axis=-1)
    times = hit.reshape(-1, n_classes).sum(axis=0)  # how often each class is wanted
    weight = (class_weights * times).sum()
    total = xp.where(weight == 0.0, 1.0, weight).astype(logits.dtype) if reduction == "mean" else 1.0
    loss = losses if reduction == "none" else losses.sum() / total

    def backward(dloss: Array | float = 1.0) -> tuple[Array, Array]:
        dlosses = xp.zeros_like(losses) + dloss / total
        p = xp.exp(log_p)
        dlogits = dlosses[..., None] * (p * target.sum(axis=-1, keepdims=True) - target)
        dtarget = -dlosses[..., None] * log_p
        dclass_weights = (dtarget * share).reshape(-1, n_classes).sum(axis=0)
        if reduction == "mean":
            dclass_weights = dclass_weights - dloss * loss / total * times
        return dlogits, dclass_weights

    return loss, backward
