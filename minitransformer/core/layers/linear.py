"""Linear: the layer that owns a weight matrix and a bias."""

from __future__ import annotations

import copy
import math

import numpy as np

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.declared import declared
from .module import Module, Parameter, generator
from .part_cost import Cost


class Linear(Module):
    """y = x W + b. x: (..., d_in); y: (..., d_out); weight: (d_in, d_out); bias: (d_out,).

    The weight starts uniform in ±√(6 / (d_in + d_out)) (Glorot and Bengio 2010, equation 16). This keeps the variances
    of values and gradients about constant from layer to layer. The bias starts at zero. backward(dy) returns dx.
    """

    @declared("d_in, d_out > 0")
    def __init__(self, d_in: int, d_out: int, bias: bool = True, rng: Rng | None = None) -> None:
        limit = math.sqrt(6.0 / (d_in + d_out))
        self.weight = Parameter(generator(rng).uniform(-limit, limit, (d_in, d_out)).astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(d_out, np.float32)) if bias else None

    @property
    def d_in(self) -> int:
        """The width of x."""
        return self.weight.value.shape[0]

    @property
    def d_out(self) -> int:
        """The width of y."""
        return self.weight.value.shape[1]

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        self.takes(x, self.weight.value, len(self.weight.value), "d_in")
        bias = None if self.bias is None else self.bias.value
        y, linear_backward = self.ops.linear(x, self.weight.value, bias)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, self.weight.value)
            dx, dweight, *dbias = linear_backward(dy)
            self.weight.grad += dweight
            if self.bias is not None:
                self.bias.grad += dbias[0]
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Its product. The input is counted by what calls it: three maps may read, and keep, the same."""
        return Cost(flops=2 * batch * length * self.weight.value.size)

    def part(self, rows: slice = slice(None), columns: slice = slice(None)) -> Linear:
        """A copy of these rows and columns of the weight. Where rows are left out, so is the bias: the parts add up."""
        part = copy.copy(self)
        part.weight = self.weight.part((rows, columns))
        part.bias = None if self.bias is None or rows != slice(None) else self.bias.part(columns)
        return part
