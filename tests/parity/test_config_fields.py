"""Every field of config.json, changed one at a time: what opens must compute what Hugging Face's model computes.

For each family and head, their random model of the changed config is saved and opened here. It agrees, or a sentence
refuses it.
"""

import copy
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import BODY, CLASSES, MASKED, WORDS, Family
from minitransformer.ideas.published.text_encoder import TextEncoderConfig
from minitransformer.models import from_pretrained

from . import test_pretrained as published
from .test_pretrained import in_float64  # noqa: F401  # a fixture

AGREES = 1e-9
HEADS = [  # those of heads.py have the same configs as the bodies that they stand on
    (name, head)
    for name, family in FAMILIES.items()
    for head in dict.fromkeys(family.architectures.values())
    if head in (BODY, MASKED, WORDS) or (head == CLASSES and family.recipe is TextEncoderConfig)
]
ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "quick_gelu", "relu", "silu", "tanh"]
_GATED = [f"gated-{name}" for name in ("gelu", "gelu_new", "silu", "relu", "tanh")]
_TURNS: list[Any] = [
    {"rope_type": "default", "rope_theta": 77.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0, "original_max_position_embeddings": 4},
    {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8},
    {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
]  # fmt: skip
# Values of fields whose default does not show what else they may hold, and fields that a default config leaves out.
VALUES: dict[str, list[Any]] = {
    "rope_parameters": _TURNS,
    "rope_scaling": [each | {"type": each["rope_type"]} for each in _TURNS],
    "feed_forward_proj": [*_GATED, "gelu", "silu", "tanh", "gelu_new"],
    "dense_act_fn": ACTIVATIONS,
    "is_gated_act": [True],
    "layer_types": [list(kinds) for kinds in itertools.product(("full_attention", "sliding_attention"), repeat=2)],
    "position_embedding_type": ["relative_key", "relative_key_query"],
    "n_inner": [5, 48],
    "num_decoder_layers": [1, 3],
    "sliding_window": [None, 1, 2, 5],
    "attn_logit_softcapping": [None, 0.7],
    "final_logit_softcapping": [None, 0.7],
    "partial_rotary_factor": [0.5],
    "rope_theta": [77.0],
    "head_dim": [None, 2, 3, 5, 6, 8],
    "tie_encoder_decoder": [True],
    "pruned_heads": [{"0": [1]}],
    "num_labels": [3, 5],
    "scale_decoder_outputs": [True, False],
    "tie_word_embeddings": [True, False],
    "classifier_dropout": [0.3],
    "pad_token_id": [0, 2],  # not among the tokens of the texts, which RoBERTa would take for padding
    "max_position_embeddings": [15, 17, 40],
    "n_positions": [15, 17, 40],
    "vocab_size": [14, 15, 26],
    "hidden_size": [36, 4, 64],  # with roots that are exact: Gemma's is rounded to float32
    "relative_attention_max_distance": [5, 9, 24],
}
_RATE = re.compile("drop|pdrop|prob")


def values(name: str, value: Any) -> list[Any]:
    """Other values of the kind that a field has."""
    if name in VALUES:
        return [each for each in VALUES[name] if each != value]
    match value:
        case bool():
            return [not value]
        case int():
            return [each for each in (value + 1, value + 2, 2 * value, value - 1, 1) if each != value and each >= 0]
        case float():
            return [0.3] if _RATE.search(name) else [1.7 * value + 0.03]
        case str() if value in ACTIVATIONS:
            return [each for each in ACTIVATIONS if each != value]
        case str():
            return [f"{value} of another kind"]
        case None:
            return [2, 0.5, True]
    return []


def changed(name: str) -> Iterator[tuple[str, Any]]:
    """Each field of their config with each other value."""
    document = transformers.CONFIG_MAPPING[name](**copy.deepcopy(FAMILIES[name].small)).to_dict()
    for field, value in document.items():
        if field not in ("model_type", "architectures", "transformers_version"):
            for other in values(field, value):
                yield field, other
    for field in VALUES:
        if field not in document:
            yield field, VALUES[field][-1]


def case_of(family: Family, head: str, field: str, value: Any) -> published.Case:
    architecture = next(each for each, kind in family.architectures.items() if kind == head)
    config = family.small | ({"num_labels": 4} if head == CLASSES else {}) | {field: value}
    return published.Case(family.model_type, architecture, copy.deepcopy(config))  # theirs changes it


def verdict(case: published.Case, folder: Path) -> tuple[str, str]:
    """ "agrees", "refused", "disagrees", or "theirs" where they cannot build or run it; and more about it."""
    try:
        theirs = published.theirs_of(case)
        theirs.config.return_dict = True
        theirs.save_pretrained(folder)
        ids = published.t(np.full((1, 5), 12))
        theirs(ids, **({"decoder_input_ids": ids} if theirs.config.is_encoder_decoder else {}))
    except Exception as error:  # of any kind: theirs
        return "theirs", f"{type(error).__name__}: {error}"[:90]
    try:
        ours = from_pretrained(folder)
    except ValueError as error:
        return "refused", str(error).partition("config.json: ")[2] or str(error)
    config = case.config | {"num_labels": case.config.get("num_labels", 2)}
    case = published.Case(case.name, case.architecture, config)
    worst = 0.0
    for side in ("no mask", "right"):
        try:
            (_, found), (_, mine), _ = published.run(case, theirs, ours, side)
        except Exception as error:  # of any kind: ours opened, and does not run
            return "fails", f"{type(error).__name__}: {error}"[:200]
        worst = max(worst, float(abs(mine - found.detach().numpy()).max()))
    return ("agrees" if worst < AGREES else "disagrees"), f"{worst:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("name, head", HEADS, ids=lambda each: each)
def test_what_opens_agrees(name: str, head: str, tmp_path: Path) -> None:
    """-s shows how many agree, are refused, or cannot be built by them."""
    found: dict[str, list[str]] = defaultdict(list)
    for i, (field, value) in enumerate(changed(name)):
        kind, more = verdict(case_of(FAMILIES[name], head, field, value), tmp_path / str(i))
        found[kind].append(f"{field} = {value!r}: {more}")
    print(f"\n{name} {head}: {', '.join(f'{len(lines)} {kind}' for kind, lines in sorted(found.items()))}")
    assert not found["disagrees"] + found["fails"], found["disagrees"] + found["fails"]
    assert len(found["agrees"]) > 30 and len(found["refused"]) > 10
    assert len(found["theirs"]) < max(25, len(found["agrees"]) / 2)
