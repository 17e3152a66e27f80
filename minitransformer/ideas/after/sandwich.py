"""A norm after a sub-layer, inside the residual connection, with one before it or without.

    y = x + norm_2(f(norm_1(x)))      Gemma Team 2024, "Gemma 2", section 2
    y = x + norm(f(x))                Liu et al. 2022, "Swin Transformer V2", section 3.2

norm_1 is that of `layers.Residual` in pre-norm order; `Normed` is f with norm_2 after it; `NormedUpdate` is the second
line. So every update enters the sum with a learned size. Gemma's norms multiply by 1 + γ, so weight decay pulls the
gain towards 1, not towards 0.
"""

from __future__ import annotations

import copy
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared
from ...core.layers import Cost, LayerNorm, Module, Residual, RMSNorm


class OffsetRMSNorm(RMSNorm):
    """(1 + γ) * x / √(mean(x²) + ε) over the last axis. x, y: (..., width). γ starts at zero."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__(width, eps)
        self.gamma.value = self.gamma.value * 0.0

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        self.takes(x, self.gamma.value, self.gamma.value.size, "its width")
        y, norm_backward = self.ops.rms_norm(x, 1.0 + self.gamma.value, self.eps)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, self.gamma.value)
            dx, dgain = norm_backward(dy)
            self.gamma.grad += dgain  # the gain is 1 + γ, so they have one gradient
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """As RMSNorm, and the gain."""
        return super().cost(batch, length) + Cost(kept=self.gamma.value.size)


class Normed(Module):
    """y = norm(f(x)). f: a sub-layer of `layers.Residual`, or a map, and then this is a map. x, y: (..., D)."""

    def __init__(self, sublayer: Any, norm: LayerNorm | RMSNorm) -> None:
        self.sublayer, self.norm = sublayer, norm

    @property
    def d_in(self) -> int:
        """The width of x."""
        return self.sublayer.d_in

    @property
    def d_out(self) -> int:
        """The width of y."""
        return self.norm.gamma.value.size

    def __call__(self, x: Array, **how: Any) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        update, sublayer_backward = self.sublayer(x, **how)
        y, norm_backward = self.norm(update)

        def backward(dy: Array) -> Array:
            dupdate = norm_backward(dy)
            dx = sublayer_backward(dupdate)
            return dx

        return y, backward

    def new_cache(self) -> Any:
        """An empty cache for the part that mixes the positions."""
        return self.sublayer.new_cache()

    def part(self, columns: slice) -> Columns:
        """These columns of y. The norm needs all of f(x), so a copy of the whole computes them."""
        return Columns(copy.deepcopy(self), columns)


class Columns(Module):
    """y = f(x)[..., columns]: some columns of what a map computes."""

    def __init__(self, whole: Any, columns: slice) -> None:
        self.whole, self.columns = whole, columns

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        all_of_them, whole_backward = self.whole(x)
        y = all_of_them[..., self.columns]

        def backward(dy: Array) -> Array:
            of_all = array_module(dy).zeros_like(all_of_them)
            of_all[..., self.columns] = dy
            return whole_backward(of_all)

        return y, backward

    @property
    def d_in(self) -> int:
        """The width of x."""
        return self.whole.d_in

    @property
    def d_out(self) -> int:
        """The width of y."""
        return len(range(self.whole.d_out)[self.columns])


class NormedUpdate(Residual):
    """y = x + dropout(norm(f(x))): the norm stands inside the residual connection, after f, which reads no memory."""

    @declared("0 <= dropout < 1")
    def __init__(self, sublayer: Module, norm: LayerNorm | RMSNorm, dropout: float = 0.0) -> None:
        self.sublayer, self.norm, self.dropout = sublayer, norm, dropout

    def __call__(  # type: ignore[override]  # it reads no memory
        self, x: Array, *, rng: Rng | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. x, y: (..., D)."""
        update, sublayer_backward = self.sublayer(x, rng=rng, **how)
        normalized, norm_backward = self.norm(update)
        kept, dropout_backward = self.ops.dropout(normalized, self.dropout, rng)
        y = x + kept

        def backward(dy: Array) -> Array:
            dkept = dy
            dnormalized = dropout_backward(dkept)
            dupdate = norm_backward(dnormalized)
            dthrough = sublayer_backward(dupdate)
            dx = dy + dthrough
            return dx

        return y, backward
