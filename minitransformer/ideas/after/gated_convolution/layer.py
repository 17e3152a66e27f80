"""A short convolution between two gates. Liquid AI 2025, "LFM2 Technical Report", section 2.

    opening  = x W_in,   passing = x W_out,   values = x W_inner
    entering = opening ∘ values                  the first gate: what a token tells those after it
    mixed_tc = sum_k w_kc entering_{t-K+k, c}    a short convolution, with the K - 1 tokens before
    passed   = passing ∘ mixed                   the second gate: what a token takes of it
    y        = passed W_O

The gates are plain products, so y has degree three in x, with no other nonlinearity. Backward is the product rule:

    dmixed  = dpassed ∘ passing,     dpassing = dpassed ∘ mixed
    dvalues = dentering ∘ opening,   dopening = dentering ∘ values

and x gets the sum of what comes back through the three maps. For one more token the layer needs the last K - 1 entering
vectors, and nothing else: K - 1 times D numbers for a text of any length.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.boundary import check_mask
from ....core.arrays.declared import declared
from ....core.layers import Cost, Linear, Module
from ....core.layers.cache import no_backward
from ....core.layers.module import generator
from ...before.state_cache import StateCache
from ..short_convolution import ShortConvolution


class GatedConvolution(Module):
    """y = ((x W_out) ∘ convolution((x W_in) ∘ (x W_inner))) W_O. x, y: (..., T, D).

    It can replace attention in a layer. kernel: how many tokens the convolution sees, the current one included. bias:
    of the maps and of the convolution.
    """

    @declared("d_model, kernel > 0")
    def __init__(self, d_model: int, kernel: int = 3, bias: bool = False, rng: Rng | None = None) -> None:
        rng = generator(rng)
        self.gate_in, self.gate_out, self.inner = (Linear(d_model, d_model, bias, rng) for _ in range(3))
        self.convolution = ShortConvolution(d_model, kernel, bias, rng=rng)
        self.last = Linear(d_model, d_model, bias, rng)
        self.d_model = d_model

    new_cache = StateCache

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = True,
        cache: StateCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx.

        mask: boolean, broadcasts to (..., 1, T), True where a token is real; padding counts as 0. No token sees a later
        one, whatever `causal` is. With a cache, x holds only the new tokens, and there is no backward. rng and
        positions have no effect.
        """
        self.takes_sequences(self.d_model, x=x)
        real = real_tokens("GatedConvolution", x, mask, cache)
        kept = x if real is None else array_module(x).where(real, x, 0.0)
        opening, opening_backward = self.gate_in(kept)
        passing, passing_backward = self.gate_out(kept)
        values, values_backward = self.inner(kept)
        entering = opening * values
        mixed, convolution_backward = self.convolution(entering, cache)
        passed = passing * mixed
        y, output_backward = self.last(passed)

        def backward(dy: Array) -> Array:
            dpassed = output_backward(dy)
            dpassing = dpassed * mixed
            dmixed = dpassed * passing
            dentering = convolution_backward(dmixed)
            dopening = dentering * values
            dvalues = dentering * opening
            dkept = opening_backward(dopening) + passing_backward(dpassing) + values_backward(dvalues)
            dx = dkept if real is None else array_module(x).where(real, dkept, 0.0)
            return dx

        return y, backward if cache is None else no_backward

    def cost(self, batch: int, length: int) -> Cost:
        """Four maps and the convolution. Kept besides: the input, both gates, what they multiply, what passed."""
        return super().cost(batch, length) + Cost(kept=batch * length * 6 * self.d_model)


def real_tokens(layer: str, x: Array, mask: Array | None, cache: StateCache | None) -> Array | None:
    """True where a token of x is real, (..., T, 1). With a cache, the mask is of all tokens so far."""
    if mask is None:
        return None
    n = x.shape[-2]
    shape = (*x.shape[:-2], 1, n if cache is None else cache.length + n)
    check_mask(layer, mask, shape, like=x)
    return array_module(x).broadcast_to(mask, shape)[..., -n:].swapaxes(-1, -2)
