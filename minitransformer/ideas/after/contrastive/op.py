"""A contrastive loss. Radford et al. 2021, "Learning Transferable Visual Models From ... Supervision", section 2.3.

N pictures and their N texts are vectors of one space. Which text belongs to which picture? Every vector gets length 1,
so a product of two is the cosine of their angle. A learned temperature, in the form s = log_scale, spreads the cosines:

    u_i = x_i / ‖x_i‖,  v_j = z_j / ‖z_j‖          S_ij = eˢ u_i · v_j
    P = softmax(S),     Q = softmax(Sᵀ)ᵀ           of the rows, and of the columns
    loss = -(tr(log P) + tr(log Q)) / (2 N)

Row i asks which text belongs to picture i, column j which picture belongs to text j. The right answer is on the
diagonal. The other N - 1 of a batch are the wrong answers, so nobody has to write any.

Backward. A vector of length 1 can only turn: what lies along it drops out of the gradient,

    dx_i = (du_i - u_i (u_i · du_i)) / ‖x_i‖

With I the identity,

    dS = (P - I + Q - I) / (2 N)                   as of two cross-entropies
    du = eˢ dS v,   dv = eˢ dSᵀ u,   ds = Σ_ij dS_ij S_ij     since eˢ is its own slope
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32, in_float32_with_result


@op("x, y: (..., D)")
@in_float32
def unit_length(x: Array) -> tuple[Array, Pullback]:
    """y = x / ‖x‖, each vector of length 1. One of zeros has no direction: it stays 0, and so does its gradient.

    backward(dy) returns dx.
    """
    xp = array_module(x)
    largest = abs(x).max(axis=-1, keepdims=True)
    safe = xp.where(largest == 0.0, 1.0, largest)  # a square of a huge or a tiny number would leave the range
    length = safe * xp.sqrt(((x / safe) * (x / safe)).sum(axis=-1, keepdims=True))
    inverse = xp.where(length == 0.0, 0.0, 1.0 / xp.where(length == 0.0, 1.0, length))
    y = x * inverse

    def backward(dy: Array) -> Array:
        along = (dy * y).sum(axis=-1, keepdims=True)
        dx = (dy - along * y) * inverse
        return dx

    return y, backward


@op("x: (N, D); z: (M, D); log_scale: (); scores: (N, M)")
@in_float32
def scaled_cosines(x: Array, z: Array, log_scale: Array) -> tuple[Array, Pullback]:
    """scores_ij = e^log_scale · cosine of the angle between x_i and z_j. backward(dscores): (dx, dz, dlog_scale)."""
    xp = array_module(x)
    u, u_backward = unit_length(x)
    v, v_backward = unit_length(z)
    cosines = u @ v.T
    scores = xp.exp(log_scale) * cosines

    def backward(dscores: Array) -> tuple[Array, Array, Array]:
        dcosines = xp.exp(log_scale) * dscores
        du = dcosines @ v
        dv = dcosines.T @ u
        dx = u_backward(du)
        dz = v_backward(dv)
        dlog_scale = (dscores * scores).sum()
        return dx, dz, dlog_scale

    return scores, backward


@op("x, z: (N, D); log_scale: (); loss: ()")
@in_float32_with_result
def contrastive_loss(x: Array, z: Array, log_scale: Array) -> tuple[Array, Pullback]:
    """Mean cross-entropy of finding z_i for x_i, and x_i for z_i, among all of the batch. Rows that belong together
    have one number.

    backward(dloss=1.0) returns (dx, dz, dlog_scale).
    """
    xp, n = array_module(x), len(x)
    answers = (xp.arange(n)[:, None] == xp.arange(n)[None, :]).astype(x.dtype)
    scores, scores_backward = scaled_cosines(x, z, log_scale)
    rows = scores - scores.max(axis=1, keepdims=True)  # no softmax sees a shift, and exp cannot overflow
    columns = scores - scores.max(axis=0, keepdims=True)
    row_logs = rows - xp.log(xp.exp(rows).sum(axis=1, keepdims=True))
    column_logs = columns - xp.log(xp.exp(columns).sum(axis=0, keepdims=True))
    loss = -0.5 * (answers * (row_logs + column_logs)).sum() / n

    def backward(dloss: Array | float = 1.0) -> tuple[Array, Array, Array]:
        dscores = 0.5 * dloss * (xp.exp(row_logs) + xp.exp(column_logs) - 2.0 * answers) / n
        dx, dz, dlog_scale = scores_backward(dscores)
        return dx, dz, dlog_scale

    return loss, backward
