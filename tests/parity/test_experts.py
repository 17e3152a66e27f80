"""Parity with Hugging Face on families with experts and latents: random sizes, both spellings of a file, and the cache.

Sizes are odd and unequal, experts few or many, so that some get no token. Random weights make no ties of scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.core.models.language_model import positions_of
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import WORDS
from minitransformer.ideas.published.fields import Fields
from minitransformer.models import from_pretrained

from . import test_pretrained as published
from .test_pretrained import in_float64  # noqa: F401  # a fixture

NAMES = {
    "mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "olmoe": "OlmoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
}  # fmt: skip
each_family = pytest.mark.parametrize("name", NAMES)


def drawn(name: str, seed: int) -> dict[str, Any]:
    """The fields of a random config.json."""
    r = np.random.default_rng(seed)

    def one(*values: Any) -> Any:
        return values[int(r.integers(len(values)))]

    n_heads, n_experts = one(2, 3, 4), one(2, 4, 6, 11)
    fields = {
        "vocab_size": 23, "num_attention_heads": n_heads, "num_key_value_heads": n_heads // one(1, n_heads),
        "hidden_size": n_heads * one(2, 4, 6), "intermediate_size": one(5, 9, 14), "num_hidden_layers": one(1, 2, 3),
        "num_experts_per_tok": min(n_experts, one(1, 2, 3)), "max_position_embeddings": 32,
        "rms_norm_eps": one(1e-6, 1e-3), "tie_word_embeddings": one(True, False), "hidden_act": one("silu", "gelu"),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": one(50.0, 1e4)},
    }  # fmt: skip
    bias = {"attention_bias": one(True, False)}
    if name == "mixtral":
        return fields | {"head_dim": one(2, 6), "num_local_experts": n_experts, "sliding_window": one(None, 2, 4)}
    if name == "olmoe":
        return fields | bias | {"num_experts": n_experts, "norm_topk_prob": one(True, False)}
    if name == "qwen3_moe":
        return fields | bias | {
            "num_experts": n_experts, "head_dim": one(2, 6), "moe_intermediate_size": one(3, 7),
            "norm_topk_prob": one(True, False), "mlp_only_layers": one([], [0], [1]),
            "decoder_sparse_step": one(1, 2), "use_sliding_window": one(True, False), "sliding_window": one(2, 3),
        }  # fmt: skip
    groups, size = one((1, 1), (2, 1), (3, 2)), one(2, 3)
    n_experts = groups[0] * size
    fields |= bias | {
        "num_key_value_heads": n_heads, "q_lora_rank": one(None, 5), "kv_lora_rank": one(4, 6),
        "qk_rope_head_dim": one(2, 4), "qk_nope_head_dim": one(2, 6), "v_head_dim": one(3, 5),
        "n_routed_experts": n_experts, "n_group": groups[0], "topk_group": groups[1],
        "num_experts_per_tok": min(groups[1] * size, one(1, 2, 3)), "moe_intermediate_size": one(3, 7),
        "n_shared_experts": one(1, 2),
        "first_k_dense_replace": one(0, fields["num_hidden_layers"] - 1), "routed_scaling_factor": one(0.7, 2.5),
    }  # fmt: skip
    if one(True, False):
        scaled = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8}
        fields |= {"rope_parameters": scaled | one({}, {"mscale": 0.7, "mscale_all_dim": 1.3})}
    if name == "deepseek_v2":
        return fields | {"topk_method": one("greedy", "group_limited_greedy"), "mlp_bias": one(True, False)}
    return fields | {"norm_topk_prob": one(True, False), "rope_interleave": one(True, False)}


QUICK = (0, 18)
SEEDS = [pytest.param(seed, marks=[pytest.mark.sweep] * (seed not in QUICK)) for seed in range(30)]


@each_family
@pytest.mark.parametrize("seed", SEEDS)
def test_random_sizes_are_theirs(name: str, seed: int, tmp_path: Path) -> None:
    """Values, every gradient and greedy texts, padded on either side; and a file of ours opened by them and by us."""
    case = published.Case(name, NAMES[name], drawn(name, seed))
    theirs = published.theirs_of(case)
    theirs.save_pretrained(tmp_path)
    pair = case, theirs, from_pretrained(tmp_path)
    for side in ("no mask", "right", "left", "holes", "one token"):
        published.test_outputs_and_every_gradient_are_theirs(pair, side)
    published.test_greedy_search_writes_the_same_with_and_without_a_cache(pair)
    published.test_what_we_save_opens_there_and_here_as_the_same_model(pair, tmp_path)


@each_family
def test_a_file_in_either_spelling_is_the_same_model(name: str, tmp_path: Path) -> None:
    """With a tensor for each expert, as on the hub, or with one for all experts of a layer, as in their model."""
    theirs = published.theirs_of(published.Case(name, NAMES[name], dict(FAMILIES[name].small)))
    ids = published.draw_ids(np.random.default_rng(0), (2, 7))
    expected = theirs(published.t(ids)).logits.detach().numpy()
    for how in (True, False):
        theirs.save_pretrained(tmp_path / str(how), save_original_format=how)
        ours = from_pretrained(tmp_path / str(how))
        np.testing.assert_allclose(ours(ids)[0], expected, rtol=0, atol=published.OUTPUT)


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_the_cache_holds_the_latent_alone(name: str, tmp_path: Path) -> None:
    """Of each token d_latent + d_rotary numbers in a layer, for texts padded on the left, and the same logits."""
    theirs = published.theirs_of(published.Case(name, NAMES[name], dict(FAMILIES[name].small)))
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    mask = np.arange(9) >= np.array([[0], [3]])
    ids, at = published.draw_ids(np.random.default_rng(0), (2, 9)), positions_of(mask)
    options = {"attention_mask": published.t(mask.astype(int)), "position_ids": published.t(at)}
    expected = theirs(published.t(ids), **options).logits.detach().numpy()
    cache, found = ours.new_cache(), []
    for a, b in [(0, 4), (4, 5), (5, 9)]:
        found.append(ours(ids[:, a:b], cache=cache, mask=mask[:, :b], positions=at[:, a:b])[0])
    np.testing.assert_allclose(np.concatenate(found, axis=1)[mask], expected[mask], rtol=0, atol=published.OUTPUT)
    numbers = sum(part.size for layer in cache.self_attention for part in layer.read())
    config = ours.config
    assert numbers == 2 * 9 * config.n_layers * (config.d_latent + config.d_rotary)
    their_cache = theirs(published.t(ids), use_cache=True).past_key_values
    assert numbers == sum(part.numel() for layer in their_cache.layers for part in (layer.keys, layer.values))


WRONG = {
    "groups of equal size": {"n_group": 4},
    "scoring_func 'softmax' is not supported, only 'sigmoid' is": {"scoring_func": "softmax"},
    "not understood in config.json: index_topk = 7": {"index_topk": 7},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_missing_is_named(message: str) -> None:
    family = FAMILIES["deepseek_v3"]
    with pytest.raises(ValueError, match=message):
        family.read(Fields(dict(family.small) | WRONG[message]), WORDS, {})
