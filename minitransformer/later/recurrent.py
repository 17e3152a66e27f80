"""Recurrent layers: a cell unrolled through time, one token after another.

    s_t = cell(x_t W_x + b, s_{t-1}),     y_t = the hidden part of s_t

The share of the tokens, x W_x + b, is one product for the whole sequence; what carries the state from step to step is
in ops/recurrent.py. Where a token is padding, the state stays as it was: s_t = s_{t-1}.

Backward runs through time in reverse (Werbos 1990, "Backpropagation through time"). The state s_t was used twice, for
y_t and for s_{t+1}, so its gradient is the sum of both. W is used at every step and collects from every step.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback, array_module
from ..arrays.boundary import check_array, check_flags, check_floats, check_last, check_mask, check_shape, check_sizes
from ..layers.cache import StateCache, no_backward
from ..layers.cost import Cost
from ..layers.linear import Linear
from ..layers.module import Module, Parameter, generator

# Vectors of width H that a step keeps for backward: the old state and what the cell computes of it.
KEPT = {"rnn": 2, "lstm": 11, "gru": 10}
CELLS = {"rnn": (1, 1), "lstm": (4, 2), "gru": (3, 1)}  # vectors of width H in the sums, and in the state


class Recurrent(Module):
    """A cell ("rnn", "lstm" or "gru") unrolled through time. x: (..., T, d_in); y: (..., T, d_hidden).

    reverse: from the last token to the first, as one half of a layer that reads both ways. W and W_x are drawn from
    U(-1/√H, 1/√H). The GRU's W has a bias of its own; it starts at zero, as all biases do.
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        cell: str = "lstm",
        reverse: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("Recurrent", d_in=d_in, d_hidden=d_hidden)
        check_flags("Recurrent", reverse=reverse)
        if cell not in CELLS:
            raise ValueError(f"Recurrent: cell must be one of {', '.join(CELLS)}, got {cell!r}")
        rng = generator(rng)
        n_sums, n_states = CELLS[cell]
        limit = d_hidden**-0.5
        self.input = Linear(d_in, n_sums * d_hidden, rng=rng)
        drawn = rng.uniform(-limit, limit, (d_hidden, n_sums * d_hidden))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(n_sums * d_hidden, np.float32)) if cell == "gru" else None
        self.cell, self.reverse, self.d_hidden, self.state_width = cell, reverse, d_hidden, n_states * d_hidden

    def new_cache(self) -> StateCache:
        """An empty cache for this layer."""
        return StateCache()

    def __call__(
        self,
        x: Array,
        state: Array | None = None,
        mask: Array | None = None,
        cache: StateCache | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx, or (dx, dstate) where a state was given.

        state: (..., d_hidden), of an LSTM (..., 2 d_hidden), before the first token; zeros unless given. mask: boolean,
        broadcasts to (..., T), True where a token is real. With a cache, x holds only the new tokens: the state goes on
        from the cache, or from `state` if the cache is empty, and there is no backward.
        """
        check_floats("Recurrent", x=x)
        if x.ndim < 2:
            raise ValueError(f"Recurrent: x must be (..., T, {self.input.weight.value.shape[0]}), got {x.shape}")
        check_last("Recurrent", "x", x, self.input.weight.value.shape[0], "d_in")
        xp = array_module(x)
        first = cache.state if cache is not None and cache.state is not None else state
        if first is None:
            first = xp.zeros((*x.shape[:-2], self.state_width), x.dtype)
        check_array("Recurrent", "state", first)
        check_shape("Recurrent", "state", first, (*x.shape[:-2], self.state_width))
        if mask is not None:
            check_mask("Recurrent", mask, x.shape[:-1], like=x)
        everywhere = xp.ones(x.shape[:-1], dtype=bool)
        real = everywhere if mask is None else everywhere & mask
        cell = getattr(self.ops, f"{self.cell}_cell")
        carried = (self.weight.value,) if self.bias is None else (self.weight.value, self.bias.value)
        order = range(x.shape[-2])[:: -1 if self.reverse else 1]

        sums, input_backward = self.input(x)
        before, hidden, pullbacks = first, {}, {}
        for t in order:
            after, pullbacks[t] = cell(sums[..., t, :], before, *carried)
            before = xp.where(real[..., t, None], after, before)
            hidden[t] = before[..., : self.d_hidden]
        y = xp.stack([hidden[t] for t in sorted(hidden)], axis=-2)
        if cache is not None:
            cache.keep(before, x.shape[-2])
            return y, no_backward

        def backward(dy: Array) -> Array | tuple[Array, Array]:
            steps = {}
            from_next = xp.zeros((*x.shape[:-2], self.state_width), x.dtype)
            for t in reversed(order):
                total = from_next.copy()
                total[..., : self.d_hidden] += dy[..., t, :]
                through = xp.where(real[..., t, None], total, 0.0)
                steps[t], from_cell, *of_weights = pullbacks[t](through)
                self.weight.grad += of_weights[0]
                if self.bias is not None:
                    self.bias.grad += of_weights[1]
                from_next = from_cell + (total - through)  # padding passed its state on unchanged
            dsums = xp.stack([steps[t] for t in sorted(steps)], axis=-2)
            dx = input_backward(dsums)
            if state is None:
                return dx
            dstate = from_next
            return dx, dstate

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """The tokens' share in one product, and a product for each step. Kept: the input, and what each step needs."""
        rows = batch * length
        kept = rows * (self.input.weight.value.shape[0] + KEPT[self.cell] * self.d_hidden)
        return super().cost(batch, length) + Cost(flops=2 * rows * self.weight.value.size, kept=kept)


class Bidirectional(Module):
    """Two recurrent layers side by side, one in each direction. x: (..., T, d_in); y: (..., T, d_hidden).

    d_hidden must be even. The second half of y at the first token has read the whole sequence.

    Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks".
    """

    def __init__(self, d_in: int, d_hidden: int, cell: str = "lstm", rng: np.random.Generator | None = None) -> None:
        if d_hidden % 2:
            raise ValueError(f"Bidirectional: d_hidden must be even, for two directions; got {d_hidden}")
        rng = generator(rng)
        self.onward = Recurrent(d_in, d_hidden // 2, cell, rng=rng)
        self.back = Recurrent(d_in, d_hidden // 2, cell, reverse=True, rng=rng)

    def __call__(self, x: Array, mask: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. mask: as in Recurrent."""
        first, first_backward = self.onward(x, mask=mask)
        second, second_backward = self.back(x, mask=mask)
        size = first.shape[-1]
        y = array_module(x).stack([first, second], axis=-2).reshape(*first.shape[:-1], 2 * size)

        def backward(dy: Array) -> Array:
            dfirst = dy[..., :size]
            dsecond = dy[..., size:]
            dx = first_backward(dfirst) + second_backward(dsecond)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Both directions, which keep one input."""
        return super().cost(batch, length) + Cost(kept=-batch * length * self.onward.input.weight.value.shape[0])
