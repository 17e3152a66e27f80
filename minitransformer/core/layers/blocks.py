"""Encoder and decoder layers, and stacks of them. Vaswani et al. 2017, section 3.1 and figure 1.

    encoder layer:  self-attention, feed-forward
    decoder layer:  causal self-attention, cross-attention to the memory, feed-forward

each sub-layer in a residual connection. A decoder without cross-attention (GPT) is an encoder whose self-attention is
causal, so it is built from the encoder's parts.

Each class builds the paper's layer from sizes. Its method `of` takes the sub-layers, or the layers, as modules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_array
from ..arrays.declared import declared
from .attention import MultiHeadAttention
from .cache import Cache, KeyValueCache, check_cache, no_backward
from .feed_forward import Activation, FeedForward
from .module import Module, generator
from .normalization import LayerNorm
from .part_cost import Cost, Costs
from .residual import Recompute, Residual

L = TypeVar("L", bound="_Layer")
S = TypeVar("S", bound="_Stack")


class _Layer(Module):
    """The paper's sub-layers of an encoder or a decoder layer, each in its residual connection.

    dropout: after each sub-layer; attention_dropout: on the attention weights; activation: as in FeedForward;
    norm_order: "post" as in the paper, or "pre".
    """

    reads_memory = False

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str | Activation = "relu",
        norm_order: str = "post",
        bias: bool = True,
        rng: Rng | None = None,
    ) -> None:
        rng = generator(rng)

        def attention() -> Residual:
            heads = MultiHeadAttention(d_model, n_heads, bias=bias, dropout=attention_dropout, rng=rng)
            return Residual(heads, LayerNorm(d_model), norm_order, dropout)

        self.self_attention = attention()
        if self.reads_memory:
            self.cross_attention = attention()
        feed_forward = FeedForward(d_model, d_ff, activation, bias, rng)
        self.feed_forward = Residual(feed_forward, LayerNorm(d_model), norm_order, dropout)

    @classmethod
    def of(cls: type[L], *sublayers: Residual) -> L:
        """A layer of these sub-layers, in the order in which they are called."""
        layer = cls.__new__(cls)
        across = ("cross_attention",) if cls.reads_memory else ()
        vars(layer).update(zip(("self_attention", *across, "feed_forward"), sublayers, strict=True))
        return layer

    def new_cache(self) -> Any:
        """An empty cache for the part that mixes the positions; None if it needs none."""
        new = getattr(self.self_attention.sublayer, "new_cache", None)
        return None if new is None else new()


class EncoderLayer(_Layer):
    """Self-attention, then feed-forward. x, y: (..., T, D)."""

    def __call__(
        self, x: Array, mask: Array | None = None, rng: Rng | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. how: causal, cache, positions, as of MultiHeadAttention."""
        attended, attention_backward = self.self_attention(x, mask=mask, rng=rng, **how)
        y, feed_forward_backward = self.feed_forward(attended, rng=rng)

        def backward(dy: Array) -> Array:
            dattended = feed_forward_backward(dy)
            dx = attention_backward(dattended)
            return dx

        return y, backward


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention to a memory, feed-forward. x, y: (..., T, D); memory: (..., T_k, D)."""

    reads_memory = True

    def __call__(
        self,
        x: Array,
        memory: Array,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        cache: tuple[KeyValueCache, KeyValueCache] | None = None,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns (dx, dmemory).

        mask and memory_mask broadcast to (..., T, T) and (..., T, T_k). cache: of self- and of cross-attention.
        """
        check_array("DecoderLayer", "memory", memory)
        self_cache, cross_cache = cache or (None, None)
        attended, self_backward = self.self_attention(x, mask=mask, causal=True, cache=self_cache, rng=rng)
        informed, cross_backward = self.cross_attention(attended, memory, mask=memory_mask, cache=cross_cache, rng=rng)
        y, feed_forward_backward = self.feed_forward(informed, rng=rng)

        def backward(dy: Array) -> tuple[Array, Array]:
            dinformed = feed_forward_backward(dy)
            dattended, dmemory = cross_backward(dinformed)
            dx = self_backward(dattended)
            return dx, dmemory

        return y, backward


class _Stack(Module):
    """A stack of layers. final_norm: by default after pre-norm layers, because their sum has not been normalised."""

    layer_type: type[EncoderLayer] | type[DecoderLayer]

    @declared("n_layers > 0")
    def __init__(
        self,
        n_layers: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        final_norm: bool | None = None,
        recompute: bool = False,
        rng: Rng | None = None,
        **options: Any,
    ) -> None:
        rng = generator(rng)
        layers = [self.layer_type(d_model, n_heads, d_ff, rng=rng, **options) for _ in range(n_layers)]
        wants_norm = options.get("norm_order") == "pre" if final_norm is None else final_norm
        self._hold(layers, LayerNorm(d_model) if wants_norm else None, recompute)

    @classmethod
    @declared()
    def of(cls: type[S], layers: Sequence[Module], final_norm: Module | None = None, recompute: bool = False) -> S:
        """A stack of these layers. The same layer at several places is shared: its gradients add up."""
        stack = cls.__new__(cls)
        stack._hold(layers, final_norm, recompute)
        return stack

    def _hold(self, layers: Sequence[Module], final_norm: Module | None, recompute: bool) -> None:
        if not layers:
            raise ValueError(f"{type(self).__name__}: a stack needs at least one layer, got none")
        wrapped = {id(layer): Recompute(layer) if recompute else layer for layer in layers}
        self.layers = [wrapped[id(layer)] for layer in layers]
        self.final_norm = final_norm

    @property
    def plain_layers(self) -> list[Any]:
        """The layers, without `Recompute` around them."""
        return [layer.layer if isinstance(layer, Recompute) else layer for layer in self.layers]

    def new_cache(self) -> Cache:
        """Empty caches for all layers."""
        return Cache.of([layer.new_cache() for layer in self.plain_layers])

    def costs(self, name: str, batch: int, length: int) -> Costs:
        """Each sub-layer and the final norm. A layer that runs again in backward keeps only its input."""
        for layer, plain in zip(self.layers, self.plain_layers, strict=True):
            for i, (part, sublayer) in enumerate(plain.children()):
                shape = (batch, length, sublayer.norm.gamma.value.size)
                cost = sublayer.cost(batch, length)
                kept = cost.kept if layer is plain else math.prod(shape) * (i == 0)
                yield f"{name}.layers.*.{part}", shape, Cost(cost.flops, kept)
        if self.final_norm is not None:
            yield f"{name}.final_norm", shape, self.final_norm.cost(batch, length)

    def _finish(self, x: Array) -> tuple[Array, Pullback]:
        return (x, lambda dy: dy) if self.final_norm is None else self.final_norm(x)


class Encoder(_Stack):
    """n_layers encoder layers. Options as of EncoderLayer; recompute=True runs each layer again in backward."""

    layer_type = EncoderLayer

    def __call__(
        self, x: Array, mask: Array | None = None, rng: Rng | None = None, cache: Cache | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. x, y: (..., T, D). how: as of EncoderLayer."""
        if cache is not None:
            check_cache("Encoder", cache, len(self.layers))
        pullbacks = []
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.self_attention[i]
            x, pullback = layer(x, mask=mask, rng=rng, cache=layer_cache, **how)
            pullbacks.append(pullback)
        y, norm_backward = self._finish(x)

        def backward(dy: Array) -> Array:
            dx = norm_backward(dy)
            for pullback in reversed(pullbacks):
                dx = pullback(dx)
            return dx

        return y, backward if cache is None else no_backward


class Decoder(_Stack):
    """n_layers decoder layers that all read one memory. Keyword options as of DecoderLayer, and recompute."""

    layer_type = DecoderLayer

    def __call__(
        self,
        x: Array,
        memory: Array,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        cache: Cache | None = None,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns (dx, dmemory). x, y: (..., T, D); memory: (..., T_k, D)."""
        if cache is not None:
            check_cache("Decoder", cache, len(self.layers))
        pullbacks = []
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else (cache.self_attention[i], cache.cross_attention[i])
            x, pullback = layer(x, memory, mask=mask, memory_mask=memory_mask, cache=layer_cache, rng=rng)
            pullbacks.append(pullback)
        y, norm_backward = self._finish(x)

        def backward(dy: Array) -> tuple[Array, Array]:
            dx = norm_backward(dy)
            dmemory: Array = 0.0
            for pullback in reversed(pullbacks):
                dx, dlayer_memory = pullback(dx)
                dmemory = dmemory + dlayer_memory  # every layer read the same memory, so its gradients add up
            return dx, dmemory

        return y, backward if cache is None else no_backward
