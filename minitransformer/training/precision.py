"""Training in float16, with float32 master weights and a scaled loss.

Micikevicius et al. 2018, "Mixed Precision Training":

    weights   = float16(masters)                                what the forward and the backward pass compute with
    dmasters  = float32(the gradient of scale · loss) / scale
    masters  -= what the optimiser makes of dmasters            in float32

Master weights (section 3.1). A float16 has 11 significant bits: a weight of 1 that shall move by 1/4096 would stay
where it is, step after step. A float32 master collects such steps until they make a float16 of difference.

Loss scaling (section 3.2). The smallest float16 is 2^-24, and many gradients are smaller. Backward is linear, so a loss
multiplied by `scale` gives all gradients multiplied by it, far from that limit; float32 has room for the division. The
scale must only not be so large that a gradient overflows, so it is found on the way: a step whose gradients are not all
finite is skipped and the scale halved, and after GOOD_STEPS steps without such a one it is doubled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ..arrays.backend import Array, Pullback
from ..layers import Module, Parameter

FIRST_SCALE = 2.0**15
GOOD_STEPS = 2000


class MixedPrecision(Module):
    """A float32 model that computes its loss in float16. Parameters and their gradients are the model's, in float32.

    The pullback of a loss must be called before the parameters move.
    """

    def __init__(self, model: Any) -> None:
        self.config = model.config
        self._masters = model
        self._half = copy.deepcopy(model).to(dtype="float16")

    def children(self) -> Iterator[tuple[str, Module]]:
        """The float16 copy, which computes."""
        yield type(self._half).__name__, self._half

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The float32 masters, under the names that they have in the model."""
        yield from self._masters.parameters()

    def loss(self, *inputs: Any, **options: Any) -> tuple[Array, Pullback]:
        """The model's loss, a float32. Numbers beyond float16 become infinite, so look at the result."""
        masters = [parameter for _, parameter in self.parameters()]
        halves = [parameter for _, parameter in self._half.parameters()]
        for master, half in zip(masters, halves, strict=True):
            half.value[...] = master.value.astype("float16")
        loss, half_backward = self._half.loss(*inputs, **options)

        def backward(dloss: Array | float = 1.0) -> None:
            self._half.zero_grad()
            half_backward(dloss)
            for master, half in zip(masters, halves, strict=True):
                master.grad += half.grad

        return loss, backward


def next_scale(scale: float, good_steps: int, finite: bool) -> tuple[float, int]:
    """The scale after a step whose gradients were all finite, or were not, and the good steps since it last changed."""
    if not finite:
        return scale / 2.0, 0
    if good_steps + 1 == GOOD_STEPS:
        return scale * 2.0, 0
    return scale, good_steps + 1
