"""Residual connections, in two orders, and activation checkpointing: wrappers around a sub-layer or a layer.

    post-norm:  y = norm(x + dropout(f(x)))       Vaswani et al. 2017, section 3.1
    pre-norm:   y = x + dropout(f(norm(x)))       Xiong et al. 2020, "On Layer Normalization in the Transformer ..."

In backward the gradient of the sum takes both paths: unchanged along the residual path, and through f. With pre-norm
the residual path goes through no norm from the last layer to the first. That is why deep pre-norm stacks train without
warm-up.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_shape
from ..arrays.declared import declared
from .module import Module, Parameter
from .normalization import LayerNorm, RMSNorm
from .part_cost import Cost


class Residual(Module):
    """A sub-layer f with its norm, its dropout and the residual connection.

    f is called as f(x, *others, rng=rng, **options). Its pullback returns dx or (dx, *dothers), and so does this one's.
    """

    @declared('order: "pre" or "post"; 0 <= dropout < 1')
    def __init__(self, sublayer: Module, norm: LayerNorm | RMSNorm, order: str = "post", dropout: float = 0.0) -> None:
        self.sublayer, self.norm = sublayer, norm
        self.order, self.dropout = order, dropout

    def __call__(self, x: Array, *others: Array, rng: Rng | None = None, **options: Any) -> tuple[Array, Pullback]:
        """Return (y, backward). x, y: (..., D)."""
        apply = self._pre if self.order == "pre" else self._post
        return apply(x, others, rng, options)

    def cost(self, batch: int, length: int) -> Cost:
        """What is inside, and the factor of the dropout."""
        dropped = batch * length * self.norm.gamma.value.size if self.dropout else 0
        return super().cost(batch, length) + Cost(kept=dropped)

    def _post(
        self, x: Array, others: tuple[Array, ...], rng: Rng | None, options: dict[str, Any]
    ) -> tuple[Array, Pullback]:
        update, sublayer_backward = self.sublayer(x, *others, rng=rng, **options)
        if update.shape != x.shape:
            check_shape("Residual", "what the sub-layer returns", update, x.shape)
        kept, dropout_backward = self.ops.dropout(update, self.dropout, rng)
        total = x + kept
        y, norm_backward = self.norm(total)

        def backward(dy: Array) -> Any:
            dtotal = norm_backward(dy)
            dkept = dtotal
            dupdate = dropout_backward(dkept)
            dthrough, *dothers = _as_tuple(sublayer_backward(dupdate))
            dx = dtotal + dthrough
            return (dx, *dothers) if dothers else dx

        return y, backward

    def _pre(
        self, x: Array, others: tuple[Array, ...], rng: Rng | None, options: dict[str, Any]
    ) -> tuple[Array, Pullback]:
        normalized, norm_backward = self.norm(x)
        update, sublayer_backward = self.sublayer(normalized, *others, rng=rng, **options)
        if update.shape != x.shape:
            check_shape("Residual", "what the sub-layer returns", update, x.shape)
        kept, dropout_backward = self.ops.dropout(update, self.dropout, rng)
        y = x + kept

        def backward(dy: Array) -> Any:
            dkept = dy
            dupdate = dropout_backward(dkept)
            dnormalized, *dothers = _as_tuple(sublayer_backward(dupdate))
            dx = dy + norm_backward(dnormalized)
            return (dx, *dothers) if dothers else dx

        return y, backward


def _as_tuple(gradients: Any) -> tuple[Array, ...]:
    return gradients if isinstance(gradients, tuple) else (gradients,)


class Recompute(Module):
    """Activation checkpointing: keep only the inputs of a layer, and run it again before its backward pass.

    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4. It costs a second forward pass and
    saves the memory of everything that the pullback would keep. Dropout is replayed: the second pass starts from a copy
    of the generator.
    """

    def __init__(self, layer: Module) -> None:
        self.layer = layer

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The layer's own parameters under their own names: recomputing changes no saved state."""
        yield from self.layer.parameters()

    def __call__(self, *inputs: Array, **options: Any) -> tuple[Array, Pullback]:
        """Return (y, backward), as the layer does. With a cache there is no backward pass, so nothing is kept."""
        if options.get("cache") is not None:
            return self.layer(*inputs, **options)
        given, before = [_copied(x) for x in inputs], {name: _copied(x) for name, x in options.items()}
        y = self.layer(*inputs, **options)[0]

        def backward(dy: Array) -> Any:
            _, layer_backward = self.layer(*map(_copied, given), **{name: _copied(x) for name, x in before.items()})
            return layer_backward(dy)

        return y, backward


def _copied(x: Any) -> Any:
    """A copy of a generator, which draws the same numbers again; any other object itself."""
    return copy.deepcopy(x) if isinstance(x, np.random.Generator) else x
