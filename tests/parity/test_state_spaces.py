"""Parity of LFM2, Granite and Granite 4 with Hugging Face: random models of unequal sizes, holes in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minitransformer.ideas.after.mamba2 import Mamba2
from minitransformer.models import from_pretrained

from . import test_pretrained as pretrained

pytestmark = pytest.mark.parity
in_float64 = pretrained.in_float64
HOLES = np.array([[1, 1, 0, 1, 0, 0, 1], [1, 0, 1, 1, 1, 1, 0], [1] * 7], bool)
_LFM2: dict[str, Any] = {
    "vocab_size": 23, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 9,
    "num_hidden_layers": 4, "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None, "norm_eps": 1e-2, "layer_types": ["conv", "full_attention", "full_attention", "conv"],
    "block_multiple_of": 7, "block_ffn_dim_multiplier": 1.3, "conv_bias": True, "conv_L_cache": 4,
}  # fmt: skip
_OWN = ("block", "conv", "layer", "norm")
_GRANITE = {name: value for name, value in _LFM2.items() if name.partition("_")[0] not in _OWN} | {
    "embedding_multiplier": 2.5, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 3.0,
}  # fmt: skip
_BIASED = {"attention_bias": True, "mlp_bias": True}
_HYBRID: dict[str, Any] = _GRANITE | {
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "mamba_n_heads": 6, "mamba_d_state": 7, "mamba_n_groups": 3, "mamba_d_conv": 3, "mamba_expand": 1,
    "mamba_chunk_size": 4, "shared_intermediate_size": 11, "num_local_experts": 5, "num_experts_per_tok": 3,
    "rms_norm_eps": 1e-2, "mamba_proj_bias": True, "attention_bias": True,
}  # fmt: skip
_DENSE: dict[str, Any] = {
    "num_local_experts": 0, "position_embedding_type": "rope", "mamba_conv_bias": False, "mamba_proj_bias": False,
    "tie_word_embeddings": True, "mamba_n_groups": 1,
}  # fmt: skip
CASES = [
    pretrained.Case("lfm2 words with biases", "Lfm2ForCausalLM", _LFM2),
    pretrained.Case(
        "lfm2 words untied", "Lfm2ForCausalLM",
        _LFM2 | {
            "tie_word_embeddings": False, "conv_bias": False, "conv_L_cache": 2, "block_auto_adjust_ff_dim": False
        },
    ),
    pretrained.Case("granite words biased", "GraniteForCausalLM", _GRANITE | _BIASED),
    pretrained.Case("granitemoehybrid words", "GraniteMoeHybridForCausalLM", _HYBRID),
    pretrained.Case("granitemoehybrid words dense", "GraniteMoeHybridForCausalLM", _HYBRID | _DENSE),
]  # fmt: skip


@pytest.mark.parametrize("side", ["no mask", "left", "right", "13 tokens", "holes"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_shapes(case: Any, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pretrained.MASKS, "holes", HOLES)
    torch.manual_seed(len(side))
    theirs = pretrained.theirs_of(case)
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    for _, part in ours.modules():
        if isinstance(part, Mamba2):
            part.chunk = 3  # which divides no text here
    pretrained.test_outputs_and_every_gradient_are_theirs((case, theirs, ours), side)
