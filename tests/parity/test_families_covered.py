"""What the parity lane compares of each family, read from the random models of its cases: no family lacks a shape."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minitransformer.ideas import Window
from minitransformer.ideas.after.both_sides import BothSides
from minitransformer.ideas.after.grouped import Grouped
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import BODY, MASKED, WORDS
from minitransformer.ideas.published.fields import Fields

from . import test_decoders, test_experts, test_hybrids, test_pretrained

SIZES = "vocabulary d_model d_ff d_expert n_heads n_layers d_head d_value".split()
LENGTH = 7  # of most texts that are compared
RANDOM = [
    test_pretrained.Case(name, kind, test_experts.drawn(name, seed))
    for name, kind in test_experts.NAMES.items()
    for seed in test_experts.QUICK
]
CHUNKED = {case.model_type for case in test_hybrids.CASES}  # in chunks that do not divide the text
CASES = [*test_pretrained.CASES, *test_decoders.CASES, *test_hybrids.CASES, *RANDOM]


def models(name: str) -> Iterator[Any]:
    """Ours of each case of a family."""
    family = FAMILIES[name]
    for case in CASES:
        head = family.architectures.get(case.architecture)
        if case.model_type == name and head in (BODY, MASKED, WORDS):
            with contextlib.suppress(ValueError):  # of a T5 whose table of logits only its file shows
                yield family.build(family.read(Fields(case.config), head, {}), head, np.random.default_rng(0))


def shapes(name: str, model: Any) -> dict[str, bool]:
    """Whether this model has a shape; what its family cannot have is left out."""
    config, parts = model.config, [part for _, part in model.modules()]
    sizes = [n for n in (getattr(config, size, None) for size in SIZES) if n is not None]
    found = {"sizes that all differ": len(set(sizes)) == len(sizes)}
    if hasattr(config, "n_key_heads"):
        found["heads that share keys"] = any(isinstance(part, Grouped) for part in parts)
    reach = [part.width for part in parts if isinstance(part, Window)]
    reach += [2 * part.radius + 1 for part in parts if isinstance(part, BothSides)]
    if {"sliding_window", "local_attention"} & FAMILIES[name].theirs(config).keys():
        found["a window shorter than the text"] = any(width < LENGTH for width in reach)
    if hasattr(config, "k"):
        found["experts that get no token"] = config.n_experts > 2 * config.k
        found["fewer experts than tokens"] = config.n_experts * 2 < config.k * LENGTH
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_the_cases_of_a_family_have_every_shape(name: str) -> None:
    each = [shapes(name, model) for model in models(name)]
    assert each
    assert name in CHUNKED or not any(hasattr(part, "chunk") for _, part in next(models(name)).modules())
    assert not {shape for found in each for shape in found if not any(other.get(shape) for other in each)}
