"""Parity with Hugging Face: each family, tiny and with random weights, saved by them and opened by us, and back.

Outputs, the gradient of every parameter, and what greedy search writes. All in float64: where their code computes a
part in float32 whatever comes, `all_in_float64` has it take doubles, since a rounding of theirs is no error of ours.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from minitransformer.core.models.language_model import positions_of
from minitransformer.generation import Continuation, Translation, beam_search, generate, write
from minitransformer.ideas.published.families import EVERY, FAMILIES
from minitransformer.ideas.published.family import head_of
from minitransformer.models import (
    Classifier,
    LanguageModel,
    MaskedLanguageModel,
    TextEncoder,
    Transformer,
    from_pretrained,
    save_pretrained,
)

from .counterparts import all_in_float64, t

OUTPUT, GRADIENT = 1e-10, 1e-10
ROUNDING = 1e-11  # relative: of a gradient of hundreds float64 has no more digits than that
PAD = 1  # in ids, where RoBERTa and BART have it


@pytest.fixture(autouse=True, scope="module")
def in_float64() -> Iterator[None]:
    with all_in_float64(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    architecture: str
    config: dict[str, Any]
    n_layers: int = 2

    @property
    def model_type(self) -> str:
        return self.name.split()[0]


_BERT = {
    "vocab_size": 23, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 2,
    "max_position_embeddings": 16, "pad_token_id": PAD,
}  # fmt: skip
_BERT_3 = _BERT | {"hidden_size": 10, "num_attention_heads": 2, "num_hidden_layers": 3, "hidden_act": "gelu_new"}
_DISTIL = {
    "vocab_size": 23, "dim": 12, "n_heads": 3, "hidden_dim": 20, "n_layers": 2, "max_position_embeddings": 16,
    "pad_token_id": PAD,
}  # fmt: skip
_ALBERT = _BERT | {"embedding_size": 7, "num_hidden_layers": 3}
_GPT2 = {
    "vocab_size": 23, "n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 32, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
_LLAMA = {
    "vocab_size": 23, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 20,
    "num_hidden_layers": 2, "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_LLAMA_2 = _LLAMA | {"hidden_size": 20, "num_attention_heads": 2, "head_dim": 8, "num_hidden_layers": 3}
_GEMMA_2 = _LLAMA | {  # a width whose root is exact: theirs is rounded to float32
    "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 3,
    "sliding_window": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5, "query_pre_attn_scalar": 7,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
_GPT_OSS = _LLAMA | {
    "num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 3, "sliding_window": 3, "num_local_experts": 5,
    "num_experts_per_tok": 2, "swiglu_limit": 1.5, "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}  # fmt: skip
_T5 = {
    "vocab_size": 23, "d_model": 12, "d_kv": 5, "num_heads": 3, "d_ff": 20, "num_layers": 2, "pad_token_id": PAD,
    "eos_token_id": None, "decoder_start_token_id": 2, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}  # fmt: skip
_BART = {
    "vocab_size": 23, "d_model": 12, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 32, "pad_token_id": PAD,
    "bos_token_id": None, "eos_token_id": None, "forced_eos_token_id": None, "decoder_start_token_id": 2,
}  # fmt: skip

_BART_2 = _BART | {
    "d_model": 10, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 14,
    "decoder_ffn_dim": 14, "encoder_layers": 1, "decoder_layers": 2,
}  # fmt: skip
_ELECTRA = _BERT | {"embedding_size": 7}
_BLOOM = {
    "vocab_size": 23, "hidden_size": 12, "n_head": 3, "n_layer": 2, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_MODERN = {
    "vocab_size": 23, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 4,
    "max_position_embeddings": 16, "pad_token_id": PAD, "local_attention": 4, "bos_token_id": None,
    "eos_token_id": None, "cls_token_id": None, "sep_token_id": None,
}  # fmt: skip
_BIASES = {f"{part}_bias": True for part in ("attention", "mlp", "norm", "classifier")}
_OPT = {
    "vocab_size": 23, "hidden_size": 12, "num_attention_heads": 3, "ffn_dim": 20, "num_hidden_layers": 2,
    "max_position_embeddings": 32, "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_NEOX = {
    "vocab_size": 23, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 2,
    "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip

# Each family that is found, in its small model; and most in other shapes: heads of keys, biases, tied or untied tables,
# activations. Each case without a mask, with padding on the right and on the left, with 1, 7 and 13 tokens.
SMALL = [
    Case(f"{name} small", next(each for each, head in family.architectures.items() if head == family.example()[1]),
         dict(family.small))
    for name, family in FAMILIES.items()
]  # fmt: skip
CASES = [
    *SMALL,
    Case("bert body", "BertModel", _BERT),
    Case("bert masked untied", "BertForMaskedLM", _BERT_3 | {"tie_word_embeddings": False}),
    Case("bert classes", "BertForSequenceClassification", _BERT | {"num_labels": 4, "hidden_act": "relu"}),
    Case("roberta body", "RobertaModel", _BERT | {"type_vocab_size": 1}),
    Case("roberta masked", "RobertaForMaskedLM", _BERT | {"layer_norm_eps": 1e-5}),
    Case("roberta masked untied", "RobertaForMaskedLM", _BERT_3 | {"hidden_act": "gelu", "tie_word_embeddings": False}),
    Case("roberta classes", "RobertaForSequenceClassification", _BERT | {"num_labels": 3}),
    Case("distilbert body", "DistilBertModel", _DISTIL),
    Case("distilbert masked", "DistilBertForMaskedLM", _DISTIL | {"n_heads": 2, "n_layers": 3}),
    Case("distilbert masked untied", "DistilBertForMaskedLM", _DISTIL | {"tie_word_embeddings": False}),
    Case("distilbert classes", "DistilBertForSequenceClassification", _DISTIL | {"num_labels": 5}),
    Case("albert body", "AlbertModel", _ALBERT),
    Case("albert masked", "AlbertForMaskedLM", _ALBERT | {"num_hidden_layers": 4, "hidden_act": "gelu"}),
    Case("albert masked untied", "AlbertForMaskedLM", _ALBERT | {"tie_word_embeddings": False}),
    Case("albert masked as wide", "AlbertForMaskedLM", _BERT_3 | {"embedding_size": 10}),
    Case("albert classes", "AlbertForSequenceClassification", _ALBERT | {"num_labels": 2}),
    Case("gpt2 body", "GPT2Model", _GPT2),
    Case("gpt2 words untied", "GPT2LMHeadModel", _GPT2 | {"tie_word_embeddings": False, "n_inner": 20, "n_layer": 3}),
    Case("gpt2 words relu", "GPT2LMHeadModel", _GPT2 | {"activation_function": "relu", "n_head": 4}),
    Case("llama body", "LlamaModel", _LLAMA),
    Case("llama words ratio 2 tied", "LlamaForCausalLM",
         _LLAMA | {"num_key_value_heads": 3, "tie_word_embeddings": True}),
    Case("llama words ratio 3 biases", "LlamaForCausalLM",
         _LLAMA | {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "num_hidden_layers": 3}),
    Case("llama words other base and width", "LlamaForCausalLM",
         _LLAMA | {"num_key_value_heads": 2, "head_dim": 6,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}}),
    Case("llama words ratio 6 tied", "LlamaForCausalLM",
         _LLAMA | {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    Case("mistral words no window", "MistralForCausalLM", _LLAMA | {"num_key_value_heads": 3, "sliding_window": None}),
    Case("mistral words ratio 1 tied other shape", "MistralForCausalLM",
         _LLAMA_2 | {"num_key_value_heads": 2, "sliding_window": 5, "tie_word_embeddings": True}),
    Case("qwen2 words ratio 1", "Qwen2ForCausalLM", _LLAMA_2 | {"num_key_value_heads": 2}),
    Case("qwen2 words window tied", "Qwen2ForCausalLM",
         _LLAMA | {"num_key_value_heads": 3, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0,
                   "tie_word_embeddings": True}),
    Case("qwen3 body", "Qwen3Model", _LLAMA | {"head_dim": 6}),
    Case("qwen3 words ratio 3", "Qwen3ForCausalLM", _LLAMA | {"num_key_value_heads": 2, "head_dim": 4}),
    Case("qwen3 words biases tied other shape", "Qwen3ForCausalLM",
         _LLAMA_2 | {"num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": True}),
    Case("qwen3 words window", "Qwen3ForCausalLM",
         _LLAMA | {"num_key_value_heads": 3, "head_dim": 4, "use_sliding_window": True, "sliding_window": 4,
                   "max_window_layers": 0}),
    Case("olmo2 body", "Olmo2Model", _LLAMA_2 | {"num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    Case("olmo2 words biases tied", "Olmo2ForCausalLM",
         _LLAMA | {"num_key_value_heads": 2, "head_dim": 6, "attention_bias": True, "tie_word_embeddings": True,
                   "hidden_act": "gelu"}),
    Case("gemma2 body", "Gemma2Model", _GEMMA_2),
    Case("gemma2 words untied other shape", "Gemma2ForCausalLM",
         _GEMMA_2 | {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 6, "sliding_window": 5,
                     "num_hidden_layers": 2, "attention_bias": True, "tie_word_embeddings": False}),
    Case("gemma2 words without caps", "Gemma2ForCausalLM",
         _GEMMA_2 | {"num_key_value_heads": 1, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    Case("gpt_oss body", "GptOssModel", _GPT_OSS),
    Case("gpt_oss words tied other shape", "GptOssForCausalLM",
         _GPT_OSS | {"num_key_value_heads": 6, "num_hidden_layers": 2, "attention_bias": False, "sliding_window": 5,
                     "num_local_experts": 4, "num_experts_per_tok": 3, "tie_word_embeddings": True}),
    Case("gpt_oss words one key head", "GptOssForCausalLM", _GPT_OSS | {"num_key_value_heads": 1, "swiglu_alpha": 0.9}),
    Case("t5 body", "T5Model", _T5),
    Case("t5 words gated", "T5ForConditionalGeneration",
         _T5 | {"feed_forward_proj": "gated-gelu", "num_layers": 3, "num_decoder_layers": 2,
                "tie_word_embeddings": False}),
    Case("t5 words gated silu", "T5ForConditionalGeneration", _T5 | {"feed_forward_proj": "gated-silu", "d_kv": 4}),
    Case("bart body", "BartModel", _BART),
    Case("bart words untied scaled", "BartForConditionalGeneration",
         _BART | {"tie_word_embeddings": False, "scale_embedding": True, "decoder_layers": 1}),
    Case("bart words other shape", "BartForConditionalGeneration", _BART_2 | {"activation_function": "relu"}),
    Case("pegasus body", "PegasusModel", _BART),
    Case("pegasus words", "PegasusForConditionalGeneration", _BART | {"scale_embedding": True}),
    Case("pegasus words relu untied", "PegasusForConditionalGeneration",
         _BART | {"activation_function": "relu", "tie_word_embeddings": False, "encoder_layers": 3}),
    Case("marian body", "MarianModel", _BART),
    Case("marian body of three tables", "MarianModel", _BART | {"tie_word_embeddings": False}),
    Case("marian words", "MarianMTModel", _BART | {"activation_function": "swish", "scale_embedding": True}),
    Case("marian words other shape untied", "MarianMTModel", _BART_2 | {"tie_word_embeddings": False}),
    Case("marian words apart", "MarianMTModel",
         _BART | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 19}),
    Case("electra body", "ElectraModel", _ELECTRA | {"hidden_act": "relu"}),
    Case("electra masked as wide", "ElectraForMaskedLM", _ELECTRA | {"embedding_size": 12}),
    Case("electra masked untied", "ElectraForMaskedLM",
         _ELECTRA | {"tie_word_embeddings": False, "num_hidden_layers": 3, "type_vocab_size": 1}),
    Case("electra classes", "ElectraForSequenceClassification", _ELECTRA | {"num_labels": 3}),
    Case("modernbert body", "ModernBertModel", _MODERN),
    Case("modernbert masked biases untied", "ModernBertForMaskedLM",
         _MODERN | _BIASES | {"tie_word_embeddings": False, "num_hidden_layers": 3}),
    Case("modernbert masked other shape", "ModernBertForMaskedLM",
         _MODERN | {"hidden_size": 20, "num_attention_heads": 2, "local_attention": 9, "hidden_activation": "silu",
                    "classifier_activation": "silu", "layer_types": ["full_attention", "sliding_attention"] * 2,
                    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 77.0},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 9.0}}}),
    Case("bloom body", "BloomModel", _BLOOM),
    Case("bloom words untied other shape", "BloomForCausalLM",
         _BLOOM | {"hidden_size": 20, "n_head": 5, "n_layer": 3, "tie_word_embeddings": False,
                   "layer_norm_epsilon": 1e-3}),
    Case("bloom words of many heads", "BloomForCausalLM", _BLOOM | {"n_head": 12, "n_layer": 1}),
    Case("opt body", "OPTModel", _OPT),
    Case("opt words untied without biases", "OPTForCausalLM",
         _OPT | {"tie_word_embeddings": False, "enable_bias": False, "word_embed_proj_dim": 5}),
    Case("opt words as the one of 350M", "OPTForCausalLM",
         _OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 6, "num_hidden_layers": 3,
                 "activation_function": "gelu"}),
    Case("gpt_neox body", "GPTNeoXModel", _NEOX),
    Case("gpt_neox words in a row without biases", "GPTNeoXForCausalLM",
         _NEOX | {"use_parallel_residual": False, "attention_bias": False, "num_hidden_layers": 3,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 1.0}}),
    Case("gpt_neox words tied other shape", "GPTNeoXForCausalLM",
         _NEOX | {"hidden_size": 20, "num_attention_heads": 2, "rotary_pct": 0.4, "rotary_emb_base": 99.0,
                  "tie_word_embeddings": True, "hidden_act": "gelu_new"}),
    Case("phi body", "PhiModel", _NEOX),
    Case("phi words ratio 1 tied", "PhiForCausalLM",
         _NEOX | {"tie_word_embeddings": True, "hidden_act": "relu", "num_hidden_layers": 3}),
    Case("phi words other shape", "PhiForCausalLM",
         _NEOX | {"hidden_size": 20, "num_attention_heads": 2, "num_key_value_heads": 1, "partial_rotary_factor": 0.4}),
    Case("phi3 words window", "Phi3ForCausalLM",
         dict(FAMILIES["phi3"].small) | {"sliding_window": 3, "intermediate_size": 9, "num_key_value_heads": 3,
                                         "num_hidden_layers": 4}),
    Case("xlm-roberta body", "XLMRobertaModel", _BERT_3),
    Case("xlm-roberta classes", "XLMRobertaForSequenceClassification", _BERT | {"num_labels": 3}),
    Case("mt5 body", "MT5Model", _T5 | {"feed_forward_proj": "gated-gelu"}),
]  # fmt: skip


def theirs_of(case: Case, table: Callable[[int, int], Any] | None = None) -> Any:
    """A model of theirs in float64, its weights random, of ordinary size. table: of positions, if not `sinusoids`."""
    config = transformers.CONFIG_MAPPING[case.model_type](**case.config)
    model = getattr(transformers, case.architecture)(config).double().eval()
    model.config._experts_implementation = "eager"  # the others take no doubles
    exact_gelu(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # sines and cosines, which they round to float32
                parameter.copy_((table or sinusoids)(*parameter.shape))
            elif parameter.ndim == 1 and name.endswith("weight"):
                parameter.normal_(1.0, 0.3)
            else:
                parameter.normal_(0.0, 0.4)
        for name, buffer in model.named_buffers():
            if name.endswith("bias"):  # of logits, and of the choice of experts
                buffer.normal_(0.0, 0.5)
    return model


def exact_gelu(model: Any) -> None:
    """BLOOM's has a constant, √(2/π), of 8 digits."""
    for module in model.modules():
        if type(module).__name__ == "BloomGelu":
            module.forward = functools.partial(F.gelu, approximate="tanh")


def sinusoids(length: int, width: int) -> Any:
    places = torch.arange(length, dtype=torch.float64)[:, None]
    angles = places / 10000 ** (2 * torch.arange(width // 2, dtype=torch.float64) / width)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def draw_ids(rng: np.random.Generator, shape: tuple[int, ...], size: int = 13) -> np.ndarray:
    return rng.integers(3, size, shape)  # from 3 on: no padding


MASKS = {
    "no mask": None,
    "right": np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6], bool),
    "left": np.array([[1] * 7, [0] * 3 + [1] * 4, [0] * 2 + [1] * 5], bool),
    "one token": np.ones((2, 1), bool),
    "13 tokens": np.array([[1] * 13, [1] * 6 + [0] * 7], bool),
    "holes": np.array([[1, 1, 0, 1, 0, 0, 1], [1, 0, 1, 1, 1, 1, 0], [1] * 7], bool),
}


def run(case: Case, theirs: Any, ours: Any, side: str) -> tuple[Any, Any, Callable[[], None]]:
    """Their loss and outputs, ours, and our backward pass. The loss is a cross-entropy, of a body a weighted sum."""
    rng = np.random.default_rng(7)
    mask = MASKS[side]
    if side == "left" and isinstance(ours, Classifier | TextEncoder) and ours.config.pooler:
        mask = mask[:, ::-1]  # they read the first token, which must be a real one
    ids = draw_ids(rng, (3, 7) if mask is None else mask.shape)
    real = np.ones(ids.shape, bool) if mask is None else mask
    ids[~real] = PAD
    options = {} if mask is None else {"attention_mask": t(mask.astype(int))}
    if isinstance(ours, Transformer):
        return run_transformer(theirs, ours, ids, mask, options, rng)
    if isinstance(ours, LanguageModel):
        if case.model_type == "bloom":  # theirs measure no distance across a hole; ours count places
            count = type(theirs.base_model).build_alibi_tensor
            theirs.base_model.build_alibi_tensor = lambda mask, n, dtype: count(None, torch.ones_like(mask), n, dtype)
        at = positions_of(mask) if side in ("left", "holes") else None
        if at is not None:
            options["position_ids"] = t(at)
        found = theirs(t(ids), **options)
        if hasattr(found, "logits"):
            wanted = np.where(real & (rng.random(ids.shape) < 0.7), draw_ids(rng, ids.shape), -100)
            wanted[0, 0] = 5
            logits, _ = ours(ids, mask=mask, positions=at)
            loss, backward = ours.loss(ids, wanted, mask=mask, positions=at)
            return (entropy(found.logits, wanted), found.logits[t(real)]), (loss, logits[real]), backward
        hidden, backward = ours.hidden(ids, mask=mask, positions=at)
        return summed(found.last_hidden_state, hidden, real, backward, rng)
    types = rng.integers(0, ours.config.types, ids.shape) if ours.config.types > 1 else None
    if types is not None:
        options["token_type_ids"] = t(types)
    found = theirs(t(ids), **options)
    if isinstance(ours, TextEncoder):
        hidden, backward = ours(ids, mask, types)
        if ours.config.pooler is None:
            return summed(found.last_hidden_state, hidden, real, backward, rng)
        pooled, pool_backward = ours.pool(hidden)
        one, two, both = summed(found.last_hidden_state, hidden, real, backward, rng)
        weights = rng.normal(size=pooled.shape)
        loss = one[0] + (found.pooler_output * t(weights)).sum(), torch.cat([one[1], found.pooler_output])
        values = two[0] + (pooled * weights).sum(), np.concatenate([two[1], pooled])
        return loss, values, lambda: backward(both.weights + pool_backward(weights))
    if isinstance(ours, Classifier):
        labels = rng.integers(0, case.config["num_labels"], len(ids))
        logits, _ = ours(ids, mask, types)
        loss, backward = ours.loss(ids, labels, mask, types)
        return (F.cross_entropy(found.logits, t(labels)), found.logits), (loss, logits), backward
    wanted = np.where(real & (rng.random(ids.shape) < 0.5), draw_ids(rng, ids.shape), -100)
    wanted[0, 0] = 5
    logits, _ = ours(ids, mask, types)
    loss, backward = ours.loss(ids, wanted, mask, types)
    return (entropy(found.logits, wanted), found.logits[t(real)]), (loss, logits[real]), backward


def run_transformer(
    theirs: Any, ours: Transformer, ids: np.ndarray, mask: Any, options: dict, rng: np.random.Generator
) -> tuple[Any, Any, Callable[[], None]]:
    target = draw_ids(rng, (len(ids), max(1, ids.shape[1] - 2)))
    found = theirs(t(ids), decoder_input_ids=t(target), **options)
    if hasattr(found, "logits"):
        wanted = draw_ids(rng, target.shape)
        wanted[1, 2:] = -100
        logits, _ = ours(ids, target, mask)
        loss, backward = ours.loss(ids, target, wanted, mask)
        return (entropy(found.logits, wanted), found.logits), (loss, logits), backward
    memory, encode_backward = ours.encode(ids, mask)
    hidden, hidden_backward = ours.hidden(target, memory, mask)
    one, two, backward = summed(
        found.last_hidden_state, hidden, np.ones(target.shape, bool), lambda d: encode_backward(hidden_backward(d)), rng
    )
    return one, two, backward


def entropy(logits: Any, wanted: np.ndarray) -> Any:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), t(wanted).reshape(-1))


def summed(theirs: Any, ours: np.ndarray, real: np.ndarray, backward: Any, rng: np.random.Generator) -> Any:
    """The real positions, weighted at random and summed."""
    weights = rng.normal(size=ours.shape) * real[..., None]

    def step() -> None:
        backward(weights)

    step.weights = weights  # type: ignore[attr-defined]
    return ((theirs * t(weights)).sum(), theirs[t(real)]), ((ours * weights).sum(), ours[real]), step


def our_gradients(case: Case, theirs: Any, ours: Any) -> dict[str, np.ndarray]:
    """Our gradients under their names and in their layout."""
    family = EVERY[case.model_type]
    prefix = f"{family.prefix}." if hasattr(theirs, family.prefix or "shared") and family.prefix else ""
    values = {name: parameter.value for name, parameter in ours.parameters()}
    try:
        for _, parameter in ours.parameters():
            parameter.value = parameter.grad
        layout = family.layout(ours, prefix).as_in(theirs.state_dict())
        named = {place.theirs: place.read() for place in layout.places}
        return {name.replace("embed_out", "lm_head"): value for name, value in named.items()}  # of GPT-NeoX's files
    finally:
        for name, parameter in ours.parameters():
            parameter.value = values[name]


@pytest.mark.parametrize("side", MASKS)
def test_outputs_and_every_gradient_are_theirs(pair: Any, side: str) -> None:
    require_alike(pair, run(*pair, side), our_gradients)


def require_alike(pair: Any, ran: Any, gradients_of: Any) -> dict[str, np.ndarray]:
    """Outputs, losses and every gradient, of what `run` returned. Returns our gradients that theirs does not have."""
    case, theirs, ours = pair
    (their_loss, their_output), (our_loss, our_output), backward = ran
    assert our_output.dtype == np.float64
    np.testing.assert_allclose(our_output, their_output.detach(), rtol=0, atol=OUTPUT)
    assert abs(float(our_loss) - float(their_loss.detach())) < OUTPUT
    theirs.zero_grad()
    their_loss.backward()
    ours.zero_grad()
    backward()
    gradients = gradients_of(case, theirs, ours)
    every = list(theirs.named_parameters(remove_duplicate=False))  # a tied table has two names
    known = {id(parameter) for name, parameter in every if name in gradients}
    for name, parameter in every:
        if name in gradients or (id(parameter) not in known and parameter.requires_grad and parameter.grad is not None):
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            np.testing.assert_allclose(gradients.pop(name), expected, rtol=ROUNDING, atol=GRADIENT, err_msg=name)
    assert set(gradients) <= {name for name, _ in theirs.named_buffers()}  # theirs are no parameters
    return gradients


def test_the_row_of_the_padding_has_a_gradient_by_design(tmp_path: Path) -> None:
    """Theirs keeps back the gradient of that row where padding is read. Each other row is the same."""
    theirs = theirs_of(Case("bert", "BertModel", dict(_BERT)))
    theirs.save_pretrained(tmp_path)
    ours, rng = from_pretrained(tmp_path), np.random.default_rng(0)
    ids = np.array([[5, PAD, 7, PAD]])  # with no mask
    hidden, backward = ours(ids)
    weights = rng.normal(size=hidden.shape)
    backward(weights)
    (theirs(t(ids)).last_hidden_state * t(weights)).sum().backward()
    expected, found = theirs.embeddings.word_embeddings.weight.grad.numpy(), ours.embed.tokens.table.grad.copy()
    assert not expected[PAD].any() and abs(found[PAD]).max() > 0.1
    found[PAD] = 0.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=GRADIENT)


def test_positions_of_a_roberta_follow_the_mask_by_design(tmp_path: Path) -> None:
    """Theirs follow the ids, unless they are told the positions."""
    theirs = theirs_of(Case("roberta", "RobertaModel", dict(_BERT)))
    theirs.save_pretrained(tmp_path)
    ids, mask = np.array([[5, PAD, 7, 8, 9]]), np.array([[1, 1, 1, 0, 1]], bool)
    options = {"attention_mask": t(mask.astype(int))}
    told = theirs(t(ids), position_ids=t(np.where(mask, positions_of(mask), 0) + PAD + 1), **options)
    found = from_pretrained(tmp_path)(ids, mask)[0]
    np.testing.assert_allclose(found[mask], told.last_hidden_state.detach()[t(mask)], rtol=0, atol=OUTPUT)
    assert abs(found - theirs(t(ids), **options).last_hidden_state.detach().numpy())[mask].max() > 0.1


@pytest.mark.few(99, slow=0, named="small")  # each family; the other shapes are a sweep
def test_greedy_search_writes_the_same_with_and_without_a_cache(pair: Any) -> None:
    _, theirs, ours = pair
    if not isinstance(ours, LanguageModel | Transformer) or not hasattr(theirs, "lm_head"):
        return
    rng = np.random.default_rng(3)
    if isinstance(ours, Transformer):
        source = draw_ids(rng, (1, 7))
        expected = theirs.generate(t(source), max_new_tokens=9, do_sample=False, num_beams=1)[0, 1:].tolist()
        written = write(Translation(ours, source), [[2]], 9)[0]
        ids = np.array([[2]])
        for _ in range(9):
            ids = np.append(ids, [[ours(source, ids)[0][0, -1].argmax()]], axis=1)
        assert written == expected
        assert ids[0, 1:].tolist() == expected
        (best,) = beam_search(Translation(ours, source), [[2]], 6, 3)
        options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 6, "do_sample": False}
        found = theirs.generate(t(source), early_stopping=True, **options)[:, 1:].tolist()
        assert [each.tokens for each in best] == found
        return
    prompts = [draw_ids(rng, (n,)).tolist() for n in (1, 4, 7)]
    written, beams = generate(ours, prompts, 12), beam_search(Continuation(ours), prompts, 6, 3)
    for prompt, found, best in zip(prompts, written, beams, strict=True):
        expected = theirs.generate(t([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
        ids = np.array([prompt])
        for _ in range(12):
            ids = np.append(ids, [[ours(ids)[0][0, -1].argmax()]], axis=1)
        assert found == expected
        assert ids[0, len(prompt) :].tolist() == expected
        options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 6, "do_sample": False}
        theirs_best = theirs.generate(t([prompt]), early_stopping=True, **options)[:, len(prompt) :].tolist()
        assert [each.tokens for each in best] == theirs_best


def test_what_we_save_opens_there_and_here_as_the_same_model(pair: Any, tmp_path: Path) -> None:
    case, _, ours = pair
    if case.name == "phi body":  # as a language model it has a bias of the logits
        with pytest.raises(ValueError, match="the nearest is phi, with logit_bias=True"):
            save_pretrained(ours, tmp_path)
        return
    rng = np.random.default_rng(5)
    for _, parameter in ours.parameters():
        parameter.value = parameter.value + rng.normal(0.0, 0.1, parameter.value.shape)
    save_pretrained(ours, tmp_path / "back")
    kind = transformers.AutoConfig.from_pretrained(tmp_path / "back").architectures[0]
    their_class = getattr(transformers, kind)
    again, report = their_class.from_pretrained(tmp_path / "back", dtype=torch.float64, output_loading_info=True)
    again.config._experts_implementation = "eager"
    exact_gelu(again)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        for name, parameter in again.named_parameters():
            if "marian" in kind.lower() and "embed_positions" in name:  # they compute it, in float32
                parameter.copy_(sinusoids(*parameter.shape))
    kinds = {TextEncoder: "Model", MaskedLanguageModel: "MaskedLM", Classifier: "SequenceClassification"}
    assert kind.endswith(kinds.get(type(ours), kind))
    here = from_pretrained(tmp_path / "back")
    assert type(here) is type(ours) and head_of(here) == head_of(ours)
    ids, target = draw_ids(rng, (2, 7)), draw_ids(rng, (2, 5))
    inputs = (ids, target) if isinstance(ours, Transformer) else (ids,)
    options = {"decoder_input_ids": t(target)} if isinstance(ours, Transformer) else {}
    found = again.eval()(t(ids), **options)
    expected = found.logits if hasattr(found, "logits") else found.last_hidden_state
    np.testing.assert_allclose(ours(*inputs)[0], expected.detach(), rtol=0, atol=OUTPUT)
    np.testing.assert_array_equal(here(*inputs)[0], ours(*inputs)[0])
    assert math.isfinite(float(expected.detach().sum()))
