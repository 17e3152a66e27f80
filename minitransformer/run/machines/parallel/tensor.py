"""Tensor parallelism: each rank holds some of the heads, and some of the units of the feed-forward network.

vocabulary.py cuts the table of tokens and the loss.

Shoeybi et al. 2019, "Megatron-LM", section 3. Cut the first matrix of a sub-layer into columns and the last into rows:

    f(x W_1) W_2 = Σ_r f(x W_1[:, r]) W_2[r, :]

because f works on each column separately, just as attention works on each head. Rank r computes term r. Around the
terms stand two collectives, and the pullback of each is the forward pass of the other:

    x ── identity ── f(x W_1[:, r]) W_2[r, :] ── all_reduce ── + b ── y

x, y and b are copies of one value; the matrices are parts. So each rank sends y once forward and dx once backward.
"""

from __future__ import annotations

import copy
from typing import Any

from ....core.arrays.backend import Array, Pullback
from ....core.arrays.float16 import sum_over
from ....core.layers import FeedForward, Linear, Module, MultiHeadAttention, Parameter, Residual
from ....core.models import LanguageModel, Transformer
from .collectives import all_reduce, identity
from .group import Group, stretch
from .vocabulary import cut_vocabulary


class Cut(Module):
    """This rank's part of a whole FeedForward or MultiHeadAttention. Its output equals that of the whole.

    Inputs, output and gradients of inputs are the same on all ranks. The whole module stays unchanged. Its hidden
    units, or its query heads and key heads, must divide into equal stretches, one for each rank.
    """

    def __init__(self, whole: Any, group: Group) -> None:
        self._group = group
        self.part: Any = copy.deepcopy(whole)
        if isinstance(whole, MultiHeadAttention):
            turns = (part for part in (whole.turn_query, whole.turn_key) if part is not None)
            maps = (whole.query, whole.key, whole.value, whole.output)
            plain = all(isinstance(part, Linear) for part in maps) and not any(any(part.parameters()) for part in turns)
            if not whole.mix.alike or not plain:
                raise ValueError("Cut: attention with a position bias, query and key norms or a sink cannot be cut")
            n_key_heads = whole.key.d_out // whole.d_k
            counts = {"heads of queries": whole.n_heads, "heads of keys": n_key_heads}
            self.part.n_heads //= group.size
        else:
            counts = {"units": whole.inner.weight.value.shape[1]}
        for name, count in counts.items():
            if count % group.size:
                raise ValueError(f"Cut: {count} {name} do not divide into {group.size} equal parts, one for each rank")
        for linear in [part for name, part in self.part.children() if isinstance(part, Linear) and name != "output"]:
            _keep(linear.weight, 1, group)
            if linear.bias is not None:
                _keep(linear.bias, 0, group)
        last: Linear = self.part.output
        _keep(last.weight, 0, group)
        self.bias, last.bias = last.bias, None  # b is added once, not by every rank

    def __call__(self, x: Array, *others: Array, **options: Any) -> tuple[Array, Pullback]:
        """Return (y, backward), as the whole does."""
        both = [identity(each, self._group) for each in (x, *others)]
        term, part_backward = self.part(*(copied for copied, _ in both), **options)
        total, reduce_backward = all_reduce(term, self._group)
        y = total if self.bias is None else total + self.bias.value

        def backward(dy: Array) -> Any:
            if self.bias is not None:
                self.bias.grad += sum_over(dy, axis=tuple(range(dy.ndim - 1)))
            dterm = reduce_backward(dy)
            dparts = part_backward(dterm)
            dparts = dparts if isinstance(dparts, tuple) else (dparts,)
            dinputs = [identity_backward(d) for (_, identity_backward), d in zip(both, dparts, strict=True)]
            return tuple(dinputs) if len(dinputs) > 1 else dinputs[0]

        return y, backward


def cut(model: Module, group: Group) -> Any:
    """A copy of a model that holds this rank's part of every attention, feed-forward network and table of tokens.

    A language model or a translator then has the logits of this rank's tokens only; `loss` is that of the whole model.
    """
    copied = copy.deepcopy(model)
    for _, module in list(copied.modules()):
        if isinstance(module, Residual) and isinstance(module.sublayer, FeedForward | MultiHeadAttention):
            module.sublayer = Cut(module.sublayer, group)
    if isinstance(copied, LanguageModel | Transformer):
        cut_vocabulary(copied, group)
    return copied


def _keep(parameter: Parameter, axis: int, group: Group) -> None:
    """Keep this rank's stretch of an axis."""
    own = (slice(None),) * axis + (stretch(parameter.value.shape[axis], group),)
    parameter.value, parameter.grad = parameter.value[own].copy(), parameter.grad[own].copy()
