"""`step --model` of a model that this library trained: a translator, a language model, a classifier."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import small

from minitransformer.core.models import ClassifierConfig, LanguageModelConfig, Transformer, TransformerConfig, folder
from minitransformer.generation import greedy
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig
from minitransformer.school.show.stepper import page_bugs
from minitransformer.school.show.stepper.command import step_text
from minitransformer.school.show.viewer.command import look_at
from minitransformer.text import END, START, CharacterTokenizer, NumberTask, WordTokenizer
from minitransformer.verify import values_inside

WORDS = "a cat sees the dog"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Transformer, NumberTask]:
    task = NumberTask.draw(300, 1, 1000, np.random.default_rng(0))
    model = small(TransformerConfig, len(task.source), len(task.target), share_embeddings=False, dtype="float32")
    path = tmp_path_factory.mktemp("translator") / "model"
    folder.save(model, path, [WordTokenizer(task.source), WordTokenizer(task.target)])
    return path, model.to(dtype="float64"), task


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("writer")
    tokenizer = WordTokenizer.train([WORDS])
    model = small(LanguageModelConfig, len(tokenizer), max_length=9, dropout=0.0, seed=1, dtype="float32")
    folder.save(model, path, tokenizer)
    return path


def tokens_in(page: Path) -> tuple[list[str], list[str]]:
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])
    return data["tokens"], data["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["two hundred and one", "four", "six hundred and forty two"])
def test_a_translator_reads_the_text_and_its_own_translation(
    translator: tuple[Path, Transformer, NumberTask], text: str
) -> None:
    """The weights of the last layer, of self-attention and of cross-attention, are those of the whole model."""
    path, model, task = translator
    read = step_text(path, text)
    words = text.split()
    source = np.array([task.source.encode(words)])
    said = greedy(model, source, None, START, END, max_length=63)[0].tolist()
    target = [START, *(said[: said.index(END)] if END in said else said)]
    target = target[:-1] if len(target) == len(words) else target
    assert read.memory == words and read.tokens == [task.target.tokens[i] for i in target]
    assert len(read.tokens) != len(read.memory)
    wanted = values_inside("weights", model.decode, np.array([target]), model.encode(source)[0])
    for name, each in zip(("attention#1.weights", "attention#2.weights"), wanted[-2:], strict=True):
        np.testing.assert_allclose(read.recording.find(name)[1].value.array, each[0], rtol=1e-12, atol=1e-15)


def test_an_equally_long_translation_is_read_without_its_last_token(
    translator: tuple[Path, Transformer, NumberTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the labels of target and source cannot be confused."""
    path, _, task = translator
    monkeypatch.setattr("minitransformer.school.show.reading.written", lambda *_, **__: [[3, 4, 5, END]])
    read = step_text(path, "two hundred and one")
    assert (len(read.tokens), len(read.memory)) == (3, 4) and read.tokens == [task.target.tokens[i] for i in (1, 3, 4)]


@pytest.mark.slow
def test_each_layer_has_the_tokens_that_it_reads(translator: tuple[Path, Transformer, NumberTask]) -> None:
    path, _, _ = translator
    encoder, head = step_text(path, "two hundred and one", 1), step_text(path, "two hundred and one", 3, 2)
    assert encoder.tokens == "two hundred and one".split() and encoder.memory == []
    assert encoder.recording.name == "EncoderLayer" and head.recording.name == "MultiHeadAttention"
    assert head.tokens[0] == "<start>" and head.memory == []


@pytest.mark.slow
def test_a_language_model_reads_all_but_the_last_token(writer: Path) -> None:
    read = step_text(writer, "the dog sees a cat")
    assert read.tokens == "the dog sees a".split()
    assert read.recording.find("attention.weights")[1].value.shape == (2, 4, 4)
    assert step_text(writer, "the dog sees", head=1, verify=True).recording.report.ok


def test_a_classifier_reads_the_whole_text(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.train([WORDS])
    model = small(ClassifierConfig, len(tokenizer), 2, n_layers=1, dropout=0.0, seed=1, dtype="float32")
    folder.save(model, tmp_path, tokenizer, ["no", "yes"])
    assert step_text(tmp_path, "the dog").tokens == ["the", "dog"]


@pytest.mark.slow
def test_the_command_labels_rows_and_columns(
    translator: tuple[Path, Transformer, NumberTask], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_bugs, "NUMBERS", 0)  # the mistakes of a page are not tested here, and take their time
    path, page = translator[0], tmp_path / "page.html"
    options = ("step", "--model", path, "two hundred and one", "--layer", 1)
    assert run(*options, "--html", page) == f"wrote {page}\n"
    assert tokens_in(page) == ("two hundred and one".split(), [])
    assert run(*options).startswith("tokens: 0 two, 1 hundred, 2 and, 3 one\n")


@pytest.mark.slow
def test_the_command_says_what_it_cannot_read(
    translator: tuple[Path, Transformer, NumberTask], writer: Path, tmp_path: Path, run: Any
) -> None:
    path = translator[0]
    config = RecurrentTranslatorConfig(5, 5, d_model=8, n_encoder_layers=2, n_decoder_layers=2, share_embeddings=False)
    tokenizers = [WordTokenizer.train([words]) for words in ("a b", "c d")]
    folder.save(RecurrentTranslator(config, np.random.default_rng(0)), tmp_path / "recurrent", tokenizers)
    for model, text, message in (
        (path, "two dogs", "the vocabulary does not hold 'dogs'"),
        (path, "", "the text must have 1 to 64 tokens, got 0"),
        (writer, "cat", "the text must have 2 to 64 tokens, got 1"),
        (writer, "the " * 65, "the text must have 2 to 64 tokens, got 65"),
        (path.parent, "two", f"holds no model: config.json is missing; did you mean {path}?"),
        (tmp_path / "none", "two", "there is no model folder"),
        (tmp_path / "recurrent", "a b", "holds a RecurrentTranslator, which has no layers of attention"),
    ):
        assert message in run("step", "--model", model, text, status=1)
    assert "--layer must be from 1 to 3, got 4" in run("step", "--model", path, "two", "--layer", 4, status=1)


def test_a_language_model_is_to_predict_the_text_and_white_space_is_seen(tmp_path: Path) -> None:
    tokenizer = CharacterTokenizer.train(["a b\n"])
    model = small(LanguageModelConfig, len(tokenizer), max_length=9, dropout=0.0, seed=1, dtype="float32")
    folder.save(model, tmp_path, tokenizer)
    read = step_text(tmp_path, "a b\na")
    assert read.told == (
        "The model reads “a b\na”. Each row has read the tokens up to its own and is to predict the next: "
        "a → ␣, ␣ → b, b → ⏎, ⏎ → a."
    )
    assert read.recording.words_for(read.recording.calls[0]) == "Transformer Block"
    assert look_at(tmp_path, "a b").tokens() == [["a", "␣", "b"]]
