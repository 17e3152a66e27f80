"""Parity of Mamba-2, OLMo Hybrid and Kimi Linear with Hugging Face: random models of unequal sizes, holes in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from minitransformer.models import from_pretrained

from . import test_pretrained as pretrained

pytestmark = pytest.mark.parity
in_float64 = pretrained.in_float64
HOLES = np.array([[1, 1, 0, 1, 0, 0, 1], [1, 0, 1, 1, 1, 1, 0], [1] * 7], bool)
_ANY: dict[str, Any] = {
    "vocab_size": 23, "hidden_size": 14, "num_hidden_layers": 4, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
_MAMBA = _ANY | {
    "num_hidden_layers": 3, "num_heads": 6, "head_dim": 7, "expand": 3, "state_size": 5, "n_groups": 3,
    "conv_kernel": 3, "chunk_size": 4, "layer_norm_epsilon": 1e-2, "use_bias": True,
}  # fmt: skip
_PLAIN_MAMBA = {
    "n_groups": 1, "use_bias": False, "use_conv_bias": False, "tie_word_embeddings": True, "hidden_act": "gelu",
}  # fmt: skip
_OLMO = _ANY | {
    "hidden_size": 18, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "intermediate_size": 9,
    "linear_num_value_heads": 6, "linear_num_key_heads": 2, "linear_key_head_dim": 5, "linear_value_head_dim": 3,
    "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-2, "rope_parameters": {"rope_theta": None},
}  # fmt: skip
_TURNED_OLMO = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}, "linear_allow_neg_eigval": False,
    "num_key_value_heads": 6, "attention_bias": True, "tie_word_embeddings": True, "linear_num_key_heads": 6,
    "layer_types": ["full_attention", "linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
_KIMI = _ANY | {
    "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 9, "q_lora_rank": 4, "kv_lora_rank": 6,
    "qk_rope_head_dim": 3, "qk_nope_head_dim": 5, "v_head_dim": 7, "num_experts": 8, "num_experts_per_token": 3,
    "num_shared_experts": 2, "moe_intermediate_size": 5, "num_expert_group": 4, "topk_group": 2, "linear_num_heads": 2,
    "linear_head_dim": 6, "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-2,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
}  # fmt: skip
_OTHER_KIMI = {
    "q_lora_rank": None, "moe_renormalize": False, "attention_bias": True,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"],
    "num_expert_group": 1, "topk_group": 1, "layer_types": ["full_attention"] + ["linear_attention"] * 3,
}  # fmt: skip
CASES = [
    pretrained.Case("mamba2 words biased", "Mamba2ForCausalLM", _MAMBA),
    pretrained.Case("mamba2 words tied", "Mamba2ForCausalLM", _MAMBA | _PLAIN_MAMBA),
    pretrained.Case("olmo_hybrid words", "OlmoHybridForCausalLM", _OLMO),
    pretrained.Case("olmo_hybrid words turned", "OlmoHybridForCausalLM", _OLMO | _TURNED_OLMO),
    pretrained.Case("kimi_linear words", "KimiLinearForCausalLM", _KIMI),
    pretrained.Case("kimi_linear words other shape", "KimiLinearForCausalLM", _KIMI | _OTHER_KIMI),
]


def as_published(folder: Path, theirs: Any) -> None:
    """Write the filters of queries, keys and values as the published files have them.

    The library reads any three that make the whole, and writes three equal ones.
    """
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, part in theirs.named_modules():
        if name.endswith(".conv1d") and f"{name[:-6]}q_conv1d.weight" in tensors:
            owner = theirs.get_submodule(name.rpartition(".")[0])
            widths = [getattr(owner, f"{each}_proj").weight.shape[0] for each in "qkv"]
            for each, weight in zip("qkv", part.weight.detach().split(widths), strict=True):
                tensors[f"{name[:-6]}{each}_conv1d.weight"] = weight.contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.few(0, slow=8)
@pytest.mark.parametrize("side", ["holes", "left", "right", "13 tokens", "no mask"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_shapes(case: Any, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pretrained.MASKS, "holes", HOLES)
    torch.manual_seed(len(side))
    theirs = pretrained.theirs_of(case)
    theirs.save_pretrained(tmp_path)
    as_published(tmp_path, theirs)
    ours = from_pretrained(tmp_path)
    for _, part in ours.modules():
        if hasattr(part, "chunk"):
            part.chunk = 3  # which divides no text here
    pretrained.test_outputs_and_every_gradient_are_theirs((case, theirs, ours), side)
