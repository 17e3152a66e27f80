"""A model of Hugging Face's, converted to a .gguf file by llama.cpp's rules, opens as the same model.

The rules are those of llama.cpp, convert_hf_to_gguf.py: what set_gguf_parameters writes, and what modify_tensors does.
"""

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_files import write_gguf

from minitransformer.cli import main
from minitransformer.models import from_pretrained

from . import test_pretrained as pretrained

in_float64 = pretrained.in_float64
Arrays = dict[str, np.ndarray]
IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])


def by_kind(x: np.ndarray, n_heads: int) -> np.ndarray:
    """GPTNeoXModel and BloomModel: from head by head to all queries, all keys, all values."""
    return x.reshape(n_heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def offset(c: Any) -> int:
    """XLMRobertaModel: how many rows of the table of positions, those before position 0, are left out."""
    return c.pad_token_id + 1 if "roberta" in c.model_type else 0


def changed(kind: str, name: str, x: np.ndarray, c: Any) -> Arrays:
    """What modify_tensors makes of a tensor, by its name in a folder; nothing: it is left out."""
    if name.endswith((".attn.bias", "position_ids")) or re.match(r"(bert\.)?pooler", name):
        return {}
    match kind:
        case "gpt2" if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            x = x.T
        case "gptneox" | "bloom" if "query_key_value" in name:
            x = by_kind(x, c.num_attention_heads)
        case "mamba2":
            name = name.replace("dt_bias", "dt_proj.bias")
            x = -np.exp(x) if name.endswith("A_log") else x.squeeze() if "conv1d" in name else x
            x = x[:, None] if name.endswith(("A_log", "mixer.D")) else x
            x = x.reshape(c.n_groups, -1) if "mixer.norm" in name else x
        case "gpt-oss" if ".experts." in name:
            place, own = name.rsplit(".", 1)
            x = x if own.endswith("_bias") else x.swapaxes(1, 2)
            leaf = "bias" if own.endswith("_bias") else "weight"
            if own.startswith("gate_up"):
                return {f"{place}.gate_proj.{leaf}": x[:, ::2], f"{place}.up_proj.{leaf}": x[:, 1::2]}
            name = f"{place}.down_proj.{leaf}"
        case "gpt-oss" if name.endswith("sinks"):
            name += ".weight"
        case "bert" if name.endswith("position_embeddings.weight"):
            x = x[offset(c) :]
        case "t5" | "t5encoder" if re.match(r"(en|de)coder\.embed_tokens", name):
            return {}
    return {name: x}


def rows(state: Any) -> Arrays:
    return {name: x.numpy() for name, x in state.items()}


def converted(kind: str, architecture: str, theirs: Any) -> Arrays:
    c, found = theirs.config, {}
    tied = getattr(c, "tie_word_embeddings", False) and kind != "t5"
    n_layers = max(c.num_hidden_layers, getattr(c, "num_decoder_layers", 0))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], n_layers)
    for place, x in rows(theirs.state_dict()).items():
        if tied and place in ("lm_head.weight", "embed_out.weight"):
            continue
        for name, part in changed(kind, place, x, c).items():
            name = name.removeprefix("transformer.") if kind == "bloom" else name
            own = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert own is not None, name
            found[own] = np.ascontiguousarray(part, np.float32)
    return found


def states(c: Any) -> dict[str, Any]:
    width = c.expand * c.hidden_size
    return {
        "context_length": 2**20, "head_count": 0, "feed_forward_length": 0, "ssm.conv_kernel": c.conv_kernel,
        "ssm.inner_size": width, "ssm.state_size": c.state_size, "ssm.time_step_rank": c.num_heads,
        "ssm.group_count": c.n_groups, "norm": c.layer_norm_epsilon,
    }  # fmt: skip


def of_t5(c: Any) -> dict[str, Any]:
    return {
        "context_length": 512, "feed_forward_length": c.d_ff, "decoder_block_count": c.num_decoder_layers,
        "attention.key_length": c.d_kv, "attention.value_length": c.d_kv, "norm": c.layer_norm_epsilon,
        "attention.layer_norm_epsilon": c.layer_norm_epsilon, "decoder_start_token_id": c.decoder_start_token_id,
        "attention.relative_buckets_count": c.relative_attention_num_buckets,
    }  # fmt: skip


def of_gpt_oss(c: Any) -> dict[str, Any]:
    return {
        "attention.key_length": c.head_dim, "attention.value_length": c.head_dim, "rope.dimension_count": c.head_dim,
        "head_count_kv": c.num_key_value_heads, "attention.sliding_window": c.sliding_window,
        "expert_count": c.num_local_experts, "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.intermediate_size, "rope.freq_base": 500.0, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 8, "norm": c.rms_norm_eps,
    }  # fmt: skip


def turned(c: Any) -> int:
    return int(c.rope_parameters["partial_rotary_factor"] * (c.hidden_size // c.num_attention_heads))


METADATA: dict[str, Any] = {
    "gpt2": lambda c: {"feed_forward_length": 4 * c.n_embd, "layer_norm": c.layer_norm_epsilon},
    "gptneox": lambda c: {
        "rope.dimension_count": turned(c), "use_parallel_residual": c.use_parallel_residual,
        "layer_norm": c.layer_norm_eps,
    },
    "phi2": lambda c: {
        "rope.dimension_count": turned(c), "head_count_kv": c.num_key_value_heads, "layer_norm": c.layer_norm_eps
    },
    "bloom": lambda c: {
        "context_length": 32, "feed_forward_length": 4 * c.hidden_size, "layer_norm": c.layer_norm_epsilon
    },
    "bert": lambda c: {
        "attention.causal": False, "pooling_type": 1, "layer_norm": getattr(c, "layer_norm_eps", 1e-12),
        "feed_forward_length": getattr(c, "hidden_dim", None) or c.intermediate_size,
        "context_length": c.max_position_embeddings - offset(c),
    },
    "modern-bert": lambda c: {
        "attention.causal": False, "pooling_type": 2, "layer_norm": c.norm_eps,
        "attention.sliding_window": c.local_attention, "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": 3,
    },
    "mamba2": states,
    "t5": of_t5,
    "t5encoder": of_t5,
    "gpt-oss": of_gpt_oss,
}  # fmt: skip


def metadata(kind: str, c: Any) -> dict[str, Any]:
    """Names of fields without that of the architecture; norm, layer_norm: the number below the root."""
    found = {
        "block_count": c.num_hidden_layers, "embedding_length": c.hidden_size,
        "context_length": getattr(c, "max_position_embeddings", None),
        "feed_forward_length": getattr(c, "intermediate_size", None), "vocab_size": None, "rope.freq_base": None,
        "head_count": getattr(c, "num_attention_heads", None), "head_count_kv": None, "norm": None,
        "rope.dimension_count": None,
    } | METADATA[kind](c)  # fmt: skip
    long = {"head_count": "attention.head_count", "head_count_kv": "attention.head_count_kv"}
    long |= {"norm": "attention.layer_norm_rms_epsilon", "layer_norm": "attention.layer_norm_epsilon"}
    return {f"llama__{long.get(name, name).replace('.', '__')}": value for name, value in found.items()}


class AsOurs:
    """What `write_gguf` asks of a model of ours; all of it is given in the metadata."""

    def __init__(self) -> None:
        self.config = self

    def __getattr__(self, name: str) -> int:
        return 1


_SMALL = {"vocab_size": 13, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_SIZES = _SMALL | {
    "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 10, "num_hidden_layers": 2,
    "max_position_embeddings": 32,
}  # fmt: skip
_GPT_2 = _SMALL | {"n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 32, "n_inner": 48}
_BLOOM = _SMALL | {"hidden_size": 12, "n_head": 3, "n_layer": 2, "seq_length": 32}
_T5 = {
    "vocab_size": 13, "d_model": 12, "d_kv": 5, "num_heads": 3, "d_ff": 8, "num_layers": 2, "num_decoder_layers": 3,
    "pad_token_id": 1, "eos_token_id": None, "decoder_start_token_id": 2, "relative_attention_num_buckets": 8,
}  # fmt: skip
_GPT_OSS = _SMALL | {
    "hidden_size": 12, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 8,
    "num_hidden_layers": 2, "max_position_embeddings": 32, "sliding_window": 3, "num_local_experts": 3,
    "num_experts_per_tok": 2, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    },
}  # fmt: skip
_MAMBA_2 = _SMALL | {
    "hidden_size": 12, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 6, "state_size": 5, "n_groups": 2,
    "conv_kernel": 3, "chunk_size": 4,
}  # fmt: skip
CASES = [  # the name in a file, that of the library `gguf`, the case
    ("gpt2", "GPT2", pretrained.Case("gpt2", "GPT2LMHeadModel", _GPT_2)),
    ("gptneox", "GPTNEOX", pretrained.Case("gpt_neox", "GPTNeoXForCausalLM", _SIZES | {"rotary_pct": 0.5})),
    ("bloom", "BLOOM", pretrained.Case("bloom", "BloomForCausalLM", _BLOOM)),
    ("phi2", "PHI2", pretrained.Case("phi", "PhiForCausalLM", _SIZES)),
    ("bert", "BERT", pretrained.Case("bert", "BertModel", _SIZES)),
    ("bert", "BERT", pretrained.Case("distilbert", "DistilBertModel", {
        "vocab_size": 13, "dim": 24, "n_heads": 3, "hidden_dim": 10, "n_layers": 2, "max_position_embeddings": 32,
        "pad_token_id": 0,
    })),
    ("bert", "BERT", pretrained.Case("xlm-roberta", "XLMRobertaModel", _SIZES | {"pad_token_id": 0})),
    ("modern-bert", "MODERN_BERT", pretrained.Case(
        "modernbert", "ModernBertModel", _SIZES | {"num_hidden_layers": 4, "local_attention": 4},
    )),
    ("t5", "T5", pretrained.Case("t5", "T5ForConditionalGeneration", _T5)),
    ("t5", "T5", pretrained.Case(
        "t5", "T5ForConditionalGeneration", _T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    )),
    ("t5", "T5", pretrained.Case(
        "mt5", "MT5ForConditionalGeneration", _T5 | {"feed_forward_proj": "gated-gelu", "num_layers": 3},
    )),
    ("t5encoder", "T5ENCODER", pretrained.Case("t5", "T5EncoderModel", _T5)),
    ("mamba2", "MAMBA2", pretrained.Case("mamba2", "Mamba2ForCausalLM", _MAMBA_2)),
    ("gpt-oss", "GPT_OSS", pretrained.Case("gpt_oss", "GptOssForCausalLM", _GPT_OSS)),
]  # fmt: skip


@pytest.mark.parametrize("kind, architecture, case", CASES, ids=[f"{kind}-{i}" for i, (kind, *_) in enumerate(CASES)])
def test_a_converted_model_is_theirs(tmp_path: Path, kind: str, architecture: str, case: Any) -> None:
    torch.manual_seed(0)
    theirs = pretrained.theirs_of(case)
    if not getattr(
        theirs.config, "scale_decoder_outputs", case.model_type != "mt5"
    ):  # version 1.1 has a table of its own for logits
        theirs.lm_head.weight = torch.nn.Parameter(torch.randn(13, 12).double())
    with torch.no_grad():
        for parameter in theirs.parameters():  # as the file stores them
            parameter.copy_(torch.from_numpy(parameter.numpy().astype(np.float32).astype(np.float64)))
    path = write_gguf(
        tmp_path / "model.gguf", AsOurs(), architecture=kind, tensors=converted(kind, architecture, theirs),
        **metadata(kind, theirs.config),
    )  # type: ignore[arg-type]  # fmt: skip
    ours = from_pretrained(path).to(dtype="float64")
    ids = torch.from_numpy(IDS)
    given = (IDS, IDS[:, ::-1][:, :5].copy()) if kind == "t5" else (IDS,)
    extra = {"decoder_input_ids": torch.from_numpy(given[1])} if kind == "t5" else {}
    with torch.no_grad():
        expected = theirs(ids, **extra)[0].numpy()
    near = 1e-6 if kind == "mamba2" else 1e-9  # Mamba-2's file has exponentials of what a folder has
    np.testing.assert_allclose(ours(*given)[0], expected, rtol=0, atol=near)


def test_experts_of_four_bits_are_read_as_their_library_unpacks_them(tmp_path: Path) -> None:
    """MXFP4, in which gpt-oss is published: 32 numbers of four bits share a power of two."""
    kind = gguf.GGMLQuantizationType.MXFP4
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 32}
    theirs = pretrained.theirs_of(pretrained.Case("gpt_oss", "GptOssForCausalLM", _GPT_OSS | sizes))
    exact, more = converted("gpt-oss", "GPT_OSS", theirs), metadata("gpt-oss", theirs.config)
    unpacked = {name: gguf.dequantize(gguf.quantize(x, kind), kind) if x.ndim > 1 else x for name, x in exact.items()}
    packed = write_gguf(tmp_path / "a.gguf", AsOurs(), kind, "gpt-oss", exact, **more)  # type: ignore[arg-type]
    plain = write_gguf(tmp_path / "b.gguf", AsOurs(), None, "gpt-oss", unpacked, **more)  # type: ignore[arg-type]
    ours, expected = from_pretrained(packed).state(), from_pretrained(plain).state()
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.parametrize("kind, of_hidden", [(1, lambda x: x.mean(0)), (2, lambda x: x[0]), (3, lambda x: x[-1])])
def test_embed_takes_the_token_that_a_file_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: int, of_hidden: Any
) -> None:
    theirs = pretrained.theirs_of(pretrained.Case("bert", "BertModel", _SIZES))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁{name}" for name in "abcdefgh")]
    tokenizer = {
        "model": "bert", "tokens": words, "token_type": [3] * 5 + [1] * 8, "padding_token_id": 0, "cls_token_id": 2,
        "unknown_token_id": 1, "seperator_token_id": 3,
    }  # fmt: skip
    more = metadata("bert", theirs.config) | {f"tokenizer__ggml__{name}": x for name, x in tokenizer.items()}
    more["llama__pooling_type"] = kind
    path, tensors = tmp_path / "a.gguf", converted("bert", "BERT", theirs)
    write_gguf(path, AsOurs(), None, "bert", tensors, **more)  # type: ignore[arg-type]
    assert main(["embed", "--model", str(path), "b a d", "--json"]) == 0
    with torch.no_grad():
        vector = of_hidden(theirs(torch.tensor([[2, 6, 5, 8, 3]]))[0][0]).numpy()
    found = json.loads(capsys.readouterr().out)["vectors"][0]
    np.testing.assert_allclose(found, vector / np.linalg.norm(vector), rtol=0, atol=1e-5)
