"""Parity with Hugging Face in more shapes: encoders of today, older decoders, and the heads of classes and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minitransformer.models import from_pretrained, save_pretrained

from . import test_pretrained as published
from .test_pretrained import Case, in_float64  # noqa: F401  # a fixture

pytestmark = pytest.mark.parity

_ELECTRA = published._BERT | {"embedding_size": 7}
_BLOOM = {
    "vocab_size": 23, "hidden_size": 12, "n_head": 3, "n_layer": 2, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_MODERN = {
    "vocab_size": 23, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 4,
    "max_position_embeddings": 16, "pad_token_id": published.PAD, "local_attention": 4, "bos_token_id": None,
    "eos_token_id": None, "cls_token_id": None, "sep_token_id": None,
}  # fmt: skip
_BIASES = {f"{part}_bias": True for part in ("attention", "mlp", "norm", "classifier")}
_OPT = {
    "vocab_size": 23, "hidden_size": 12, "num_attention_heads": 3, "ffn_dim": 20, "num_hidden_layers": 2,
    "max_position_embeddings": 32, "pad_token_id": published.PAD, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_NEOX = {
    "vocab_size": 23, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 2,
    "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
CASES = [
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
    Case("xlm-roberta body", "XLMRobertaModel", published._BERT_3),
    Case("xlm-roberta classes", "XLMRobertaForSequenceClassification", published._BERT | {"num_labels": 3}),
    Case("mt5 body", "MT5Model", published._T5 | {"feed_forward_proj": "gated-gelu"}),
    Case("mt5 words", "MT5ForConditionalGeneration",
         published._T5 | {"feed_forward_proj": "gated-gelu", "d_kv": 4, "num_decoder_layers": 1}),
]  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: case.name, scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Any, Any]:
    case, folder = request.param, tmp_path_factory.mktemp("theirs")
    theirs = published.theirs_of(case)
    theirs.save_pretrained(folder)
    return case, theirs, from_pretrained(folder)


@pytest.mark.parametrize("side", published.MASKS)
def test_outputs_and_every_gradient_are_theirs(pair: Any, side: str) -> None:
    published.test_outputs_and_every_gradient_are_theirs(pair, side)


def test_greedy_search_writes_the_same_with_and_without_a_cache(pair: Any) -> None:
    published.test_greedy_search_writes_the_same_with_and_without_a_cache(pair)


def test_what_we_save_opens_there_and_here_as_the_same_model(pair: Any, tmp_path: Path) -> None:
    if pair[0].name == "phi body":  # as a language model it has a bias of the logits
        with pytest.raises(ValueError, match="the nearest is phi, with logit_bias=True"):
            save_pretrained(pair[2], tmp_path)
        return
    published.test_what_we_save_opens_there_and_here_as_the_same_model(pair, tmp_path)
