"""Kimi Delta Attention, a layer around the delta rule with a decay for each channel. Kimi Team 2025, section 4.

It is Gated DeltaNet (ideas/after/gated_delta_net/layer.py) with as many heads of keys as of values, and three changes:

    narrow = (x W_1) W_2                               each of two maps passes through a vector as wide as one head
    decay  = -e^{log_rate} ∘ softplus(narrow + shift)  one number for each channel of a head, and not for the head
    y      = (norm(heads) ∘ σ(narrow)) W_O             with a map of its own; the gate is a sigmoid
"""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.layers import Cost, Linear, Module, Parameter
from ....core.layers.module import generator
from ..chunked_delta.op import chunk_cost
from ..gated_delta_net import GatedDeltaNet, step_decay
from ..output_gate import sigmoid
from .op import channel_chunk, channel_cost


class NarrowMap(Module):
    """y = (x W_1) W_2, through d_narrow numbers: fewer parameters than one matrix. x: (..., d_in); y: (..., d_out)."""

    def __init__(self, d_in: int, d_narrow: int, d_out: int, rng: Rng | None = None) -> None:
        rng = generator(rng)
        self.down, self.up = Linear(d_in, d_narrow, False, rng), Linear(d_narrow, d_out, False, rng)

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        narrow, down_backward = self.down(x)
        y, up_backward = self.up(narrow)

        def backward(dy: Array) -> Array:
            dnarrow = up_backward(dy)
            dx = down_backward(dnarrow)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """That of its parts, and the numbers between them."""
        return super().cost(batch, length) + Cost(kept=batch * length * self.up.d_in)


class KimiDeltaAttention(GatedDeltaNet):
    """Reads a text with one memory for each head, each row of which fades at its own rate. x, y: (..., T, D).

    d_head: width of queries, keys and values. kernel: of the convolution. chunk: positions in a chunk.
    """

    rule, opening = staticmethod(channel_chunk), staticmethod(sigmoid)

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        kernel: int = 4,
        eps: float = 1e-5,
        activation: str = "silu",
        chunk: int = 16,
        rng: Rng | None = None,
    ) -> None:
        rng = generator(rng)
        super().__init__(d_model, n_heads, n_heads, d_head, d_head, kernel, eps, activation, chunk, rng)
        narrow = (NarrowMap(d_model, d_head, n_heads * d_head, rng) for _ in range(2))
        self.step, self.gate = narrow  # type: ignore[assignment]  # another map in the same socket
        self.log_rate = Parameter(self.log_rate.value[:, None])
        self.shift = Parameter(np.ones(n_heads * d_head, np.float32))

    def _decays(self, x: Array) -> tuple[Array, Pullback]:
        """(..., H, d_k, T)."""
        xp, h = array_module(x), self.n_memories
        steps, step_backward = self.step(x)
        rates = xp.repeat(self.log_rate.value, self.keys // h, axis=-1).reshape(-1)  # a head has one for all channels
        merged, decay_backward = step_decay(steps, rates, self.shift.value)
        decay, split_backward = self.ops.split_heads(merged, h)

        def backward(of_decay: Array) -> Array:
            ddecay = of_decay.swapaxes(-1, -2)
            dmerged = split_backward(ddecay)
            dsteps, drates, dshift = decay_backward(dmerged)
            self.log_rate.grad += drates.reshape(h, -1).sum(axis=-1, keepdims=True)
            self.shift.grad += dshift
            dx = step_backward(dsteps)
            return dx

        return decay.swapaxes(-1, -2), backward

    def cost(self, batch: int, length: int) -> Cost:
        """As GatedDeltaNet, with steps and decays for all channels, a sigmoid alone, and another rule for chunks."""
        h, d = self.n_memories, self.keys // self.n_memories
        other = channel_cost(batch * h, length, d, d, self.chunk)
        less = chunk_cost(batch * h, length, d, d, self.chunk)
        more = batch * length * h * (d - 2) + h * (d - 1)
        return super().cost(batch, length) + other + Cost(-less.flops, more - less.kept)
