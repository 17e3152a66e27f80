"""The encoder with a classification head in PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .. import twins
from .classifier import LEARNING_RATE, Sizes, batches


class Model(nn.Module):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__()
        self.tokens = twins.embedding(weights, "embed.tokens.table")
        self.register_buffer("positions", twins.sinusoids(sizes.length, sizes.width))
        self.layers = nn.ModuleList(
            twins.PreNormLayer(weights, f"encoder.layers.{i}", sizes.n_heads, F.gelu, sizes.dropout)
            for i in range(sizes.n_layers)
        )
        self.drop = nn.Dropout(sizes.dropout)
        self.norm = twins.layer_norm(weights, "encoder.final_norm")
        self.head = twins.linear(weights, "head")
        twins.complete(self, weights)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.tokens(ids) * math.sqrt(self.tokens.embedding_dim) + self.positions)
        for layer in self.layers:
            x = layer(x, mask=mask[:, None, None, :])
        real = mask[..., None]
        pooled = (self.norm(x) * real).sum(dim=1) / real.sum(dim=1)
        return F.cross_entropy(self.head(pooled), labels)


class Eager(twins.Training):
    compiled = False

    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__(Model(sizes, weights), batches(sizes), LEARNING_RATE, self.compiled)


class Compiled(Eager):
    compiled = True
