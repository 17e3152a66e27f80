"""Parity with Hugging Face of what we export: with every kind of tokenizer, a text in gives the same text out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from exported import (
    ENCODERS,
    KINDS,
    PERHAPS,
    TEXTS,
    TRANSLATED,
    TRANSLATORS,
    WRITERS,
    encoder,
    made,
    outcome,
    translator,
    with_special,
    writer,
)

from minitransformer.generation import generate, translate
from minitransformer.models import from_pretrained, save_pretrained
from minitransformer.text import END, START
from minitransformer.text import load as load_tokenizer

from .counterparts import all_in_float64


@pytest.fixture(autouse=True, scope="module")
def in_float64() -> Iterator[None]:
    with all_in_float64():
        yield


def their_tokenizer_of(folder: Path) -> Any:
    """Of a Qwen2, AutoTokenizer makes Qwen2's own tokenizer, whatever the folder says; the command warns of it."""
    is_qwen = '"qwen2"' in (folder / "config.json").read_text()
    kind = transformers.PreTrainedTokenizerFast if is_qwen else transformers.AutoTokenizer
    return kind.from_pretrained(folder)


@pytest.fixture(params=[(kind, family) for kind in KINDS for family in WRITERS], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, Path]:
    kind, family = request.param
    tokenizer = made(kind)
    model = writer(tokenizer, **WRITERS[family]).to(dtype="float64")
    save_pretrained(model, tmp_path, tokenizer)
    return model, tokenizer, tmp_path


def test_their_tokenizer_encodes_and_decodes_as_ours(pair: Any) -> None:
    _, tokenizer, folder = pair
    theirs = their_tokenizer_of(folder)
    assert len(theirs) == len(tokenizer) and theirs.model_max_length == 64
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (0, 1, 2)
    for text in [*TEXTS, *PERHAPS]:
        ids = outcome(tokenizer.encode, text)
        assert outcome(lambda text: theirs(text).input_ids, text) == ids, repr(text)
        if ids != "an error":
            found = theirs.decode(with_special(ids), skip_special_tokens=True)
            assert found == tokenizer.decode(with_special(ids)), repr(text)
            assert theirs.decode(ids) == tokenizer.decode(ids)
    batch = theirs(["two men", "two"], padding=True, return_tensors="np")
    assert batch.keys() == {"input_ids", "attention_mask"}
    row = tokenizer.encode("two")
    assert batch["input_ids"][1].tolist() == [*row, *[0] * (batch["input_ids"].shape[1] - len(row))]


@pytest.mark.few(32, slow=0)  # each family, and each tokenizer with a third of them
def test_text_in_and_text_out_in_both_programs(pair: Any) -> None:
    """Greedy texts of four prompts: of the model that was written, read by them, and read by us."""
    model, tokenizer, folder = pair
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    theirs.config._experts_implementation = "eager"  # the others take no doubles
    their_tokenizer = their_tokenizer_of(folder)
    assert theirs.generation_config.eos_token_id == END and theirs.generation_config.pad_token_id == 0
    again, again_tokenizer = from_pretrained(folder), load_tokenizer(folder)
    texts, added = set(), []
    for prompt in ("two men", "x", "the garden, near", "\n two  young"):
        ids = outcome(tokenizer.encode, prompt)
        if ids == "an error":
            continue
        inputs = their_tokenizer(prompt, return_tensors="pt")
        found = theirs.generate(**inputs, max_new_tokens=20, do_sample=False)[0]
        wanted = tokenizer.decode([*ids, *generate(model, [ids], 20, end=END)[0]])
        assert their_tokenizer.decode(found, skip_special_tokens=True) == wanted
        read = again_tokenizer.encode(prompt)
        assert again_tokenizer.decode([*read, *generate(again, [read], 20, end=END)[0]]) == wanted
        texts.add(wanted)
        added.append(len(wanted) - len(prompt))
    assert len(texts) >= 2 and max(added) > 10


@pytest.mark.few(10, slow=0)  # each family, and the paper's alone
@pytest.mark.parametrize("family, kinds, changes", TRANSLATED)
def test_a_translation_is_the_same_in_both_programs(
    family: str, kinds: tuple[str, ...], changes: dict[str, Any], tmp_path: Path
) -> None:
    """A translator of each family, including the paper's, with one tokenizer for both languages or two."""
    tokenizers = [made(kind) for kind in kinds]
    source, target = tokenizers[0], tokenizers[-1]
    model = translator(source, target, **TRANSLATORS[family], **changes)
    save_pretrained(model, tmp_path, tokenizers)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert theirs.config.model_type == family.split()[0]
    place = tmp_path / "target_tokenizer" if len(kinds) == 2 else tmp_path
    reading = transformers.AutoTokenizer.from_pretrained(tmp_path)
    writing = transformers.PreTrainedTokenizerFast.from_pretrained(place)
    again = from_pretrained(tmp_path)
    again_source, again_target = (load_tokenizer(tmp_path, side) for side in ("source", "target"))
    texts = set()
    for text in ("two men", "the garden, near", "x", "Zwei junge"):
        ids = outcome(source.encode, text)
        if ids == "an error":
            continue
        options = {"start": START, "end": END, "max_length": 12, "beam": 3}
        wanted = target.decode(translate(model, np.array([ids]), **options)[0])
        assert again_target.decode(translate(again, np.array([again_source.encode(text)]), **options)[0]) == wanted
        inputs = reading(text, return_tensors="pt")
        search = {"num_beams": 3, "early_stopping": True, "max_new_tokens": 12, "do_sample": False}
        assert writing.decode(theirs.generate(**inputs, **search)[0], skip_special_tokens=True) == wanted
        begun = np.array([[START, *range(3, 8)]])
        logits = theirs(**inputs, decoder_input_ids=torch.from_numpy(begun)).logits.detach().numpy()
        near = 1e-5 if family in ("marian", "pegasus") else 1e-10  # their sines are rounded to float32
        np.testing.assert_allclose(model(np.array([ids]), begun)[0], logits, rtol=0, atol=near)
        texts.add(wanted)
    assert texts


@pytest.mark.few(7, slow=0)  # each family
@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("kind", KINDS)
def test_encoders_tell_the_same_of_a_text_in_both_programs(kind: str, family: str, tmp_path: Path) -> None:
    """The most probable token at each place, as a text (none that ends it), and the scores of a text's classes."""
    tokenizer = made(kind)
    for classes in (0, 3):
        model, place = encoder(tokenizer, family, classes), tmp_path / str(classes)
        save_pretrained(model, place, tokenizer)
        opened = transformers.AutoModelForSequenceClassification if classes else transformers.AutoModelForMaskedLM
        theirs = opened.from_pretrained(place, dtype=torch.float64).eval()
        reading = their_tokenizer_of(place)
        assert theirs.config.model_type == family
        for text in TEXTS:
            if not (ids := tokenizer.encode(text)):
                continue
            logits = theirs(**reading(text, return_tensors="pt")).logits.detach().numpy()
            ours, _ = model(np.array([ids]))
            np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-10)
            if not classes:
                told, found = (each[0, :, END + 1 :].argmax(axis=-1) + END + 1 for each in (ours, logits))
                assert reading.decode(found) == tokenizer.decode(told)


@pytest.mark.few(32, slow=0)
def test_what_they_write_again_reads_alike_here(pair: Any, tmp_path: Path) -> None:
    """Their own saving of the tokenizer and the model, opened by us."""
    model, tokenizer, folder = pair
    there = tmp_path / "there"
    their_tokenizer_of(folder).save_pretrained(there)
    transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).save_pretrained(there)
    again, reading = from_pretrained(there), load_tokenizer(there)
    for text in [*TEXTS, *PERHAPS]:
        assert outcome(reading.encode, text) == outcome(tokenizer.encode, text), repr(text)
    assert reading.ends == (END,)
    ids = np.array([tokenizer.encode("two men")])
    np.testing.assert_array_equal(again(ids)[0], model(ids)[0])
