"""The position-wise feed-forward network. Vaswani et al. 2017, section 3.3.

    y = f(x W_1 + b_1) W_2 + b_2         where f is ReLU

It treats each position separately: two linear maps with a non-linearity between them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_shape
from ..arrays.declared import declared
from .linear import Linear
from .module import Module, generator
from .part_cost import Cost

Activation: TypeAlias = Callable[..., tuple[Array, Pullback]]

# What a config may name: the op, its options, and how many numbers stay for each unit, the output among them: of GELU
# input, output, cumulative and density.
ACTIVATIONS: dict[str, tuple[str, dict[str, str], int]] = {
    "relu": ("relu", {}, 1),
    "gelu": ("gelu", {}, 4),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}, 4),
    "silu": ("silu", {}, 2),
}
_NAMES = " or ".join(f'"{name}"' for name in ACTIVATIONS)


class FeedForward(Module):
    """x, y: (..., d_model); between them d_ff units.

    activation: any op from x to y of the same shape, or the name of one in ACTIVATIONS, as configs have it.
    """

    @declared(f"d_model, d_ff > 0; activation: {_NAMES} or an op")
    def __init__(
        self, d_model: int, d_ff: int, activation: str | Activation = "relu", bias: bool = True, rng: Rng | None = None
    ) -> None:
        rng = generator(rng)
        self.inner = Linear(d_model, d_ff, bias, rng)
        self.output = Linear(d_ff, d_model, bias, rng)
        self.activation = activation

    def __call__(self, x: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. Every sub-layer accepts rng; this one does not use it."""
        activate = self._activation()
        hidden, inner_backward = self.inner(x)
        active, activation_backward = activate(hidden)
        if active.shape != hidden.shape:
            check_shape("FeedForward", "activation(hidden)", active, hidden.shape)
        y, output_backward = self.output(active)

        def backward(dy: Array) -> Array:
            dactive = output_backward(dy)
            dhidden = activation_backward(dactive)
            dx = inner_backward(dhidden)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Kept: the input, and what the activation needs."""
        d_model, d_ff = self.inner.weight.value.shape
        return super().cost(batch, length) + Cost(kept=batch * length * (d_model + kept_by(self.activation) * d_ff))

    def _activation(self) -> Activation:
        """The op. One that has a name is taken from the module's ops, which may be fast."""
        if not isinstance(self.activation, str):
            return self.activation
        name, options, _ = ACTIVATIONS[self.activation]
        return functools.partial(getattr(self.ops, name), **options)


def kept_by(activation: str | Activation) -> int:
    """How many numbers stay for each unit; of an op without a name its input and its output are assumed to."""
    return ACTIVATIONS[activation][2] if isinstance(activation, str) else 2
