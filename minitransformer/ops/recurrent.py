"""Recurrent cells: one step through time. What came before attention.

A cell reads one token and a state, and returns the next state. `inputs` is the token's share of the sums, x W_x + b: it
does not depend on the state, so a layer computes it for all tokens in one product. W carries the state. σ is the
logistic function, with σ' = σ (1 - σ), and tanh' = 1 - tanh².

Plain, Elman 1990, "Finding Structure in Time":

    h' = tanh(inputs + h W)

LSTM, Hochreiter and Schmidhuber 1997; its forget gate, Gers et al. 2000. The state is the hidden state beside the cell:

    i, f, g, o = inputs + h W               four vectors side by side
    c' = σ(f) c + σ(i) tanh(g)              forget some of the cell, write some of the candidate
    h' = σ(o) tanh(c')                      show some of the cell

GRU, Cho et al. 2014, with the reset after the product, as libraries have it:

    r, z, n = h W + b                       to which the inputs are added:
    g  = tanh(inputs_n + σ(inputs_r + r) n)         the candidate
    h' = (1 - z') g + z' h,   z' = σ(inputs_z + z)  a mean of the candidate and the old state

Backward takes the lines in reverse. In the plain cell a = inputs + h W gets da = dh' (1 - h'²), and

    dh = da Wᵀ,     dW = hᵀ da

Through T steps dh is multiplied by T such factors: if they are small it vanishes, if they are large it explodes
(Bengio et al. 1994). The LSTM's cell goes another way: dc = dc' σ(f), without a matrix. Where the forget gate is open
the gradient passes unchanged. c' is used twice, so dc' is the sum of what comes from the next cell and from h':

    dc' += dh' σ(o) (1 - tanh²(c'))

The GRU's old state is used three times, in the products, and in the mean: dh = (dr, dz, dn) Wᵀ + dh' z'.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_floats, check_shape, op
from ..arrays.float16 import in_float32
from .activations import logistic
from .linear import linear


@op
@in_float32
def rnn_cell(inputs: Array, h: Array, weight: Array) -> tuple[Array, Pullback]:
    """h' = tanh(inputs + h W). inputs, h and the result: (..., H); weight: (H, H). Elman 1990.

    backward(dnew) returns (dinputs, dh, dweight).
    """
    xp = check_floats("rnn_cell", inputs=inputs, h=h, weight=weight)
    _check_sizes("rnn_cell", inputs, "h", h, weight, n_sums=1, n_states=1)
    carried, linear_backward = linear(h, weight)
    new = xp.tanh(inputs + carried)

    def backward(dnew: Array) -> tuple[Array, Array, Array]:
        dcarried = dnew * (1.0 - new * new)
        dinputs = dcarried
        dh, dweight = linear_backward(dcarried)
        return dinputs, dh, dweight

    return new, backward


@op
@in_float32
def lstm_cell(inputs: Array, state: Array, weight: Array) -> tuple[Array, Pullback]:
    """One step of an LSTM. inputs: (..., 4 H), the sums of i, f, g and o; weight: (H, 4 H).

    state and the result: (..., 2 H), the hidden state and then the cell. Hochreiter and Schmidhuber 1997.
    backward(dnew) returns (dinputs, dstate, dweight).
    """
    xp = check_floats("lstm_cell", inputs=inputs, state=state, weight=weight)
    _check_sizes("lstm_cell", inputs, "state", state, weight, n_sums=4, n_states=2)
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


@op
@in_float32
def gru_cell(inputs: Array, h: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """One step of a GRU. inputs: (..., 3 H), the sums of r, z and n; h and the result: (..., H). Cho et al. 2014.

    weight: (H, 3 H); bias: (3 H,), of the products with the state. backward(dnew) returns (dinputs, dh, dweight,
    dbias).
    """
    xp = check_floats("gru_cell", inputs=inputs, h=h, weight=weight, bias=bias)
    _check_sizes("gru_cell", inputs, "h", h, weight, n_sums=3, n_states=1)
    size = weight.shape[0]
    check_shape("gru_cell", "bias", bias, (3 * size,))
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


def _check_sizes(where: str, inputs: Array, name: str, state: Array, weight: Array, n_sums: int, n_states: int) -> None:
    if weight.ndim != 2 or weight.shape[1] != n_sums * weight.shape[0]:
        shape = "(H, H)" if n_sums == 1 else f"(H, {n_sums} H)"
        raise ValueError(f"{where}: weight must have the shape {shape}, got {weight.shape}")
    size = weight.shape[0]
    if inputs.ndim == 0 or inputs.shape[-1] != n_sums * size:
        raise ValueError(f"{where}: the last axis of inputs must be {n_sums * size}, got shape {inputs.shape}")
    check_shape(where, name, state, (*inputs.shape[:-1], n_states * size))
