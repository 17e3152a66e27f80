"""Training in float16, with float32 master weights and a scaled loss.

Micikevicius et al. 2018, "Mixed Precision Training":

    weights   = float16(masters)                                the forward and the backward pass compute with these
    dmasters  = float32(the gradient of scale · loss) / scale
    masters  -= the optimiser's step for dmasters               in float32

Master weights (section 3.1). A float16 has 11 significant bits, so a weight of 1 cannot move by 1/4096: rounding undoes
the step. A float32 master adds up such small steps until the float16 weight changes.

Loss scaling (section 3.2). The smallest float16 is 2^-24, and many gradients are smaller. Backward is linear, so a loss
multiplied by `scale` multiplies all gradients by `scale`, which brings them into range. They are divided by the scale
in float32. The scale must not be so large that a gradient overflows, so training adjusts it: a step whose gradients are
not all finite is skipped and the scale is halved; after GOOD_STEPS good steps it is doubled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ...core.arrays.backend import Array, Pullback
from ...core.layers import Module, Parameter

FIRST_SCALE = 2.0**15
GOOD_STEPS = 2000


class MixedPrecision(Module):
    """A float32 model that computes its loss in float16. Its parameters and gradients are the model's, in float32.

    Call the pullback of a loss before the parameters move.
    """

    def __init__(self, model: Any) -> None:
        self.config = model.config
        self._masters = model
        self._half = copy.deepcopy(model).to(dtype="float16")

    def children(self) -> Iterator[tuple[str, Module]]:
        """The float16 copy, which computes."""
        yield type(self._half).__name__, self._half

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The float32 masters, under their names in the model."""
        yield from self._masters.parameters()

    def loss(self, *inputs: Any, **options: Any) -> tuple[Array, Pullback]:
        """The model's loss, a float32. Numbers outside the range of float16 become infinite, so check the result."""
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
    """The scale after a step with or without finite gradients, and the number of good steps since it last changed."""
    if not finite:
        return scale / 2.0, 0
    if good_steps + 1 == GOOD_STEPS:
        return scale * 2.0, 0
    return scale, good_steps + 1
