"""The vocabulary cut into stretches: each rank holds some rows of the table, and so some columns of the logits.

Shoeybi et al. 2019, "Megatron-LM", section 3. Rank r has only the logits of its own tokens, v ∈ r. From all V logits
the loss needs just two numbers at each position, the largest and a sum, so ranks never exchange the logits themselves:

    largest = max_r max_{v ∈ r} logits_v
    total   = Σ_r Σ_{v ∈ r} exp(logits_v - largest)
    log_p_v = logits_v - largest - log total                        as in core/ops/cross_entropy.py
    loss    = -Σ_v target_v log_p_v = log total - Σ_r Σ_{v ∈ r} target_v (logits_v - largest)

because the targets sum to one. The loss is one value, and every rank has a copy. The gradient of a logit needs only its
own p and target, and this rank has both:

    dlogits_v = dloss (p_v - target_v) / N,    p_v = exp(logits_v - largest) / total

so backward sends nothing. In the lookup y = table[id], one rank has the row; the others add zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import ops
from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.boundary import check_ids, check_shape
from ....core.arrays.declared import op
from ....core.layers import Embedding, Module, Parameter
from ....core.models import LanguageModel, Transformer
from .collectives import all_reduce, identity
from .group import Group, stretch


@op("logits: (..., v); targets: integers (...); loss: (); 0 <= label_smoothing <= 1")
def vocabulary_cross_entropy(
    logits: Array, targets: Array, group: Group, vocabulary: int, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Array, Pullback]:
    """The mean cross-entropy of ops.cross_entropy, where each rank has some columns of the logits.

    logits: (..., v), of this rank's stretch of the vocabulary; targets: (...), the same on all ranks; loss: (), one
    value of which every rank has a copy. backward(dloss=1.0) returns dlogits of this stretch.
    """
    xp = array_module(logits)
    own = stretch(vocabulary, group)
    check_shape("vocabulary_cross_entropy", "logits", logits, (*targets.shape, own.stop - own.start))
    check_ids("vocabulary_cross_entropy", "targets", targets, vocabulary, like=logits, ignore_index=ignore_index)

    counted = targets != ignore_index  # (...)
    n_counted = xp.maximum(counted.sum(dtype=logits.dtype), 1.0)
    hit = (xp.arange(own.start, own.stop) == targets[..., None]).astype(logits.dtype)
    target = (1.0 - label_smoothing) * hit + label_smoothing / vocabulary  # (..., v)
    largest = group.gather(logits.max(axis=-1)[None], [1] * group.size).max(axis=0)[..., None]
    exponentials = xp.exp(logits - largest)
    parts = xp.stack([exponentials.sum(axis=-1), (target * (logits - largest)).sum(axis=-1)])
    total, along_target = group.sum(parts)
    loss = xp.where(counted, xp.log(total) - along_target, 0.0).sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        p = exponentials / total[..., None]
        dlogits = xp.where(counted[..., None], p - target, 0.0) * (dloss / n_counted)
        return dlogits

    return loss, backward


class CutEmbedding(Module):
    """This rank's rows of the table of a whole Embedding. A call returns the same vectors as the whole; `unembed` makes
    the logits of this rank's tokens. The whole stays unchanged.
    """

    def __init__(self, whole: Embedding, group: Group) -> None:
        rows = stretch(len(whole.table.value), group)
        if rows.start == rows.stop:
            raise ValueError(f"CutEmbedding: {len(whole.table.value)} tokens are too few for {group.size} ranks")
        self._rows, self._group = rows, group
        self.table = Parameter(np.zeros(1))
        self.table.value, self.table.grad = whole.table.value[rows].copy(), whole.table.grad[rows].copy()

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """y = table[ids]. ids: (...); y: (..., width), the same on all ranks. backward(dy) returns None."""
        xp = array_module(ids)
        here = (ids >= self._rows.start) & (ids < self._rows.stop)
        rows, embedding_backward = self.ops.embedding(xp.where(here, ids - self._rows.start, 0), self.table.value)
        y, reduce_backward = all_reduce(xp.where(here[..., None], rows, 0.0), self._group)

        def backward(dy: Array) -> None:
            drows = xp.where(here[..., None], reduce_backward(dy), 0.0)
            self.table.grad += embedding_backward(drows)

        return y, backward

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """logits = x tableᵀ of this rank's tokens. x: (..., width), the same on all ranks. backward returns dx."""
        copied, identity_backward = identity(x, self._group)
        logits, linear_backward = self.ops.linear(copied, self.table.value.T)

        def backward(dlogits: Array) -> Array:
            dcopied, dtransposed = linear_backward(dlogits)
            self.table.grad += dtransposed.T
            return identity_backward(dcopied)

        return logits, backward


class _CutOps:
    """The ops of a model whose vocabulary is cut: unchanged, except for the cross-entropy over the group."""

    def __init__(self, group: Group, vocabulary: int) -> None:
        self._group, self._vocabulary = group, vocabulary

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name)

    def cross_entropy(
        self, logits: Array, targets: Array, ignore_index: int = -100, label_smoothing: float = 0.0
    ) -> tuple[Array, Pullback]:
        """See vocabulary_cross_entropy."""
        return vocabulary_cross_entropy(logits, targets, self._group, self._vocabulary, ignore_index, label_smoothing)


def cut_vocabulary(model: LanguageModel | Transformer, group: Group) -> None:
    """Replace every table of tokens in a model by this rank's part, and the loss by the loss over the group."""
    if not isinstance(model.output, Embedding) and any(type(p) is Parameter for p in vars(model.output).values()):
        raise ValueError("cut: a model with a bias for each token's logit cannot be cut")
    kept: dict[int, CutEmbedding] = {}  # by the id of the whole: one table may have several names
    vocabulary = model.config.vocabulary if isinstance(model, LanguageModel) else model.config.target_vocabulary
    for _, module in list(model.modules()):
        for name, whole in vars(module).items():
            if isinstance(whole, Embedding):
                setattr(module, name, kept.setdefault(id(whole), CutEmbedding(whole, group)))
    model.ops = _CutOps(group, vocabulary)
