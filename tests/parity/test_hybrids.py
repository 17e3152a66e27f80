"""Parity of the hybrids with Hugging Face: the delta rule in chunks, the convolution, and random models of each family.

The models read in chunks that do not divide the text, in sizes that all differ, with padding on either side and holes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

from minitransformer.ideas.after.chunked_delta import in_chunks
from minitransformer.ideas.after.short_convolution import short_convolution
from minitransformer.models import from_pretrained

from . import test_pretrained as pretrained

in_float64 = pretrained.in_float64
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-10}


def leaf(x: np.ndarray) -> Any:
    return torch.from_numpy(np.array(x)).requires_grad_()


@pytest.mark.parametrize("chunk", [1, 4, 5, 64])
def test_the_delta_rule_in_chunks_with_a_memory_before_and_after(chunk: int) -> None:
    rng = np.random.default_rng(chunk)
    q, k, v = (rng.normal(size=(2, 3, 13, width)) for width in (4, 4, 5))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    decay, beta = -rng.exponential(0.3, (2, 3, 13)), rng.random((2, 3, 13))
    memory = rng.normal(size=(2, 3, 4, 5))
    (output, after), backward = in_chunks(q / 2.0, k, v, decay, beta, memory, chunk)
    given = [leaf(x) for x in (q, k, v, decay, beta, memory)]
    *text, before = (x.transpose(1, 2) for x in given)
    their_output, their_after = torch_chunk_gated_delta_rule(
        *text, chunk_size=4, initial_state=before.transpose(1, 2), output_final_state=True
    )
    np.testing.assert_allclose(output, their_output.transpose(1, 2).detach(), **CLOSE)
    np.testing.assert_allclose(after, their_after.detach(), **CLOSE)
    doutput, dafter = rng.normal(size=output.shape), rng.normal(size=after.shape)
    dscaled, *others = backward(doutput, dafter)
    torch.autograd.backward(
        [their_output, their_after], [torch.from_numpy(doutput).transpose(1, 2), torch.from_numpy(dafter)]
    )
    for found, x in zip((dscaled / 2.0, *others), given, strict=True):
        np.testing.assert_allclose(found, x.grad, **CLOSE)


def test_the_short_convolution_with_what_came_before() -> None:
    rng = np.random.default_rng(0)
    given = [leaf(rng.normal(size=shape)) for shape in ((2, 7, 3), (4, 3), (3,), (2, 3, 3))]
    x, weight, bias, before = given
    y, backward = short_convolution(*(each.detach().numpy() for each in given))
    seen = torch.cat([before, x], dim=1).transpose(1, 2)
    theirs = torch.nn.functional.conv1d(seen, weight.T[:, None], bias, groups=3).transpose(1, 2)
    np.testing.assert_allclose(y, theirs.detach(), **CLOSE)
    dy = rng.normal(size=y.shape)
    theirs.backward(torch.from_numpy(dy))
    for found, each in zip(backward(dy), given, strict=True):
        np.testing.assert_allclose(found, each.grad, **CLOSE)


_ROPE = {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.25}
_SIZES: dict[str, Any] = {
    "vocab_size": 23, "hidden_size": 14, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
    "intermediate_size": 9, "num_hidden_layers": 4, "max_position_embeddings": 32, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "rope_parameters": _ROPE, "linear_num_value_heads": 6,
    "linear_num_key_heads": 2, "linear_key_head_dim": 9, "linear_value_head_dim": 3, "rms_norm_eps": 1e-2,
}  # fmt: skip
_ROUTED = {
    "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 5, "shared_expert_intermediate_size": 6,
    "norm_topk_prob": False, "decoder_sparse_step": 2,
}  # fmt: skip
_OTHER: dict[str, Any] = {
    "linear_num_value_heads": 3, "linear_num_key_heads": 3, "linear_conv_kernel_dim": 2, "attention_bias": True,
    "tie_word_embeddings": True, "num_key_value_heads": 1,
    "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
    "rope_parameters": _ROPE | {"partial_rotary_factor": 0.5},
}  # fmt: skip
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
    "mamba_chunk_size": 4, "shared_intermediate_size": 11, "num_local_experts": 7, "num_experts_per_tok": 3,
    "rms_norm_eps": 1e-2, "mamba_proj_bias": True, "attention_bias": True,
}  # fmt: skip
_DENSE: dict[str, Any] = {
    "num_local_experts": 0, "position_embedding_type": "rope", "mamba_conv_bias": False, "mamba_proj_bias": False,
    "tie_word_embeddings": True, "mamba_n_groups": 1,
}  # fmt: skip
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
    "hidden_size": 18, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 9,
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
    pretrained.Case("qwen3_5_text words", "Qwen3_5ForCausalLM", _SIZES),
    pretrained.Case("qwen3_5_text words other shape", "Qwen3_5ForCausalLM", _SIZES | _OTHER),
    pretrained.Case("qwen3_next words", "Qwen3NextForCausalLM", _SIZES | _ROUTED),
    pretrained.Case("qwen3_next words other shape", "Qwen3NextForCausalLM", _SIZES | _ROUTED | _OTHER),
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
    pretrained.Case("mamba2 words biased", "Mamba2ForCausalLM", _MAMBA),
    pretrained.Case("mamba2 words tied", "Mamba2ForCausalLM", _MAMBA | _PLAIN_MAMBA),
    pretrained.Case("olmo_hybrid words", "OlmoHybridForCausalLM", _OLMO),
    pretrained.Case("olmo_hybrid words turned", "OlmoHybridForCausalLM", _OLMO | _TURNED_OLMO),
    pretrained.Case("kimi_linear words", "KimiLinearForCausalLM", _KIMI),
    pretrained.Case("kimi_linear words other shape", "KimiLinearForCausalLM", _KIMI | _OTHER_KIMI),
]  # fmt: skip
CHUNKS = {"no mask": 3, "left": 2, "right": 5, "13 tokens": 5, "holes": 3}
WHOLE = ("lfm2", "granite")  # they read no text in chunks


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


@pytest.mark.few(45, slow=8)
@pytest.mark.parametrize("side", CHUNKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models_in_chunks_that_do_not_divide_the_text(case: Any, side: str, tmp_path: Path) -> None:
    torch.manual_seed(len(side))
    theirs = pretrained.theirs_of(case)
    theirs.save_pretrained(tmp_path)
    as_published(tmp_path, theirs)
    ours = from_pretrained(tmp_path)
    memories = [part for _, part in ours.modules() if hasattr(part, "chunk")]
    assert (len(memories) > 1) != (case.model_type in WHOLE)
    for part in memories:
        part.chunk = CHUNKS[side]
    pretrained.test_outputs_and_every_gradient_are_theirs((case, theirs, ours), side)


@pytest.mark.parametrize(("kind", "name"), [("Qwen3_5TextModel", "qwen3_5_text"), ("Qwen3NextModel", "qwen3_next")])
def test_bodies_without_a_head_open(kind: str, name: str, tmp_path: Path) -> None:
    theirs = pretrained.theirs_of(pretrained.Case(name, kind, _SIZES | (_ROUTED if name == "qwen3_next" else {})))
    theirs.save_pretrained(tmp_path)
    ids = np.array([[3, 7, 2, 9, 9]])
    expected = theirs(torch.from_numpy(ids)).last_hidden_state.detach()
    np.testing.assert_allclose(from_pretrained(tmp_path).hidden(ids)[0], expected, **CLOSE)
