"""Mamba-2: a layer around a state space. Dao and Gu 2024, "Transformers are SSMs", section 7.

    v, k, q    silu of the short convolution of x W_inner, x W_write and x W_read; heads of v share groups of k and q
    step    = softplus(x W_step + shift)                                 one number for each head
    decay   = -e^{log_rate} ∘ step
    heads   = S + skip · v                                               S: the state space of q, k, step · v, decay
    y       = norm(heads ∘ silu(x W_gate)) W_O                           a norm for each group, after the gate

A long step writes more and forgets more, a short one passes a token over. For one more token the layer needs the state,
d_state × d_head for each head, and the last vectors that the convolution reads.
"""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, Linear, Module, Parameter, RMSNorm
from ....core.layers.cache import no_backward
from ....core.layers.module import generator
from ....core.ops import silu
from ..gated import gated
from ..gated_convolution.layer import real_tokens
from ..gated_delta_net.layer import DeltaCache
from ..grouped import repeat_heads
from ..short_convolution import ShortConvolution
from ..state_space import state_space
from ..state_space.op import fading_cost, fading_sums
from .op import softplus


class GroupedRMSNorm(RMSNorm):
    """RMSNorm of each of n_groups equal parts of a vector; γ is as wide as all of them. x, y: (..., width)."""

    def __init__(self, width: int, n_groups: int, eps: float) -> None:
        super().__init__(width, eps)
        self.n_groups = n_groups

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        gamma = self.gamma.value
        in_groups = (*x.shape[:-1], self.n_groups, gamma.size // self.n_groups)
        ones = array_module(x).ones(in_groups[-1], x.dtype)
        parts, norm_backward = self.ops.rms_norm(x.reshape(in_groups), ones, self.eps)
        normed = parts.reshape(x.shape)
        y = gamma * normed

        def backward(dy: Array) -> Array:
            dnormed = gamma * dy
            self.gamma.grad += (dy * normed).sum(axis=tuple(range(dy.ndim - 1)))
            dx = norm_backward(dnormed.reshape(in_groups))[0].reshape(dy.shape)  # x need not stay
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """What was normalised, before γ and before that, a factor for each group, and a gain of ones."""
        width = self.gamma.value.size
        return Cost(kept=batch * length * (2 * width + self.n_groups) + width // self.n_groups)


class Mamba2(Module):
    """Reads a text with one state for each head. x, y: (..., T, D). It can replace attention in a layer.

    d_head: the width of what a head writes; d_state: of where it writes. n_groups: heads share as many sets of k and q.
    kernel: of the convolution. bias, conv_bias: of the maps, of the convolution. chunk: positions in a chunk. The rates
    start at 1, ..., n_heads, and their logarithms are learned; the shift and the skip start at one.
    """

    @declared("d_model, n_heads, d_head, d_state, n_groups, kernel, chunk > 0; eps > 0")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        d_state: int,
        n_groups: int = 1,
        kernel: int = 4,
        eps: float = 1e-5,
        activation: str = "silu",
        bias: bool = False,
        conv_bias: bool = True,
        chunk: int = 64,
        rng: Rng | None = None,
    ) -> None:
        if n_heads % n_groups:
            raise ValueError(f"Mamba2: {n_heads} heads cannot share {n_groups} groups equally")
        rng = generator(rng)
        self.width, self.states = n_heads * d_head, n_groups * d_state  # of all heads, of all groups
        self.gate, self.inner = (Linear(d_model, self.width, bias, rng) for _ in range(2))
        self.write, self.read = (Linear(d_model, self.states, bias, rng) for _ in range(2))
        self.step = Linear(d_model, n_heads, bias, rng)
        self.convolution = ShortConvolution(self.width + 2 * self.states, kernel, conv_bias, activation, rng)
        self.log_rate = Parameter(np.log(np.arange(1, n_heads + 1)).astype(np.float32))
        self.shift, self.skip = (Parameter(np.ones(n_heads, np.float32)) for _ in range(2))
        self.norm = GroupedRMSNorm(self.width, n_groups, eps)
        self.last = Linear(self.width, d_model, bias, rng)
        self.d_model, self.n_states, self.n_groups, self.chunk = d_model, n_heads, n_groups, chunk

    new_cache = DeltaCache

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = True,
        cache: DeltaCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx.

        mask: boolean, broadcasts to (..., 1, T), True where a token is real; padding writes nothing. No token sees a
        later one, whatever `causal` is. With a cache, x holds only the new tokens, and there is no backward. rng and
        positions have no effect.
        """
        self.takes_sequences(self.d_model, x=x)
        xp, real = array_module(x), real_tokens("Mamba2", x, mask, cache)
        kept = x if real is None else xp.where(real, x, 0.0)
        (q, k, v), inputs_backward = self._inputs(kept, real, cache)
        (step, decay), steps_backward = self._steps(kept)
        written = step[..., None] * v
        if cache is None:
            found, state_backward = state_space(q, k, written, decay, chunk=self.chunk)
        else:
            found, after = fading_sums(q, k, written, decay, self.chunk, cache.state)
            cache.keep(after, x.shape[-2])
        skip = self.skip.value[:, None, None]
        heads = found + skip * v
        y, outputs_backward = self._outputs(kept, heads)
        if cache is not None:
            return y, no_backward

        def backward(dy: Array) -> Array:
            of_gate, dheads = outputs_backward(dy)
            dq, dk, dwritten, ddecay = state_backward(dheads)
            dv = step[..., None] * dwritten + skip * dheads
            dstep = (dwritten * v).sum(axis=-1)
            others = tuple(axis for axis in range(dheads.ndim) if axis != dheads.ndim - 3)
            self.skip.grad += (dheads * v).sum(axis=others)
            dkept = of_gate + inputs_backward(dq, dk, dv) + steps_backward(dstep, ddecay)
            dx = dkept if real is None else xp.where(real, dkept, 0.0)
            return dx

        return y, backward

    def _inputs(
        self, x: Array, real: Array | None, cache: DeltaCache | None
    ) -> tuple[tuple[Array, Array, Array], Pullback]:
        """What is asked, where it is written, and what: (..., H, T, d)."""
        xp, width, states, times = array_module(x), self.width, self.states, self.n_states // self.n_groups
        parts, pullbacks = zip(*(part(x) for part in (self.inner, self.write, self.read)), strict=True)
        projected = xp.concatenate(parts, axis=-1)
        mixed, convolution_backward = self.convolution(projected, None if cache is None else cache.convolution)
        shown = mixed if real is None else xp.where(real, mixed, 0.0)
        v, values_backward = self.ops.split_heads(shown[..., :width], self.n_states)
        of_groups, groups_backward = self.ops.split_heads(shown[..., width:], 2 * self.n_groups)
        shared, repeat_backward = repeat_heads(of_groups, times)
        k, q = shared[..., : self.n_states, :, :], shared[..., self.n_states :, :, :]

        def backward(dq: Array, dk: Array, dv: Array) -> Array:
            dshared = xp.concatenate([dk, dq], axis=-3)
            dof_groups = repeat_backward(dshared)
            dshown = xp.concatenate([values_backward(dv), groups_backward(dof_groups)], axis=-1)
            dmixed = dshown if real is None else xp.where(real, dshown, 0.0)
            dprojected = convolution_backward(dmixed)
            of_parts = dprojected[..., :width], dprojected[..., width:-states], dprojected[..., -states:]
            dx = sum(pullback(dpart) for pullback, dpart in zip(pullbacks, of_parts, strict=True))
            return dx

        return (q, k, v), backward

    def _steps(self, x: Array) -> tuple[tuple[Array, Array], Pullback]:
        """The step of each head, and how much of its state stays, as a logarithm: (..., H, T)."""
        asked, asked_backward = self.step(x)
        steps, softplus_backward = softplus(asked + self.shift.value)
        rate = array_module(x).exp(self.log_rate.value)
        decays = -rate * steps

        def backward(of_step: Array, of_decay: Array) -> Array:
            ddecays = of_decay.swapaxes(-1, -2)
            dsteps = of_step.swapaxes(-1, -2) - rate * ddecays
            dasked = softplus_backward(dsteps)
            rows = tuple(range(dasked.ndim - 1))
            self.log_rate.grad += (ddecays * decays).sum(axis=rows)
            self.shift.grad += dasked.sum(axis=rows)
            dx = asked_backward(dasked)
            return dx

        return (steps.swapaxes(-1, -2), decays.swapaxes(-1, -2)), backward

    def _outputs(self, x: Array, heads: Array) -> tuple[Array, Pullback]:
        """What the heads found, through the gate that x sets, normed, and mapped: (..., T, D)."""
        opening, gate_backward = self.gate(x)
        merged, merge_backward = self.ops.merge_heads(heads)
        passed, gated_backward = gated(opening, merged, silu)
        normed, norm_backward = self.norm(passed)
        y, last_backward = self.last(normed)

        def backward(dy: Array) -> tuple[Array, Array]:
            dnormed = last_backward(dy)
            dpassed = norm_backward(dnormed)
            dopening, dmerged = gated_backward(dpassed)
            dheads = merge_backward(dmerged)
            dx = gate_backward(dopening)
            return dx, dheads

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Maps, convolution, and the state space in chunks. Kept besides: the lines of `each`, and a rate per head.

        What the convolution gave is counted there.
        """
        rows, h, width = batch * length, self.n_states, self.width
        d_head, d_state = width // h, self.states // self.n_groups
        each = (
            self.d_model,  # the input
            2 * h * d_state,  # q and k of all heads
            width,  # what is written
            3 * h,  # what softplus was given, steps, decays
            3 * width,  # what passes the gate: its silu, the gate, what it multiplies
            width,  # and what was normed
        )
        state = fading_cost(batch * h, length, d_state, d_head, self.chunk)
        return super().cost(batch, length) + state + Cost(kept=rows * sum(each) + h)
