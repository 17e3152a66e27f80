"""GPT2LMHeadModel of Hugging Face Transformers, called directly: `generate` would add its own time to every token."""

from __future__ import annotations

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from .. import twins
from .gpt2 import Sizes, Timed, text


class Eager(Timed, twins.Program):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        self.sizes, self.ids = sizes, torch.from_numpy(text(sizes))
        config = GPT2Config(
            vocab_size=sizes.vocabulary,
            n_positions=sizes.max_length,
            n_embd=sizes.width,
            n_layer=sizes.n_layers,
            n_head=sizes.n_heads,
            attn_implementation="sdpa",
        )
        self.model = GPT2LMHeadModel(config).eval()
        copy(weights, self.model)

    @torch.inference_mode()
    def begin(self, ids: torch.Tensor) -> torch.Tensor:
        answer = self.model(ids, use_cache=True, logits_to_keep=1)
        self.cache = answer.past_key_values
        return answer.logits[:, -1]

    @torch.inference_mode()
    def advance(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits[:, -1]


@torch.no_grad()
def copy(weights: twins.Weights, model: GPT2LMHeadModel) -> None:
    """Give the model our weights. Its linear layers are (in, out) like ours, with queries, keys and values in one."""
    body = model.transformer
    twins.complete(model, weights)

    def fill(layer: torch.nn.Module, *names: str) -> None:
        layer.weight.copy_(torch.from_numpy(np.concatenate([weights[f"{name}.weight"] for name in names], axis=1)))
        layer.bias.copy_(torch.from_numpy(np.concatenate([weights[f"{name}.bias"] for name in names])))

    def fill_norm(layer: torch.nn.Module, name: str) -> None:
        layer.weight.copy_(torch.from_numpy(weights[f"{name}.gamma"]))
        layer.bias.copy_(torch.from_numpy(weights[f"{name}.beta"]))

    body.wte.weight.copy_(torch.from_numpy(weights["tokens.table"]))
    body.wpe.weight.copy_(torch.from_numpy(weights["embed.positions.table"]))
    for i, block in enumerate(body.h):
        attention, feed_forward = f"stack.layers.{i}.self_attention", f"stack.layers.{i}.feed_forward"
        fill(block.attn.c_attn, *(f"{attention}.sublayer.{name}" for name in ("query", "key", "value")))
        fill(block.attn.c_proj, f"{attention}.sublayer.output")
        fill_norm(block.ln_1, f"{attention}.norm")
        fill(block.mlp.c_fc, f"{feed_forward}.sublayer.inner")
        fill(block.mlp.c_proj, f"{feed_forward}.sublayer.output")
        fill_norm(block.ln_2, f"{feed_forward}.norm")
    fill_norm(body.ln_f, "stack.final_norm")
