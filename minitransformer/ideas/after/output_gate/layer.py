"""A gate on the output of attention. Qiu et al. 2025, "Gated Attention for Large Language Models".

    y = (heads ∘ σ(x W_gate)) W_O

Each number of the merged heads is multiplied by a gate between 0 and 1 that the token itself sets. So a token can
refuse what it attended to; without a gate the weights sum to one, whether or not anything is worth reading.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, Linear, Module, MultiHeadAttention
from ....core.layers.cache import no_backward
from ....core.layers.module import generator
from ....core.layers.sockets import Map, Mix, Turn
from ..gated import GatedFeedForward, gated
from ..grouped import grouped
from .op import sigmoid


class Unchanged(Module):
    """A map that hands x on. x, y: (..., width)."""

    def __init__(self, width: int) -> None:
        self.d_in = self.d_out = width

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (x, backward); backward(dy) returns dy."""
        return x, lambda dy: dy

    def part(self, rows: slice = slice(None), columns: slice = slice(None)) -> Unchanged:
        """A map that hands on these numbers alone."""
        return Unchanged(len(range(self.d_in)[rows][columns]))


class Columns(Module):
    """Some columns of a map: of each head's, one of two halves. So two maps lie in one matrix, head by head.

    x: (..., d_in); y: (..., half of the whole map's width). The gradients of both meet in the matrix. half: 0 or 1.
    """

    @declared("n_heads > 0; half <= 1")
    def __init__(self, whole: Linear, n_heads: int, half: int) -> None:
        if whole.d_out % (2 * n_heads):
            raise ValueError(f"Columns: {whole.d_out} columns are not two halves for each of {n_heads} heads")
        self.whole, self.n_heads, self.half = whole, n_heads, half

    @property
    def d_in(self) -> int:
        """The width of x."""
        return self.whole.d_in

    @property
    def d_out(self) -> int:
        """The width of y."""
        return self.whole.d_out // 2

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        weight, bias = self.whole.weight, self.whole.bias
        self.takes(x, weight.value, self.d_in, "d_in")
        own = self._own(weight.value).reshape(self.d_in, -1)
        y, linear_backward = self.ops.linear(x, own, None if bias is None else self._own(bias.value).reshape(-1))

        def backward(dy: Array) -> Array:
            dx, down, *of_bias = linear_backward(dy)
            weight.grad += self._among_zeros(down, weight.value)
            if bias is not None:
                bias.grad += self._among_zeros(of_bias[0], bias.value)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """The product, and a copy of the columns, which stays."""
        size = self.d_in * self.d_out
        return Cost(flops=2 * batch * length * size, kept=size)

    def part(self, rows: slice = slice(None), columns: slice = slice(None)) -> Linear:
        """A map of its own with these rows, and with these of the columns."""
        alone = self.whole.part()
        alone.weight.value = self._own(alone.weight.value).reshape(self.d_in, -1)
        if alone.bias is not None:
            alone.bias.value = self._own(alone.bias.value).reshape(-1)
        return alone.part(rows, columns)

    def _own(self, whole: Array) -> Array:
        """The columns of this half, (..., n_heads, d): a view."""
        return whole.reshape(*whole.shape[:-1], self.n_heads, 2, -1)[..., self.half, :]

    def _among_zeros(self, own: Array, like: Array) -> Array:
        """The gradient of all columns: these, and zeros for the other half."""
        of_all = array_module(like).zeros_like(like)
        self._own(of_all)[...] = own.reshape(*own.shape[:-1], self.n_heads, -1)
        return of_all


class GatedAttention(Module):
    """Attention whose merged heads pass a gate before the last map. x, y: (..., T, D).

    attention: a MultiHeadAttention whose own output is Unchanged. gate: a map to one number for each of the heads'.
    last: the map of what passed.
    """

    def __init__(self, attention: MultiHeadAttention, gate: Map, last: Map) -> None:
        widths = attention.output.d_out, gate.d_out, last.d_in
        if len(set(widths)) > 1:
            raise ValueError(f"GatedAttention: heads, gate and the last map must be equally wide, got {widths}")
        self.sublayer, self.gate, self.last = attention, gate, last

    def __call__(self, x: Array, cache: Any = None, **how: Any) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. how: as of MultiHeadAttention."""
        heads, attention_backward = self.sublayer(x, cache=cache, **how)
        gate, gate_backward = self.gate(x)
        passed, gated_backward = gated(gate, heads, sigmoid)
        y, last_backward = self.last(passed)

        def backward(dy: Array) -> Array:
            dpassed = last_backward(dy)
            dgate, dheads = gated_backward(dpassed)
            dx = attention_backward(dheads) + gate_backward(dgate)
            return dx

        return y, backward if cache is None else no_backward

    def new_cache(self) -> Any:
        """An empty cache for its keys and values."""
        return self.sublayer.new_cache()

    def cost(self, batch: int, length: int) -> Cost:
        """What is inside, and the gate, opened, and what passed it."""
        return super().cost(batch, length) + Cost(kept=2 * batch * length * self.last.d_in)


@declared("d_model, n_heads, n_key_heads, d_head > 0")
def gated_attention(
    d_model: int,
    n_heads: int,
    n_key_heads: int,
    d_head: int,
    bias: bool = False,
    rng: Rng | None = None,
    mix: Mix | None = None,
    turn: tuple[Turn | None, Turn | None] = (None, None),
) -> GatedAttention:
    """Attention with a gate, n_heads heads of queries sharing n_key_heads; queries and gates lie in one matrix.

    Raises ValueError where the heads cannot be shared equally.
    """
    rng = generator(rng)
    both = Linear(d_model, 2 * n_heads * d_head, bias, rng)
    attention = grouped(d_model, n_heads, n_key_heads, d_head, bias, rng=rng, mix=mix, turn=turn)
    attention.query, last = Columns(both, n_heads, 0), attention.output
    attention.output = Unchanged(n_heads * d_head)
    return GatedAttention(attention, Columns(both, n_heads, 1), last)


class OpenedFeedForward(GatedFeedForward):
    """σ(x w) · f(x): one number of each token says how much of the network it takes. x, y: (..., d_model).

    The network that every token uses beside chosen experts is opened so in Qwen2 MoE: Yang et al. 2024, "Qwen2
    Technical Report", section 2.2.2. Options as of GatedFeedForward; there are no biases.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "silu", rng: Rng | None = None) -> None:
        rng = generator(rng)
        super().__init__(d_model, d_ff, activation, False, rng)
        self.opening = Linear(d_model, 1, False, rng)

    def __call__(self, x: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        asked, opening_backward = self.opening(x)
        share, sigmoid_backward = sigmoid(asked)
        update, update_backward = super().__call__(x, rng)
        y = share * update

        def backward(dy: Array) -> Array:
            dupdate = share * dy
            dshare = (dy * update).sum(axis=-1, keepdims=True)
            dasked = sigmoid_backward(dshare)
            dx = update_backward(dupdate) + opening_backward(dasked)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """As a gated network, and what is opened, and how far."""
        return super().cost(batch, length) + Cost(kept=batch * length * (self.inner.d_in + 1))
