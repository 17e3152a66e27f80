"""The decoder-only model in PyTorch."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from .. import twins
from .language_model import LEARNING_RATE, Sizes, batches


class Model(nn.Module):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__()
        gelu = functools.partial(F.gelu, approximate="tanh")
        self.tokens = twins.embedding(weights, "tokens.table")
        self.positions = twins.embedding(weights, "embed.positions.table")
        rate = sizes.dropout
        self.drop = nn.Dropout(rate)
        self.layers = nn.ModuleList(
            twins.PreNormLayer(weights, f"stack.layers.{i}", sizes.n_heads, gelu, rate, rate)
            for i in range(sizes.n_layers)
        )
        self.norm = twins.layer_norm(weights, "stack.final_norm")
        twins.complete(self, weights)

    def forward(self, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for layer in self.layers:
            x = layer(x, causal=True)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


class Eager(twins.Training):
    compiled = False

    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        super().__init__(Model(sizes, weights), batches(sizes), LEARNING_RATE, self.compiled)


class Compiled(Eager):
    compiled = True
