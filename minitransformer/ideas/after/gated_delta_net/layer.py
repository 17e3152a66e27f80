"""Gated DeltaNet: a layer with a memory of constant size. Yang, Kautz and Hatamizadeh 2024, section 3.4 and figure 1.

    q, k, v    silu of the short convolution of x W_Q, x W_K and x W_V; heads of keys may be shared by heads of values
    q, k       then divided by √(Σ k² + ε), so of length 1: with β at 1 a value is replaced entirely
    heads      the gated delta rule of q, k, v, decay and β
    β       = most · σ(x W_β),    decay = -e^{log_rate} ∘ softplus(x W_decay + shift)     one number for each head
    y       = (norm(heads) ∘ silu(x W_gate)) W_O

A vector of length 1 is RMSNorm with the gain 1/√d and with ε / d: x / √(Σx² + ε) = (1/√d) x / √(mean(x²) + ε/d).

For one more token the layer needs the memory, d_k × d_v for each head of values, and the last vectors that the
convolution reads. Neither grows with the text. That is what a hybrid is for: most layers keep such a memory, and a few
attend to all tokens.
"""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, Linear, Module, Parameter, RMSNorm
from ....core.layers.cache import no_backward
from ....core.layers.module import generator
from ....core.ops import silu
from ...before.state_cache import StateCache
from ..chunked_delta import delta_chunk, in_chunks
from ..chunked_delta.op import chunk_cost
from ..gated import gated
from ..gated_convolution.layer import real_tokens
from ..grouped import repeat_heads
from ..output_gate import sigmoid
from ..short_convolution import ShortConvolution
from .op import step_decay


class DeltaCache(StateCache):
    """The memory of each head, (..., H, d_k, d_v), and beside it the last vectors that the convolution reads."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = StateCache()

    def select(self, rows: Array, memory: Array | None = None) -> None:
        """Replace the batch by these of its rows."""
        super().select(rows)
        self.convolution.select(rows)


class SharedConvolution(ShortConvolution):
    """The short convolution of queries, keys and values side by side, with a weight for each. widths: theirs."""

    def __init__(
        self, widths: tuple[int, int, int], kernel: int, activation: str | None, rng: Rng | None = None
    ) -> None:
        super().__init__(sum(widths), kernel, False, activation, rng)
        parts = np.split(self.weight.value, np.cumsum(widths)[:-1], axis=-1)
        del self.weight
        self.query, self.key, self.value = map(Parameter, parts)

    def filters(self) -> Array:
        """The three weights side by side, (kernel, width)."""
        weights = [part.value for part in (self.query, self.key, self.value)]
        return array_module(weights[0]).concatenate(weights, axis=-1)

    def learn(self, dweight: Array) -> None:
        """Add to the gradient of each weight."""
        start = 0
        for part in (self.query, self.key, self.value):
            end = start + part.value.shape[-1]
            part.grad += dweight[:, start:end]
            start = end

    def cost(self, batch: int, length: int) -> Cost:
        """As ShortConvolution, and the weights side by side."""
        return super().cost(batch, length) + Cost(kept=self.filters().size)


class GatedDeltaNet(Module):
    """Reads a text with one memory for each head of values. x, y: (..., T, D). It can replace attention in a layer.

    n_key_heads: heads of queries and keys, which n_heads heads of values share. kernel: of the convolution. chunk:
    positions in a chunk. The rates start uniform up to 16, and their logarithms are learned; the shift starts at one.
    most: the largest β. Above 1 a memory may write the opposite of what it holds, so that it can count (Grazzi et al.
    2024, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues").
    """

    @declared("d_model, n_heads, n_key_heads, d_key, d_value, kernel, chunk, most > 0; eps > 0")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_key_heads: int,
        d_key: int,
        d_value: int,
        kernel: int = 4,
        eps: float = 1e-6,
        activation: str = "silu",
        chunk: int = 64,
        rng: Rng | None = None,
        most: float = 1.0,
    ) -> None:
        if n_heads % n_key_heads:
            raise ValueError(f"GatedDeltaNet: {n_heads} heads of values cannot share {n_key_heads} of keys equally")
        rng = generator(rng)
        self.keys, self.values = n_key_heads * d_key, n_heads * d_value  # widths of all heads together
        self.query, self.key = (Linear(d_model, self.keys, False, rng) for _ in range(2))
        self.value = Linear(d_model, self.values, False, rng)
        self.convolution = SharedConvolution((self.keys, self.keys, self.values), kernel, activation, rng)
        self.rate, self.step = (Linear(d_model, n_heads, False, rng) for _ in range(2))
        rates = np.maximum(rng.uniform(0.0, 16.0, n_heads), 0.01)  # no memory lasts for ever
        self.log_rate = Parameter(np.log(rates).astype(np.float32))
        self.shift = Parameter(np.ones(n_heads, np.float32))
        self.gate = Linear(d_model, self.values, False, rng)
        self.norm = RMSNorm(d_value, eps)
        self.output = Linear(self.values, d_model, False, rng)
        self.d_model, self.n_memories, self.n_key_heads, self.chunk, self.most = (
            d_model, n_heads, n_key_heads, chunk, most
        )  # fmt: skip

    new_cache = DeltaCache
    rule, opening = staticmethod(delta_chunk), staticmethod(silu)  # of one chunk, and of the gate

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

        mask: boolean, broadcasts to (..., 1, T), True where a token is real; padding counts as 0. No token sees a later
        one, whatever `causal` is. With a cache, x holds only the new tokens, and there is no backward. rng and
        positions have no effect.
        """
        self.takes_sequences(self.d_model, x=x)
        real = real_tokens("GatedDeltaNet", x, mask, cache)
        kept = x if real is None else array_module(x).where(real, x, 0.0)
        (q, k, v), inputs_backward = self._inputs(kept, cache)
        (decay, beta), rates_backward = self._rates(kept)
        empty = array_module(x).zeros((*q.shape[:-2], q.shape[-1], v.shape[-1]), x.dtype)
        before = empty if cache is None or cache.state is None else cache.state
        (heads, after), delta_backward = in_chunks(q, k, v, decay, beta, before, self.chunk, self.rule)
        if cache is not None:
            cache.keep(after, x.shape[-2])
        y, outputs_backward = self._outputs(kept, heads)

        def backward(dy: Array) -> Array:
            of_gate, dheads = outputs_backward(dy)
            dq, dk, dv, ddecay, dbeta, _ = delta_backward(dheads, array_module(x).zeros_like(before))
            dkept = of_gate + inputs_backward(dq, dk, dv) + rates_backward(ddecay, dbeta)
            dx = dkept if real is None else array_module(x).where(real, dkept, 0.0)
            return dx

        return y, backward if cache is None else no_backward

    def _inputs(self, x: Array, cache: DeltaCache | None) -> tuple[tuple[Array, Array, Array], Pullback]:
        """Queries and keys of length 1, the queries divided by √d_k, and values: (..., H, T, d)."""
        xp, keys, times = array_module(x), self.keys, self.n_memories // self.n_key_heads
        width = keys // self.n_key_heads
        unit = xp.full(width, width**-0.5, x.dtype)
        parts, pullbacks = zip(*(part(x) for part in (self.query, self.key, self.value)), strict=True)
        projected = xp.concatenate(parts, axis=-1)
        mixed, convolution_backward = self.convolution(projected, None if cache is None else cache.convolution)
        both, both_backward = self.ops.split_heads(mixed[..., : 2 * keys], 2 * self.n_key_heads)
        v, values_backward = self.ops.split_heads(mixed[..., 2 * keys :], self.n_memories)
        units, unit_backward = self.ops.rms_norm(both, unit, 1e-6 / width)
        shared, repeat_backward = repeat_heads(units, times)
        q, k = shared[..., : self.n_memories, :, :] * width**-0.5, shared[..., self.n_memories :, :, :]

        def backward(dq: Array, dk: Array, dv: Array) -> Array:
            dshared = xp.concatenate([dq * width**-0.5, dk], axis=-3)
            dunits = repeat_backward(dshared)
            dboth, _ = unit_backward(dunits)
            dmixed = xp.concatenate([both_backward(dboth), values_backward(dv)], axis=-1)
            dprojected = convolution_backward(dmixed)
            of_parts = dprojected[..., :keys], dprojected[..., keys : 2 * keys], dprojected[..., 2 * keys :]
            dx = sum(pullback(dpart) for pullback, dpart in zip(pullbacks, of_parts, strict=True))
            return dx

        return (q, k, v), backward

    def _rates(self, x: Array) -> tuple[tuple[Array, Array], Pullback]:
        """How much of the memory stays, as a logarithm, and how much of an error is written: (..., H, T)."""
        decay, decay_backward = self._decays(x)
        asked, rate_backward = self.rate(x)
        share, share_backward = sigmoid(asked)
        beta = self.most * share

        def backward(of_decay: Array, of_beta: Array) -> Array:
            dshare = self.most * of_beta.swapaxes(-1, -2)
            dasked = share_backward(dshare)
            dx = decay_backward(of_decay) + rate_backward(dasked)
            return dx

        return (decay, beta.swapaxes(-1, -2)), backward

    def _decays(self, x: Array) -> tuple[Array, Pullback]:
        steps, step_backward = self.step(x)
        decay, decay_backward = step_decay(steps, self.log_rate.value, self.shift.value)

        def backward(of_decay: Array) -> Array:
            dsteps, dlog_rate, dshift = decay_backward(of_decay.swapaxes(-1, -2))
            self.log_rate.grad += dlog_rate
            self.shift.grad += dshift
            dx = step_backward(dsteps)
            return dx

        return decay.swapaxes(-1, -2), backward

    def _outputs(self, x: Array, heads: Array) -> tuple[Array, Pullback]:
        """What the heads read, normed, through the gate that x sets, and mapped: (..., T, D)."""
        opening, gate_backward = self.gate(x)
        gates, split_backward = self.ops.split_heads(opening, self.n_memories)
        normed, norm_backward = self.norm(heads)
        passed, gated_backward = gated(gates, normed, self.opening)
        merged, merge_backward = self.ops.merge_heads(passed)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> tuple[Array, Array]:
            dmerged = output_backward(dy)
            dpassed = merge_backward(dmerged)
            dgates, dnormed = gated_backward(dpassed)
            dheads = norm_backward(dnormed)
            dopening = split_backward(dgates)
            dx = gate_backward(dopening)
            return dx, dheads

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Maps, convolution, and the delta rule in chunks. Kept besides: the lines of `each`, and two vectors."""
        rows, h, n_keys = batch * length, self.n_memories, self.n_key_heads
        d_k, d_v = self.keys // n_keys, self.values // h
        each = (
            self.d_model,  # the input
            2 * n_keys * (d_k + 1),  # what made queries and keys as long as they are
            3 * h * d_k,  # both, repeated for all heads of values, and the queries divided
            4 * h,  # steps, decays, rates and the shares that they are made of
            (h - 1) * (d_v + 1),  # the norm of every head but the one that it counts itself
            4 * h * d_v,  # what passes the gates: their sigmoids, the gates, what they multiply, and the merged product
        )
        delta = chunk_cost(batch * h, length, d_k, d_v, self.chunk)
        return super().cost(batch, length) + delta + Cost(kept=rows * sum(each) + d_k + h)
