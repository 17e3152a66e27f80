"""The original GRU, which resets the state before the matrix product. Cho et al. 2014, equations 5 to 8.

    r  = σ(inputs_r + h W_r)                    forget, before anything is computed from the state
    z' = σ(inputs_z + h W_z)
    m  = r * h
    g  = tanh(inputs_n + m W_n)                 the candidate
    h' = (1 - z') * g + z' * h

`gru_cell` multiplies by r after the product, as most libraries do: then one product serves all three sums. Here there
are two products: h (W_r, W_z) and m W_n. Backward, with the gradient da of the candidate's sum a = inputs_n + m W_n:

    da = dg * (1 - g²),     dm = da W_nᵀ,     dr = dm * h

and h gets dm * r, dh' * z', and what comes through r and z: their gradients times (W_r, W_z)ᵀ.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32
from ...core.ops.activations import logistic
from ...core.ops.linear import linear


@op("inputs: (..., 3 H); h, new: (..., H); weight: (H, 3 H)")
@in_float32
def gru_cell_reset_first(inputs: Array, h: Array, weight: Array) -> tuple[Array, Pullback]:
    """One step of the paper's GRU. inputs: the sums of r, z and n with their biases.

    Cho et al. 2014. backward(dnew) returns (dinputs, dh, dweight).
    """
    xp = array_module(inputs)
    size = weight.shape[0]
    gates, gates_backward = linear(h, weight[:, : 2 * size])
    reset = logistic(inputs[..., :size] + gates[..., :size])
    keep = logistic(inputs[..., size : 2 * size] + gates[..., size:])
    remembered = reset * h
    recalled, recalled_backward = linear(remembered, weight[:, 2 * size :])
    candidate = xp.tanh(inputs[..., 2 * size :] + recalled)
    new = (1.0 - keep) * candidate + keep * h

    def backward(dnew: Array) -> tuple[Array, Array, Array]:
        dkeep = dnew * (h - candidate)
        dcandidate = dnew * (1.0 - keep)
        drecalled = dcandidate * (1.0 - candidate * candidate)
        dremembered, dweight_recalled = recalled_backward(drecalled)
        dreset = dremembered * h
        of_reset = dreset * reset * (1.0 - reset)
        of_keep = dkeep * keep * (1.0 - keep)
        dgates = xp.concatenate([of_reset, of_keep], axis=-1)
        dh_gates, dweight_gates = gates_backward(dgates)
        dinputs = xp.concatenate([dgates, drecalled], axis=-1)
        dh = dh_gates + dremembered * reset + dnew * keep
        dweight = xp.concatenate([dweight_gates, dweight_recalled], axis=-1)
        return dinputs, dh, dweight

    return new, backward
