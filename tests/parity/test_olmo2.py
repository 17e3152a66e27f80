"""OLMo 2 in configurations drawn at random, against transformers: values and every gradient, with masks and without."""

from pathlib import Path

import numpy as np
import pytest
import torch

from minitransformer.models import from_pretrained

from . import test_pretrained as published
from .counterparts import all_in_float64

pytestmark = pytest.mark.parity


def drawn(seed: int) -> published.Case:
    """Sizes drawn at random; the queries of a key head are 1, 2, 3 or 4."""
    rng = np.random.default_rng(seed)
    n_key_heads, shared, d_head = (int(rng.integers(*ends)) for ends in ((1, 4), (1, 5), (1, 5)))
    config = {
        "vocab_size": int(rng.integers(13, 40)), "num_attention_heads": n_key_heads * shared,
        "num_key_value_heads": n_key_heads, "head_dim": 2 * d_head,
        "hidden_size": n_key_heads * shared * int(rng.integers(1, 6)), "intermediate_size": int(rng.integers(1, 40)),
        "num_hidden_layers": int(rng.integers(1, 4)), "max_position_embeddings": 32,
        "rms_norm_eps": float(10 ** rng.uniform(-6, -2)), "attention_bias": bool(rng.integers(2)),
        "tie_word_embeddings": bool(rng.integers(2)), "hidden_act": str(rng.choice(["silu", "gelu", "relu"])),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(rng.uniform(10, 1e6))},
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    return published.Case(f"olmo2 {seed}", "Olmo2ForCausalLM" if seed % 3 else "Olmo2Model", config)


def test_they_differ_in_what_matters() -> None:
    configs = [drawn(seed).config for seed in range(12)]
    assert {c["num_attention_heads"] // c["num_key_value_heads"] for c in configs} == {1, 2, 3, 4}
    assert len({(c["attention_bias"], c["tie_word_embeddings"]) for c in configs}) == 4


@pytest.mark.parametrize("seed", range(12))
def test_values_and_every_gradient_are_theirs(seed: int, tmp_path: Path) -> None:
    case = drawn(seed)
    with all_in_float64(), torch.random.fork_rng():
        torch.manual_seed(seed)
        theirs = published.theirs_of(case)
        theirs.save_pretrained(tmp_path)
        for side in published.MASKS:
            pair = case, theirs, from_pretrained(tmp_path)
            published.test_outputs_and_every_gradient_are_theirs(pair, side)
