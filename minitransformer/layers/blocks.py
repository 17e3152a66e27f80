"""Encoder and decoder layers, and stacks of them. Vaswani et al. 2017, section 3.1 and figure 1.

    encoder layer:  self-attention, feed-forward
    decoder layer:  causal self-attention, cross-attention to the memory, feed-forward

each sub-layer in a residual connection. A decoder without cross-attention (GPT) is an encoder whose self-attention is
causal, so it is built from the encoder's parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_array, check_sizes
from .attention import MultiHeadAttention
from .cache import Cache, KeyValueCache, check_cache, no_backward
from .convolution import Convolution
from .feed_forward import FeedForward
from .module import Module, generator
from .normalization import NORMS, LayerNorm, RMSNorm
from .residual import Checkpoint, Residual


def _norm(kind: str, width: int, eps: float) -> LayerNorm | RMSNorm:
    if kind not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {kind!r}")
    return NORMS[kind](width, eps)


class _Layer(Module):
    """The sub-layers of an encoder or a decoder layer, each in its residual connection.

    dropout: after each sub-layer; attention_dropout: on the attention weights; activation and gated: as in FeedForward;
    norm: "layer_norm" or "rms_norm"; norm_order: "post" as in the paper, or "pre". attention: further options of
    MultiHeadAttention for the self-attention; the cross-attention takes those that concern no positions. mixing:
    "convolution" for a convolution of this kernel in the place of the self-attention.
    """

    reads_memory = False

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str = "relu",
        gated: bool = False,
        bias: bool = True,
        norm: str = "layer_norm",
        norm_order: str = "post",
        eps: float = 1e-5,
        attention: Mapping[str, Any] = MappingProxyType({}),
        mixing: str = "attention",
        kernel: int = 5,
        rng: np.random.Generator | None = None,
    ) -> None:
        if mixing not in ("attention", "convolution"):
            raise ValueError(f'mixing must be "attention" or "convolution", got {mixing!r}')
        rng = generator(rng)
        across = {
            name: value
            for name, value in attention.items()
            if name not in ("rotary_base", "relative", "alibi", "window", "radius")
        }

        def heads(options: Mapping[str, Any]) -> MultiHeadAttention:
            given: dict[str, Any] = {"bias": bias, "dropout": attention_dropout, "rng": rng}
            return MultiHeadAttention(d_model, n_heads, **(given | dict(options)))

        def residual(sublayer: Module) -> Residual:
            return Residual(sublayer, _norm(norm, d_model, eps), norm_order, dropout)

        self.self_attention = residual(
            heads(attention) if mixing == "attention" else Convolution(d_model, d_model, kernel, rng=rng)
        )
        if self.reads_memory:
            self.cross_attention = residual(heads(across))
        self.feed_forward = residual(FeedForward(d_model, d_ff, activation, gated, bias, rng))


class EncoderLayer(_Layer):
    """Self-attention, then feed-forward. x, y: (..., T, D)."""

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: np.random.Generator | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. positions: of rotary attention; see layers/attention.py."""
        attended, attention_backward = self.self_attention(
            x, mask=mask, causal=causal, cache=cache, rng=rng, positions=positions
        )
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
        rng: np.random.Generator | None = None,
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
    """Equal layers, one on the other. final_norm: by default after pre-norm layers, whose sum has had no norm yet.

    shared: one layer used n_layers times, whose gradients add up (Lan et al. 2020, "ALBERT", section 3.1).
    """

    layer_type: type[EncoderLayer] | type[DecoderLayer]

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        final_norm: bool | None = None,
        checkpoint: bool = False,
        shared: bool = False,
        norm: str = "layer_norm",
        norm_order: str = "post",
        eps: float = 1e-5,
        rng: np.random.Generator | None = None,
        **options: Any,
    ) -> None:
        check_sizes(type(self).__name__, n_layers=n_layers)
        rng = generator(rng)
        options |= {"norm": norm, "norm_order": norm_order, "eps": eps, "rng": rng}
        n_different = 1 if shared else n_layers
        layers = [self.layer_type(d_model, n_heads, d_ff, **options) for _ in range(n_different)]
        wrapped: list[Module] = [Checkpoint(layer) if checkpoint else layer for layer in layers]
        self.layers = wrapped * (n_layers // n_different)
        wants_norm = norm_order == "pre" if final_norm is None else final_norm
        self.final_norm = _norm(norm, d_model, eps) if wants_norm else None

    def _finish(self, x: Array) -> tuple[Array, Pullback]:
        return (x, lambda dy: dy) if self.final_norm is None else self.final_norm(x)


class Encoder(_Stack):
    """n_layers encoder layers. Options as of EncoderLayer; checkpoint=True runs each layer again in backward."""

    layer_type = EncoderLayer

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. x, y: (..., T, D)."""
        check_cache("Encoder", cache, len(self.layers))
        pullbacks = []
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.self_attention[i]
            x, pullback = layer(x, mask=mask, causal=causal, cache=layer_cache, rng=rng, positions=positions)
            pullbacks.append(pullback)
        y, finish_backward = self._finish(x)

        def backward(dy: Array) -> Array:
            dx = finish_backward(dy)
            for pullback in reversed(pullbacks):
                dx = pullback(dx)
            return dx

        return y, backward if cache is None else no_backward


class Decoder(_Stack):
    """n_layers decoder layers that all read one memory. Keyword options as of DecoderLayer, and checkpoint."""

    layer_type = DecoderLayer

    def __call__(
        self,
        x: Array,
        memory: Array,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns (dx, dmemory). x, y: (..., T, D); memory: (..., T_k, D)."""
        check_cache("Decoder", cache, len(self.layers))
        pullbacks = []
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else (cache.self_attention[i], cache.cross_attention[i])
            x, pullback = layer(x, memory, mask=mask, memory_mask=memory_mask, cache=layer_cache, rng=rng)
            pullbacks.append(pullback)
        y, finish_backward = self._finish(x)

        def backward(dy: Array) -> tuple[Array, Array]:
            dx = finish_backward(dy)
            dmemory: Array = 0.0
            for pullback in reversed(pullbacks):
                dx, dlayer_memory = pullback(dx)
                dmemory = dmemory + dlayer_memory  # every layer read the same memory, so its gradients add up
            return dx, dmemory

        return y, backward if cache is None else no_backward
