"""The encoder-decoder in PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .. import twins
from .translator import LABEL_SMOOTHING, LEARNING_RATE, PADDING, Sizes, batches


class EncoderLayer(nn.Module):
    """norm(x + attention(x)), then norm(x + feed_forward(x))."""

    def __init__(self, weights: twins.Weights, name: str, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = twins.SelfAttention(weights, f"{name}.self_attention.sublayer", n_heads, dropout)
        self.norm1 = twins.layer_norm(weights, f"{name}.self_attention.norm")
        self.feed_forward = twins.FeedForward(weights, f"{name}.feed_forward.sublayer", F.relu, dropout)
        self.norm2 = twins.layer_norm(weights, f"{name}.feed_forward.norm")

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x, mask=mask))
        return self.norm2(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self, weights: twins.Weights, name: str, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = twins.SelfAttention(weights, f"{name}.self_attention.sublayer", n_heads, dropout)
        self.norm1 = twins.layer_norm(weights, f"{name}.self_attention.norm")
        self.cross = twins.CrossAttention(weights, f"{name}.cross_attention.sublayer", n_heads, dropout)
        self.norm2 = twins.layer_norm(weights, f"{name}.cross_attention.norm")
        self.feed_forward = twins.FeedForward(weights, f"{name}.feed_forward.sublayer", F.relu, dropout)
        self.norm3 = twins.layer_norm(weights, f"{name}.feed_forward.norm")

    def forward(self, x: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x, causal=True))
        x = self.norm2(x + self.cross(x, memory, memory_mask))
        return self.norm3(x + self.feed_forward(x))


class Model(nn.Module):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__()
        n, last = sizes.n_layers, (sizes.n_heads, sizes.dropout)
        self.drop = nn.Dropout(sizes.dropout)
        self.tokens = twins.embedding(weights, "target_tokens.table")
        self.register_buffer("positions", twins.sinusoids(sizes.length, sizes.width))
        self.encoder = nn.ModuleList(EncoderLayer(weights, f"encoder.layers.{i}", *last) for i in range(n))
        self.decoder = nn.ModuleList(DecoderLayer(weights, f"decoder.layers.{i}", *last) for i in range(n))
        twins.complete(self, weights)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.drop(self.tokens(ids) * math.sqrt(self.tokens.embedding_dim) + self.positions)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, wanted: torch.Tensor, source_mask: torch.Tensor
    ) -> torch.Tensor:
        mask = source_mask[:, None, None, :]
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, mask)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, memory, mask)
        logits = F.linear(x, self.tokens.weight).flatten(0, 1)
        return F.cross_entropy(logits, wanted.flatten(), ignore_index=PADDING, label_smoothing=LABEL_SMOOTHING)


class Eager(twins.Training):
    compiled = False

    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__(Model(sizes, weights), batches(sizes), LEARNING_RATE, self.compiled)


class Compiled(Eager):
    compiled = True
