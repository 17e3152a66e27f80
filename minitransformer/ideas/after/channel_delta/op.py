"""The gated delta rule with a decay for each channel, in chunks. Kimi Team 2025, "Kimi Linear", sections 3.1 and 3.2.

Entry i of a key is a channel, and row i of the memory belongs to it. In Gated DeltaNet all rows fade alike; here each
has a decay of its own, so a head keeps some things for long and forgets others at once. The recurrence is the same
(ideas/after/gated_delta.py), and so is most of the form in chunks (ideas/after/chunked_delta/op.py). The clock now has
a column for each channel, c_ti = decay_1i + ... + decay_ti, and what is left of a key is a vector. A key stands in two
places: at t it reads what the memory holds, and from s on it is written there.

    reads       = k,    writes = k
    reach_tsi   = 1[s ≤ t] e^{c_ti - c_si} writes_si       what is left at t of key s              (C, C, d_k)
    overlaps_ts = 1[s < t] sum_i reach_tsi reads_ti                                                (C, C)
    scores_ts   = sum_i reach_tsi q_ti                                                             (C, C)
    early_k_ti  = e^{c_ti} reads_ti,    early_q_ti = e^{c_ti} q_ti                                 (C, d_k)
    late_k_si   = reach_Csi                                                                        (C, d_k)

From these the errors, the outputs and the memory follow as before. `reach` is no product of a part for t and one for s,
because e^{-c_s} overflows where a channel fades fast; the exponents of `reach` are never positive. It has C² d_k
numbers, so chunks are short.

Backward. What leads to dscores, doverlaps, dearly_q, dearly_k and dlate_k is the same. From there

    dreach_tsi  = dscores_ts q_ti + 1[s < t] doverlaps_ts reads_ti + 1[t = C] dlate_k_si
    dq_ti       = sum_s dscores_ts reach_tsi + e^{c_ti} dearly_q_ti
    dreads_ti   = sum_s 1[s < t] doverlaps_ts reach_tsi + e^{c_ti} dearly_k_ti
    dwrites_si  = sum_t 1[s ≤ t] e^{c_ti - c_si} dreach_tsi
    dk          = dreads + dwrites

The clock needs no new sums. What is read at t has the factor e^{c_t}, what is written at s the factor e^{-c_s}, and the
factor e^{c} of x gives c the gradient x dx. Until the end of the chunk all fades, so the last row gets more:

    dc_ti       = q_ti dq_ti + reads_ti dreads_ti - writes_ti dwrites_ti
                + 1[t = C] (sum_s late_k_si dlate_k_si + e^{c_Ci} sum_j S_ij dafter_ij)
    ddecay_ti   = sum_{s≥t} dc_si
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module, device_of
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.arrays.masks import causal_mask
from ....core.layers import Cost
from ..chunked_delta.op import inverse_flops, inverse_of


@op(
    "q, k: (..., C, d_k); v: (..., C, d_v); decay: (..., d_k, C); beta: (..., C); memory: (..., d_k, d_v); "
    "result: (..., R, d_v)"
)
@in_float32
def channel_chunk(q: Array, k: Array, v: Array, decay: Array, beta: Array, memory: Array) -> tuple[Array, Pullback]:
    """C positions of the gated delta rule at once, with a row of decays for each entry of a key; see `delta_chunk`.

    The result's R = C + d_k rows are the outputs of the C positions, and below them the memory after the last one.
    backward(dresult) returns (dq, dk, dv, ddecay, dbeta, dmemory). Kimi Team 2025, "Kimi Linear", section 3.2.
    """
    xp = array_module(q)
    n = q.shape[-2]
    back = causal_mask(n, n, device_of(q).name)
    sums = back.astype(q.dtype)  # row t of sums · decay adds up the decays until t
    earlier = sums * (1.0 - sums.T)  # without the diagonal
    clock = sums @ decay.swapaxes(-1, -2)
    gaps = clock[..., :, None, :] - clock[..., None, :, :]
    lasting = xp.exp(xp.where(back[..., None], gaps, -xp.inf))
    since = xp.exp(clock)
    fading = since[..., -1, :][..., None]  # a column: what is left of the old memory at the end
    rates = beta[..., None]
    early_q, early_k = since * q, since * k

    reach = lasting * k[..., None, :, :]
    late_k = reach[..., -1, :, :]
    overlaps = earlier * (reach @ k[..., None])[..., 0]
    scores = (reach @ q[..., None])[..., 0]
    coupling = overlaps * beta[..., None, :]
    inverse = inverse_of(coupling)
    novel = v - early_k @ memory
    error = inverse @ novel
    written = rates * error
    output = early_q @ memory + scores @ written
    after = fading * memory + late_k.swapaxes(-1, -2) @ written
    result = xp.concatenate([output, after], axis=-2)

    def backward(dresult: Array) -> tuple[Array, ...]:
        doutput = dresult[..., :n, :]
        dafter = dresult[..., n:, :]
        dwritten = scores.swapaxes(-1, -2) @ doutput + late_k @ dafter
        derror = rates * dwritten
        dnovel = inverse.swapaxes(-1, -2) @ derror
        dcoupling = -earlier * (dnovel @ error.swapaxes(-1, -2))
        dv = dnovel
        dbeta = (dwritten * error).sum(axis=-1) + (dcoupling * overlaps).sum(axis=-2)
        doverlaps = dcoupling * beta[..., None, :]
        dscores = doutput @ written.swapaxes(-1, -2)
        dearly_q = doutput @ memory.swapaxes(-1, -2)
        dearly_k = -(dnovel @ memory.swapaxes(-1, -2))
        dlate_k = written @ dafter.swapaxes(-1, -2)
        from_reads = early_q.swapaxes(-1, -2) @ doutput - early_k.swapaxes(-1, -2) @ dnovel
        dmemory = from_reads + fading * dafter

        last = (xp.arange(n) == n - 1)[:, None]
        from_products = dscores[..., None] * q[..., :, None, :] + doverlaps[..., None] * k[..., :, None, :]
        dreach = from_products + last[..., None] * dlate_k[..., None, :, :]
        dq = (dscores[..., None, :] @ reach)[..., 0, :] + since * dearly_q
        dreads = (doverlaps[..., None, :] @ reach)[..., 0, :] + since * dearly_k
        dwrites = (lasting * dreach).sum(axis=-3)
        dk = dreads + dwrites

        kept = (fading * memory * dafter).sum(axis=-1) + (late_k * dlate_k).sum(axis=-2)
        dclock = q * dq + k * (dreads - dwrites) + last * kept[..., None, :]
        ddecay = dclock.swapaxes(-1, -2) @ sums
        return dq, dk, dv, ddecay, dbeta, dmemory

    return result, backward


def channel_cost(batch: int, length: int, d_k: int, d_v: int, chunk: int) -> Cost:
    """What in_chunks costs with this rule, its inputs aside. batch: of all heads and sequences.

    Kept of t positions: two t × t × d_k and three t × t; since, early_q, early_k; error, written; and the memory before
    them with the outputs that stand above it; of the first chunk, that memory alone.
    """
    total = Cost()
    for start in range(0, length, chunk):
        t = min(chunk, length - start)
        flops = 2 * t * t * (3 * d_k + 2 * d_v) + 2 * 3 * t * d_k * d_v + inverse_flops(t)
        memory = d_k + (chunk if start else 0)
        kept = t * t * (2 * d_k + 3) + t * (3 * d_k + 2 * d_v) + memory * d_v
        total += Cost(batch * flops, batch * kept + 2 * t * t)  # and two matrices of ones
    return total
