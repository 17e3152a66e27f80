"""The parts that the PyTorch twins share, as a PyTorch user would write them: one projection makes queries, keys and
values, F.scaled_dot_product_attention attends, AdamW is fused. Our weights are copied in: they are (in, out) there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch._dynamo  # any optimiser imports it: 70 MB that do not count as a program's own
import torch.nn.functional as F
from torch import nn

Weights = Mapping[str, np.ndarray]


class Program:
    """Base of every twin. A run is timed; `prepare` comes before each run and is not timed."""

    @classmethod
    def threads(cls, count: int) -> None:
        torch.set_num_threads(count)

    def prepare(self) -> None:
        pass


class Training(Program):
    """Training steps over a list of batches, repeatedly: forward, backward, AdamW."""

    def __init__(self, model: nn.Module, batches: list[dict[str, Any]], learning_rate: float, compiled: bool) -> None:
        self.model, self.loss = model.eval(), torch.compile(model) if compiled else model
        self.batches = [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches]
        self.optimizer = adamw(model.parameters(), learning_rate)
        self.taken = 0

    def run(self) -> float:
        batch = self.batches[self.taken % len(self.batches)]
        self.taken += 1
        self.optimizer.zero_grad()
        loss = self.loss(**batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def prove(self) -> dict[str, np.ndarray]:
        """The losses of ten steps without dropout; later steps have it."""
        losses = np.array([self.run() for _ in range(10)])
        self.model.train()
        return {"losses": losses}


def adamw(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    """Fused AdamW; biases and the gains of norms do not decay."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, fused=True)


def linear(weights: Weights, *names: str) -> nn.Linear:
    """Our layers of these names as one layer; all of them read the same input."""
    weight = torch.from_numpy(np.concatenate([weights[f"{name}.weight"].T for name in names]))
    bias = torch.from_numpy(np.concatenate([weights[f"{name}.bias"] for name in names]))
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def layer_norm(weights: Weights, name: str) -> nn.LayerNorm:
    norm = nn.LayerNorm(len(weights[f"{name}.gamma"]))
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(weights[f"{name}.gamma"]))
        norm.bias.copy_(torch.from_numpy(weights[f"{name}.beta"]))
    return norm


def embedding(weights: Weights, name: str) -> nn.Embedding:
    return nn.Embedding.from_pretrained(torch.from_numpy(weights[name].copy()), freeze=False)


def complete(model: nn.Module, weights: Weights) -> None:
    """Raise ValueError unless the twin has as many parameters as we have."""
    ours, theirs = sum(array.size for array in weights.values()), sum(p.numel() for p in model.parameters())
    if ours != theirs:
        raise ValueError(f"the twin has {theirs} parameters, minitransformer's model {ours}")


def sinusoids(length: int, width: int) -> torch.Tensor:
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class SelfAttention(nn.Module):
    """dropout: of the output; weights_dropout: of the attention weights."""

    def __init__(
        self, weights: Weights, name: str, n_heads: int, dropout: float = 0.0, weights_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.drop, self.weights_dropout = nn.Dropout(dropout), weights_dropout
        self.qkv = linear(weights, f"{name}.query", f"{name}.key", f"{name}.value")
        self.output = linear(weights, f"{name}.output")
        self.n_heads = n_heads

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        q, k, v = (_split(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        rate = self.weights_dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=rate)
        return self.drop(self.output(_merge(heads)))


class CrossAttention(nn.Module):
    def __init__(self, weights: Weights, name: str, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.query = linear(weights, f"{name}.query")
        self.kv = linear(weights, f"{name}.key", f"{name}.value")
        self.output = linear(weights, f"{name}.output")
        self.n_heads = n_heads

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q = _split(self.query(x), self.n_heads)
        k, v = (_split(part, self.n_heads) for part in self.kv(memory).chunk(2, dim=-1))
        return self.drop(self.output(_merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))))


def _split(x: torch.Tensor, n_heads: int) -> torch.Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)  # (B, T, D) to (B, H, T, d)


def _merge(heads: torch.Tensor) -> torch.Tensor:
    return heads.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    def __init__(self, weights: Weights, name: str, activation: Any, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.output = linear(weights, f"{name}.inner"), linear(weights, f"{name}.output")
        self.activation, self.drop = activation, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.output(self.activation(self.inner(x))))


class PreNormLayer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        n_heads: int,
        activation: Any,
        dropout: float = 0.0,
        weights_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = layer_norm(weights, f"{name}.self_attention.norm")
        self.attention = SelfAttention(weights, f"{name}.self_attention.sublayer", n_heads, dropout, weights_dropout)
        self.norm2 = layer_norm(weights, f"{name}.feed_forward.norm")
        self.feed_forward = FeedForward(weights, f"{name}.feed_forward.sublayer", activation, dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), mask, causal)
        return x + self.feed_forward(self.norm2(x))
