"""Recurrent cells, the layers before attention: a cell is one step through time.

A cell reads one token and a state, and returns the next state. `inputs` is the token's part of the sums, x W_x + b. It
does not depend on the state, so a layer computes it for all tokens in one product. W multiplies the state. σ is the
logistic function, with σ' = σ (1 - σ), and tanh' = 1 - tanh².

Plain, Elman 1990, "Finding Structure in Time":

    h' = tanh(inputs + h W)

LSTM, Hochreiter and Schmidhuber 1997; forget gate, Gers et al. 2000. The state is the hidden state next to the cell:

    i, f, g, o: inputs + h W                four vectors side by side
    c' = σ(f) * c + σ(i) * tanh(g)          forget some of the cell, write some of the candidate
    h' = σ(o) * tanh(c')                    show some of the cell

GRU, Cho et al. 2014, with the reset after the product, as in most libraries:

    r, z, n: h W + b                        to which the inputs are added:
    g  = tanh(inputs_n + σ(inputs_r + r) * n)           the candidate
    h' = (1 - z') * g + z' * h,   z' = σ(inputs_z + z)  a mean of the candidate and the old state

Backward takes the lines in reverse. In the plain cell a = inputs + h W gets da = dh' * (1 - h'²), and

    dh = da Wᵀ,     dW = hᵀ da

Over T steps dh is multiplied by T such factors: it vanishes if they are small and explodes if they are large (Bengio et
al. 1994). The gradient of the LSTM's cell avoids this: dc = dc' * σ(f), without a matrix. Where the forget gate is open
it passes unchanged. c' is used twice, so dc' is the sum of what comes from the next cell and from h':

    dc' += dh' * σ(o) * (1 - tanh²(c'))

The GRU uses the old state in the three products and in the mean: dh = (dr, dz, dn) Wᵀ + dh' * z'.

A layer unrolls a cell through time: s_t = cell(x_t W_x + b, s_{t-1}), and y_t is the hidden part of s_t. Where a token
is padding, the state stays as it was. Backward runs through time in reverse (Werbos 1990, "Backpropagation through
time"). The state s_t was used twice, for y_t and for s_{t+1}, so its gradient is the sum of both. W is used at every
step, so its gradient is a sum over all steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_array, check_mask, check_shape
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers.cache import no_backward
from ...core.layers.linear import Linear
from ...core.layers.module import Module, Parameter, generator
from ...core.layers.part_cost import Cost
from ...core.ops.activations import logistic
from ...core.ops.linear import linear
from .state_cache import StateCache


@op("inputs, h, new: (..., H); weight: (H, H)")
@in_float32
def rnn_cell(inputs: Array, h: Array, weight: Array) -> tuple[Array, Pullback]:
    """h' = tanh(inputs + h W). Elman 1990.

    backward(dnew) returns (dinputs, dh, dweight).
    """
    xp = array_module(inputs)
    carried, linear_backward = linear(h, weight)
    new = xp.tanh(inputs + carried)

    def backward(dnew: Array) -> tuple[Array, Array, Array]:
        dcarried = dnew * (1.0 - new * new)
        dinputs = dcarried
        dh, dweight = linear_backward(dcarried)
        return dinputs, dh, dweight

    return new, backward


@op("inputs: (..., 4 H); state, new: (..., 2 H); weight: (H, 4 H)")
@in_float32
def lstm_cell(inputs: Array, state: Array, weight: Array) -> tuple[Array, Pullback]:
    """One step of an LSTM. inputs: the token's part of the sums i, f, g and o.

    state and the result: the hidden state, then the cell. Hochreiter and Schmidhuber 1997.
    backward(dnew) returns (dinputs, dstate, dweight).
    """
    xp = array_module(inputs)
    size = weight.shape[0]
    hidden = state[..., :size]
    cell = state[..., size:]
    carried, linear_backward = linear(hidden, weight)
    sums = inputs + carried
    write = logistic(sums[..., :size])
    keep = logistic(sums[..., size : 2 * size])
    candidate = xp.tanh(sums[..., 2 * size : 3 * size])
    show = logistic(sums[..., 3 * size :])
    new_cell = keep * cell + write * candidate
    shown = xp.tanh(new_cell)
    new = xp.stack([show * shown, new_cell], axis=-2).reshape(state.shape)

    def backward(dnew: Array) -> tuple[Array, Array, Array]:
        dhidden_out = dnew[..., :size]
        dshown = dhidden_out * show
        dnew_cell = dnew[..., size:] + dshown * (1.0 - shown * shown)
        dshow = dhidden_out * shown
        dwrite = dnew_cell * candidate
        dkeep = dnew_cell * cell
        dcandidate = dnew_cell * write
        dcell = dnew_cell * keep
        of_write = dwrite * write * (1.0 - write)
        of_keep = dkeep * keep * (1.0 - keep)
        of_candidate = dcandidate * (1.0 - candidate * candidate)
        of_show = dshow * show * (1.0 - show)
        dsums = xp.stack([of_write, of_keep, of_candidate, of_show], axis=-2).reshape(sums.shape)
        dinputs = dsums
        dhidden, dweight = linear_backward(dsums)
        dstate = xp.stack([dhidden, dcell], axis=-2).reshape(state.shape)
        return dinputs, dstate, dweight

    return new, backward


@op("inputs: (..., 3 H); h, new: (..., H); weight: (H, 3 H); bias: (3 H,)")
@in_float32
def gru_cell(inputs: Array, h: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """One step of a GRU. inputs: the token's part of the sums r, z and n. Cho et al. 2014.

    bias: added to the products with the state. backward(dnew) returns (dinputs, dh, dweight,
    dbias).
    """
    xp = array_module(inputs)
    size = weight.shape[0]
    carried, linear_backward = linear(h, weight, bias)
    reset = logistic(inputs[..., :size] + carried[..., :size])
    keep = logistic(inputs[..., size : 2 * size] + carried[..., size : 2 * size])
    recalled = carried[..., 2 * size :]
    candidate = xp.tanh(inputs[..., 2 * size :] + reset * recalled)
    new = (1.0 - keep) * candidate + keep * h

    def backward(dnew: Array) -> tuple[Array, Array, Array, Array]:
        dkeep = dnew * (h - candidate)
        dcandidate = dnew * (1.0 - keep)
        of_candidate = dcandidate * (1.0 - candidate * candidate)
        dreset = of_candidate * recalled
        drecalled = of_candidate * reset
        of_reset = dreset * reset * (1.0 - reset)
        of_keep = dkeep * keep * (1.0 - keep)
        dinputs = xp.stack([of_reset, of_keep, of_candidate], axis=-2).reshape(inputs.shape)
        dcarried = xp.stack([of_reset, of_keep, drecalled], axis=-2).reshape(inputs.shape)
        dh_carried, dweight, dbias = linear_backward(dcarried)
        dh = dh_carried + dnew * keep
        return dinputs, dh, dweight, dbias

    return new, backward


# Vectors of width H that a step keeps for backward: the old state and what the cell computes of it.
KEPT = {"rnn": 2, "lstm": 11, "gru": 10}
# The op of each cell, and how many vectors of width H are in its sums and in its state.
CELLS: dict[str, tuple[Any, int, int]] = {"rnn": (rnn_cell, 1, 1), "lstm": (lstm_cell, 4, 2), "gru": (gru_cell, 3, 1)}


class Recurrent(Module):
    """A cell ("rnn", "lstm" or "gru") unrolled through time. x: (..., T, d_in); y: (..., T, d_hidden).

    reverse: read from the last token to the first, as one half of a bidirectional layer does. W and W_x are drawn from
    U(-1/√H, 1/√H). The GRU's W has its own bias; all biases start at zero.
    """

    @declared('d_in, d_hidden > 0; cell: "rnn" or "lstm" or "gru"')
    def __init__(
        self, d_in: int, d_hidden: int, cell: str = "lstm", reverse: bool = False, rng: Rng | None = None
    ) -> None:
        rng = generator(rng)
        _, n_sums, n_states = CELLS[cell]
        limit = d_hidden**-0.5
        self.input = Linear(d_in, n_sums * d_hidden, rng=rng)
        drawn = rng.uniform(-limit, limit, (d_hidden, n_sums * d_hidden))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(n_sums * d_hidden, np.float32)) if cell == "gru" else None
        self.cell, self.reverse, self.d_hidden, self.state_width = cell, reverse, d_hidden, n_states * d_hidden

    new_cache = StateCache

    def __call__(
        self, x: Array, state: Array | None = None, mask: Array | None = None, cache: StateCache | None = None
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx, or (dx, dstate) where a state was given.

        state: the state before the first token, (..., d_hidden), for an LSTM (..., 2 d_hidden); zeros unless given.
        mask: boolean, broadcasts to (..., T), True where a token is real. With a cache, x holds only the new tokens.
        The cell continues from the cache, or from `state` if the cache is empty, and there is no backward.
        """
        self.takes_sequences(self.input.weight.value.shape[0], "d_in", x=x)
        xp = array_module(x)
        first = cache.state if cache is not None and cache.state is not None else state
        if first is None:
            first = xp.zeros((*x.shape[:-2], self.state_width), x.dtype)
        check_array("Recurrent", "state", first)
        check_shape("Recurrent", "state", first, (*x.shape[:-2], self.state_width))
        if mask is not None:
            check_mask("Recurrent", mask, x.shape[:-1], like=x)
        real = xp.broadcast_to(xp.array(True) if mask is None else mask, x.shape[:-1])
        cell = CELLS[self.cell][0]
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

    def __init__(self, d_in: int, d_hidden: int, cell: str = "lstm", rng: Rng | None = None) -> None:
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
