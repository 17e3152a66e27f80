"""The gated delta rule in chunks. Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks", section 3.3; without decay
Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", section 3.

The recurrence (ideas/after/gated_delta.py) goes from position to position. With S for the memory before the chunk and
c_t = decay_1 + ... + decay_t for its clock, all that was written fades until it is read:

    error_t   = v_t - e^{c_t} Sᵀ k_t - sum_{s<t} e^{c_t - c_s} (k_t·k_s) β_s error_s
    written_s = β_s error_s
    S_t       = e^{c_t} S + sum_{s≤t} e^{c_t - c_s} k_s written_sᵀ

An error is v_t without what the memory holds under k_t before position t writes. Only the errors depend on one another.
Collect C positions in matrices, a row for each, and the first line is a system of linear equations, which a few
products of matrices solve:

    lasting_ts  = 1[s ≤ t] e^{c_t - c_s}                  what is left at t of what s wrote        (C, C)
    overlaps_ts = 1[s < t] lasting_ts (k_t·k_s)           how much k_t finds of it                 (C, C)
    coupling_ts = overlaps_ts β_s                                                                  (C, C)
    novel       = v - early_k S,     early_k_t = e^{c_t} k_t                                       (C, d_v)
    error       = M⁻¹ novel,     M = I + coupling         triangular: solved from the top          (C, d_v)
    written_s   = β_s error_s                                                                      (C, d_v)
    scores      = lasting ∘ (q kᵀ)                        as in linear attention, but fading       (C, C)
    output      = early_q S + scores written,    early_q_t = e^{c_t} q_t                           (C, d_v)
    after       = e^{c_C} S + late_kᵀ written,   late_k_s = lasting_Cs k_s                         (d_k, d_v)

`after` is S for the next chunk. A text of T positions takes T / C such steps and not T, and what is kept for backward
is T / C memories and not T.

Backward takes the lines in reverse. A product passes its gradient on as in core/ops/attention.py. The new line is the
system. A small change of M error = novel gives dcoupling error + M derror = dnovel, so
derror = M⁻¹ (dnovel - dcoupling error): this is a change. For a loss with the gradient derror, then,

    dnovel    = (M⁻¹)ᵀ derror                             an error counts in all later ones, so this runs backwards
    dcoupling = -dnovel errorᵀ                            where s < t

and the other lines give

    dwritten  = scoresᵀ doutput + late_k dafter,          derror_s = β_s dwritten_s,    dv = dnovel
    dβ_s      = dwritten_s·error_s + sum_t dcoupling_ts overlaps_ts
    doverlaps_ts = dcoupling_ts β_s
    dscores   = doutput writtenᵀ
    dearly_q  = doutput Sᵀ,    dearly_k = -dnovel Sᵀ,     dlate_k = written dafterᵀ
    dS        = early_qᵀ doutput - early_kᵀ dnovel + e^{c_C} dafter
    dq_t      = sum_s lasting_ts dscores_ts k_s + e^{c_t} dearly_q_t
    dk_t      = sum_s (lasting_st dscores_st q_s + 1[s < t] lasting_ts doverlaps_ts k_s)
              + sum_s 1[t < s] lasting_st doverlaps_st k_s + e^{c_t} dearly_k_t + lasting_Ct dlate_k_t

A decay enters through differences of the clock. What is multiplied by e^{g} has the gradient (itself) ∘ (its gradient)
with respect to g. So dgaps = dscores ∘ scores + doverlaps ∘ overlaps, to the last row of which dlate_k·late_k is added;
a gap is c_t - c_s, so its gradient counts for c_t, and with a minus for c_s. decay_t is in c_t and in all later ones:

    ddecay_t  = sum_{s≥t} dc_s
"""

from __future__ import annotations

import math
from typing import Any

from ....core.arrays.backend import Array, Pullback, array_module, device_of
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.arrays.masks import causal_mask
from ....core.layers import Cost


@op("q, k: (..., C, d_k); v: (..., C, d_v); decay, beta: (..., C); memory: (..., d_k, d_v); result: (..., R, d_v)")
@in_float32
def delta_chunk(q: Array, k: Array, v: Array, decay: Array, beta: Array, memory: Array) -> tuple[Array, Pullback]:
    """C positions of the gated delta rule at once. The result holds two things, one above the other.

    Its R = C + d_k rows are the outputs of the C positions, and below them the memory after the last one.
    backward(dresult) returns (dq, dk, dv, ddecay, dbeta, dmemory). Yang et al. 2024, "Gated Delta Networks", 3.3.
    """
    xp = array_module(q)
    n = q.shape[-2]
    back = causal_mask(n, n, device_of(q).name)
    sums = back.astype(q.dtype)  # row t of sums · decay adds up the decays until t
    earlier = sums * (1.0 - sums.T)  # without the diagonal
    clock = decay @ sums.T
    gaps = clock[..., :, None] - clock[..., None, :]
    lasting = xp.exp(xp.where(back, gaps, -xp.inf))
    since = xp.exp(clock)[..., None]  # a column, as the two below
    until = lasting[..., -1, :][..., None]
    rates = beta[..., None]
    early_q, early_k, late_k = since * q, since * k, until * k

    overlaps = earlier * lasting * (k @ k.swapaxes(-1, -2))
    coupling = overlaps * beta[..., None, :]
    inverse = inverse_of(coupling)
    novel = v - early_k @ memory
    error = inverse @ novel
    written = rates * error
    scores = lasting * (q @ k.swapaxes(-1, -2))
    output = early_q @ memory + scores @ written
    after = since[..., -1:, :] * memory + late_k.swapaxes(-1, -2) @ written
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
        dmemory = from_reads + since[..., -1:, :] * dafter

        of_products = lasting * dscores  # the gradient of q kᵀ
        of_pairs = lasting * doverlaps  # and of k kᵀ, where each key is on both sides
        dq = of_products @ k + since * dearly_q
        both = of_pairs + of_pairs.swapaxes(-1, -2)
        dk = of_products.swapaxes(-1, -2) @ q + both @ k + since * dearly_k + until * dlate_k

        last = xp.arange(n) == n - 1
        passed = (dlate_k * late_k).sum(axis=-1)
        dgaps = dscores * scores + doverlaps * overlaps + last[:, None] * passed[..., None, :]
        kept = since[..., -1, 0] * (dafter * memory).sum(axis=(-2, -1))
        from_start = (dearly_q * early_q + dearly_k * early_k).sum(axis=-1) + last * kept[..., None]
        dclock = dgaps.sum(axis=-1) - dgaps.sum(axis=-2) + from_start
        ddecay = dclock @ sums
        return dq, dk, dv, ddecay, dbeta, dmemory

    return result, backward


def inverse_of(coupling: Array) -> Array:
    """(1 + coupling)⁻¹, by halves: the inverse of (A 0; B D) is (A⁻¹ 0; -D⁻¹ B A⁻¹ D⁻¹).

    Only what is below the diagonal counts. Unlike a sum of powers of the coupling it cancels no large numbers.
    """
    xp, n = array_module(coupling), coupling.shape[-1]
    if n == 1:
        return xp.ones_like(coupling)
    half = n // 2
    first, second = inverse_of(coupling[..., :half, :half]), inverse_of(coupling[..., half:, half:])
    below = -(second @ coupling[..., half:, :half] @ first)
    above = xp.zeros_like(coupling[..., :half, half:])
    upper, lower = xp.concatenate([first, above], axis=-1), xp.concatenate([below, second], axis=-1)
    return xp.concatenate([upper, lower], axis=-2)


@op("q, k: (..., T, d_k); v, output: (..., T, d_v); decay, beta: (..., T); state: (..., d_k, d_v); chunk > 0")
@in_float32
def chunked_delta(
    q: Array,
    k: Array,
    v: Array,
    decay: Array,
    beta: Array,
    state: Array | None = None,
    scale: float | None = None,
    chunk: int = 64,
) -> tuple[Array, Pullback]:
    """The gated delta rule, whose decay is one number for all entries of a key; what gated_delta returns, but sooner.

    state: the memory before the first position; zeros unless given. scale: 1/√d_k unless given. chunk: positions in a
    chunk; the last one may have fewer. backward(doutput) returns (dq, dk, dv, ddecay, dbeta), and with a state
    (dq, dk, dv, ddecay, dbeta, dstate). Yang et al. 2024, "Gated Delta Networks", section 3.3.
    """
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    before = _empty(q, v) if state is None else state
    scaled = factor * q
    (output, after), chunks_backward = in_chunks(scaled, k, v, decay, beta, before, chunk)

    def backward(doutput: Array) -> tuple[Array, ...]:
        dafter = array_module(q).zeros_like(after)  # nobody reads the memory after the text
        dscaled, dk, dv, ddecay, dbeta, dstate = chunks_backward(doutput, dafter)
        dq = factor * dscaled
        if state is None:
            return dq, dk, dv, ddecay, dbeta
        return dq, dk, dv, ddecay, dbeta, dstate

    return output, backward


def in_chunks(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, memory: Array, chunk: int = 64, rule: Any = delta_chunk
) -> tuple[tuple[Array, Array], Pullback]:
    """((output, memory after the text), backward), without a scale. rule: of one chunk, with these arguments.

    backward(doutput, later) returns (dq, dk, dv, ddecay, dbeta, earlier): the gradients of the memory after the text,
    and of the one before it.
    """
    xp = array_module(q)
    places = [slice(start, start + chunk) for start in range(0, q.shape[-2], chunk)]
    outputs, pullbacks = [], []
    for at in places:
        q_at, k_at, v_at = q[..., at, :], k[..., at, :], v[..., at, :]
        result, pullback = rule(q_at, k_at, v_at, decay[..., at], beta[..., at], memory)
        n = result.shape[-2] - memory.shape[-2]
        outputs.append(result[..., :n, :])
        memory = result[..., n:, :]
        pullbacks.append(pullback)

    def backward(doutput: Array, later: Array) -> tuple[Array, ...]:
        found: list[tuple[Array, ...]] = []
        for at, pullback in zip(reversed(places), reversed(pullbacks), strict=True):
            of_result = xp.concatenate([doutput[..., at, :], later], axis=-2)
            of_q, of_k, of_v, of_decay, of_beta, later = pullback(of_result)
            found.append((of_q, of_k, of_v, of_decay, of_beta))
        in_order = [list(reversed(parts)) for parts in zip(*found, strict=True)]
        rows = [xp.concatenate(parts, axis=-2) for parts in in_order[:3]]
        rates = [xp.concatenate(parts, axis=-1) for parts in in_order[3:]]
        return (*rows, *rates, later)

    return (xp.concatenate(outputs, axis=-2), memory), backward


def _empty(q: Array, v: Array) -> Any:
    """A memory in which nothing was written."""
    return array_module(q).zeros((*q.shape[:-2], q.shape[-1], v.shape[-1]), q.dtype)


def chunk_cost(batch: int, length: int, d_k: int, d_v: int, chunk: int) -> Cost:
    """What in_chunks costs, its inputs aside. batch: of all heads and sequences.

    Kept of t positions: four t × t; early_q, early_k, late_k; error, written; what is left since the start, and the
    memory before them with the outputs that stand above it; of the first chunk, that memory alone.
    """
    total = Cost()
    for start in range(0, length, chunk):
        t = min(chunk, length - start)
        flops = 2 * t * t * (2 * d_k + 2 * d_v + 1) + 2 * 3 * t * d_k * d_v + inverse_flops(t)
        memory = d_k + (chunk if start else 0)
        kept = 4 * t * t + t * (3 * d_k + 2 * d_v + 1) + memory * d_v
        total += Cost(batch * flops, batch * kept + 2 * t * t)  # and two matrices of ones
    return total


def inverse_flops(n: int) -> int:
    """The multiplications and additions of inverse_of."""
    half = n // 2
    return 0 if n == 1 else inverse_flops(half) + inverse_flops(n - half) + 2 * half * (n - half) * n
