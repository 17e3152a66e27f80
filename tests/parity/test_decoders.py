"""Gemma, Gemma 3, OLMo 3, SmolLM3 and nanochat in random shapes: outputs, gradients, greedy texts, folders.

What is tested stands in test_pretrained.py; the configs are drawn here: unequal sizes, shared heads of keys, windows
shorter than the text, other orders of layers, scaled angles, tied and untied tables, biases, with a head and without.
"""

from typing import Any

import numpy as np

from .test_pretrained import (  # noqa: F401  # the tests, and a fixture
    Case,
    in_float64,
    test_greedy_search_writes_the_same_with_and_without_a_cache,
    test_outputs_and_every_gradient_are_theirs,
    test_what_we_save_opens_there_and_here_as_the_same_model,
    theirs_of,
)

STEMS = {"gemma": "Gemma", "gemma3_text": "Gemma3", "olmo3": "Olmo3", "smollm3": "SmolLM3", "nanochat": "NanoChat"}
KINDS = ("sliding_attention", "full_attention")


def drawn(name: str, seed: int) -> Case:
    """A config of a family. Seed 0 is a body without a head."""
    rng = np.random.default_rng([seed, sorted(STEMS).index(name)])
    n_layers, n_key_heads = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    heads = n_key_heads * int(rng.integers(1, 4))
    width = heads * int(rng.integers(2, 6)) if "gemma" not in name else max(4, heads**2)  # of exact root
    config: dict[str, Any] = {
        "vocab_size": int(rng.integers(14, 30)), "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": n_key_heads, "head_dim": 2 * int(rng.integers(1, 6)),
        "intermediate_size": int(rng.integers(3, 24)), "num_hidden_layers": n_layers, "max_position_embeddings": 32,
        "tie_word_embeddings": bool(rng.integers(2)), "attention_bias": bool(rng.integers(2)),
        "rms_norm_eps": float(10.0 ** rng.uniform(-6, -2)), "bos_token_id": None, "eos_token_id": None,
        "pad_token_id": None,
    }  # fmt: skip
    one = {"rope_type": "default", "rope_theta": float(rng.uniform(20.0, 2000.0))}
    scaled = {"rope_type": ["linear", "yarn"][seed % 2], "rope_theta": 300.0, "factor": float(rng.uniform(1.5, 9.0))}
    config["rope_parameters"] = one
    if name in ("gemma3_text", "olmo3"):
        every = int(rng.integers(1, n_layers + 1))
        config["rope_parameters"] = dict(zip(KINDS, (one, scaled), strict=True))
        config["sliding_window"] = int(rng.integers(1, 7))
        config["layer_types"] = [KINDS[(i + 1) % every == 0] for i in range(n_layers)]
    if name == "gemma3_text":
        config |= {"query_pre_attn_scalar": int(rng.integers(1, 20)), "hidden_activation": "gelu"}
    if name in ("gemma3_text", "nanochat"):
        config["final_logit_softcapping"] = [None, 1.5, 4.0][seed % 3]
    if name == "smollm3":
        config |= {"no_rope_layer_interval": int(rng.integers(1, n_layers + 1)), "mlp_bias": bool(seed % 2)}
    end = "ForCausalLM" if seed else "TextModel" if name == "gemma3_text" else "Model"
    return Case(f"{name} {seed}", STEMS[name] + end, config)


CASES = [drawn(name, seed) for name in STEMS for seed in range(5)]
