"""State space duality. Dao and Gu 2024, "Transformers are SSMs", sections 3 to 6.

A state space model keeps a state S of constant size. At each position it fades, and something is added; what is read
there is the output. With one decay for the whole state (section 5) the model is

    S_t      = e^{decay_t} S_{t-1} + k_t v_tᵀ            decay ≤ 0                           (d_k, d_v)
    output_t = S_tᵀ q_t                                                                      (d_v)

Their letters are C for q, B for k and X for v: what the state is asked, where something goes, and what. (A model in
continuous time, S' = A S + B xᵀ, becomes this in steps of length Δ: decay = Δ A, and v = Δ x.)

The other form of the same numbers. With the clock c, and S_0 for the state before,

    c_t      = sum_{s≤t} decay_s
    output_t = e^{c_t} S_0ᵀ q_t + sum_{s≤t} e^{c_t - c_s} (q_t·k_s) v_s                      (1)

which without S_0 is attention: output = (lasting ∘ q kᵀ) v. What lasts, lasting_ts = e^{c_t - c_s} for s ≤ t, else 0,
stands in place of the softmax. That is the duality: a recurrence of T steps, or a product with T × T scores. In chunks
of C positions it is both. Within a chunk (1) is a product, and between chunks S is handed on:

    S_C = e^{c_C} S_0 + sum_s e^{c_C - c_s} k_s v_sᵀ

Call (1) sums(q, k, v). With decay 0 it is C(a, b, c) of ideas/after/linear_attention.py: this is linear attention that
forgets, without φ and without a total to divide by. It is no case of the gated delta rule (gated_delta.py), which first
subtracts from v what the state holds under k; with 0 in place of that it would be this.

Backward. Each argument enters (1) once, so each gradient has the same form, and `sums` is all that is needed:

    dq_t = e^{c_t} S_0 doutput_t + sum_{s≤t} e^{c_t - c_s} (doutput_t·v_s) k_s     sums(doutput, v, k), from S_0ᵀ
    dk_s = sum_{t≥s} e^{c_t - c_s} (v_s·doutput_t) q_t                             from the end: sums(v, doutput, q)
    dv_s = sum_{t≥s} e^{c_t - c_s} (k_s·q_t) doutput_t                             from the end: sums(k, q, doutput)
    dS_0 = sum_t e^{c_t} q_t doutput_tᵀ                         e^{decay_1} times the state where the last one ends

From the end, what lies between t and s < t is decay_{s+1} + ... + decay_t, so a position fades by the decay of the one
after it. The decays need no sums of their own. In (1), e^{c_t} multiplies q_t, and e^{-c_s} multiplies k_s. So the
clock has the gradient of a factor, and a decay is in its own clock and in all later ones:

    dc_t     = q_t·dq_t - k_t·dk_t
    ddecay_t = sum_{s≥t} dc_s

`state_space_recurrent` is the first form, position by position, with the backward pass of a recurrence. Both give the
same numbers.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module, device_of
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.arrays.masks import causal_mask
from ....core.layers import Cost

_SHAPES = "q, k: (..., T, d_k); v, output: (..., T, d_v); decay: (..., T); state: (..., d_k, d_v)"


@op(f"{_SHAPES}; chunk > 0")
@in_float32
def state_space(
    q: Array, k: Array, v: Array, decay: Array, state: Array | None = None, chunk: int = 64
) -> tuple[Array, Pullback]:
    """What a state that fades is asked at each position, in chunks.

    state: the one before the first position; zeros unless given. chunk: positions in a chunk; the last one may have
    fewer. backward(doutput) returns (dq, dk, dv, ddecay), and with a state (dq, dk, dv, ddecay, dstate). Dao and Gu
    2024, "Transformers are SSMs", section 6.
    """
    xp = array_module(q)
    output, after = fading_sums(q, k, v, decay, chunk, state)  # noqa: RUF059

    def backward(doutput: Array) -> tuple[Array, ...]:
        mirrored = None if state is None else state.swapaxes(-1, -2)
        dq, of_last = fading_sums(doutput, v, k, decay, chunk, mirrored)  # noqa: RUF059
        dk, of_first = _sums_from_the_end(v, doutput, q, decay, chunk)  # noqa: RUF059
        dv, from_all = _sums_from_the_end(k, q, doutput, decay, chunk)
        of_clock = (q * dq).sum(axis=-1) - (k * dk).sum(axis=-1)
        ddecay = xp.cumsum(of_clock[..., ::-1], axis=-1)[..., ::-1]
        if state is None:
            return dq, dk, dv, ddecay
        dstate = xp.exp(decay[..., 0])[..., None, None] * from_all
        return dq, dk, dv, ddecay, dstate

    return output, backward


def fading_sums(
    a: Array, b: Array, c: Array, decay: Array, chunk: int, state: Array | None = None
) -> tuple[Array, Array]:
    """(1) for each position, and the state after the last one. state: the one before the first, if any."""
    xp = array_module(a)
    if state is None:
        state = xp.zeros((*a.shape[:-2], b.shape[-1], c.shape[-1]), a.dtype)
    sums = xp.zeros((*a.shape[:-1], c.shape[-1]), a.dtype)
    for start in range(0, a.shape[-2], chunk):
        at = slice(start, start + chunk)
        near_a, near_b, near_c = a[..., at, :], b[..., at, :], c[..., at, :]
        clock = xp.cumsum(decay[..., at], axis=-1)
        n = clock.shape[-1]
        gaps = clock[..., :, None] - clock[..., None, :]
        lasting = xp.exp(xp.where(causal_mask(n, n, device_of(a).name), gaps, -xp.inf))
        since, until = xp.exp(clock)[..., None], lasting[..., -1, :][..., None]
        sums[..., at, :] = since * (near_a @ state) + (lasting * (near_a @ near_b.swapaxes(-1, -2))) @ near_c
        state = since[..., -1:, :] * state + (until * near_b).swapaxes(-1, -2) @ near_c
    return sums, state


def _sums_from_the_end(a: Array, b: Array, c: Array, decay: Array, chunk: int) -> tuple[Array, Array]:
    """sum_{t≥s} e^{c_t - c_s} (a_s·b_t) c_t for each s, and the state at the first position."""
    xp = array_module(a)
    of_next = xp.concatenate([decay[..., 1:], xp.zeros_like(decay[..., :1])], axis=-1)
    sums, state = fading_sums(a[..., ::-1, :], b[..., ::-1, :], c[..., ::-1, :], of_next[..., ::-1], chunk)
    return sums[..., ::-1, :], state


@op(_SHAPES)
@in_float32
def state_space_recurrent(
    q: Array, k: Array, v: Array, decay: Array, state: Array | None = None
) -> tuple[Array, Pullback]:
    """The same as `state_space`, position by position: S = e^{decay} S + k vᵀ, output = Sᵀ q.

    Backward goes from the last position to the first, and carries the gradient of the state. backward(doutput) returns
    (dq, dk, dv, ddecay), and with a state (dq, dk, dv, ddecay, dstate). Dao and Gu 2024, "Transformers are SSMs",
    equation 1.
    """
    xp = array_module(q)
    n, rates = q.shape[-2], xp.exp(decay)[..., None, None]
    before = xp.zeros((*q.shape[:-2], q.shape[-1], v.shape[-1]), q.dtype) if state is None else state
    states = xp.zeros((*q.shape[:-2], n + 1, *before.shape[-2:]), q.dtype)  # before each position, and at the end
    states[..., 0, :, :] = before
    for t in range(n):
        states[..., t + 1, :, :] = rates[..., t, :, :] * states[..., t, :, :] + k[..., t, :, None] * v[..., t, None, :]
    output = (states[..., 1:, :, :] * q[..., None]).sum(axis=-2)

    def backward(doutput: Array) -> tuple[Array, ...]:
        dq, dk, dv, ddecay = xp.zeros_like(q), xp.zeros_like(k), xp.zeros_like(v), xp.zeros_like(decay)
        from_later = xp.zeros_like(before)
        for t in reversed(range(n)):
            of_memory = from_later + q[..., t, :, None] * doutput[..., t, None, :]
            dq[..., t, :] = (states[..., t + 1, :, :] * doutput[..., t, None, :]).sum(axis=-1)
            dk[..., t, :] = (of_memory * v[..., t, None, :]).sum(axis=-1)
            dv[..., t, :] = (of_memory * k[..., t, :, None]).sum(axis=-2)
            ddecay[..., t] = (rates[..., t, :, :] * states[..., t, :, :] * of_memory).sum(axis=(-2, -1))
            from_later = rates[..., t, :, :] * of_memory
        if state is None:
            return dq, dk, dv, ddecay
        dstate = from_later
        return dq, dk, dv, ddecay, dstate

    return output, backward


def fading_cost(batch: int, length: int, d_k: int, d_v: int, chunk: int) -> Cost:
    """What state_space costs, its inputs aside. batch: of all heads and sequences. It keeps its inputs alone."""
    flops = 0
    for start in range(0, length, chunk):
        t = min(chunk, length - start)
        flops += 2 * t * t * (d_k + d_v) + 2 * 2 * t * d_k * d_v
    return Cost(flops=batch * flops)
