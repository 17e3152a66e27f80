"""Writing a model for Hugging Face with its tokenizer, and opening whatever is a model. tests/parity opens it there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from test_published import bert, gguf_file

from minitransformer import models, text
from minitransformer.core.models import Classifier, ClassifierConfig, folder
from minitransformer.generation import generate, translate
from minitransformer.ideas.before.convolutional import ConvolutionalConfig
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslatorConfig
from minitransformer.ideas.published import from_pretrained, save_pretrained
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.run.tasks import translation
from minitransformer.text import END, START
from minitransformer.text import load as load_tokenizer

Run = Callable[..., str]
each_kind = pytest.mark.parametrize("kind", KINDS)


def saved_run(path: Path, kind: str) -> tuple[Any, Any]:
    tokenizer = made(kind)
    model = writer(tokenizer)
    folder.save(model, path, tokenizer)
    return model, tokenizer


@each_kind
def test_a_tokenizer_reads_and_writes_alike_when_it_is_written_for_others(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind)
    save_pretrained(writer(tokenizer), tmp_path, tokenizer)
    again = load_tokenizer(tmp_path)
    assert len(again) == len(tokenizer) and again.ends == (END,)
    refused = 0
    for each in [*TEXTS, *PERHAPS]:
        ids = outcome(tokenizer.encode, each)
        assert outcome(again.encode, each) == ids, repr(each)
        refused += ids == "an error"
        if ids != "an error":
            assert again.decode(with_special(ids)) == tokenizer.decode(with_special(ids)), repr(each)
    assert refused == {"characters": 3, "words": 7, "bpe": 0}[kind]


def test_the_files_name_what_others_ask_for(tmp_path: Path) -> None:
    tokenizer = made("words")
    save_pretrained(writer(tokenizer), tmp_path, tokenizer, torchscript=False)
    about, special, ends, config = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("tokenizer_config", "special_tokens_map", "generation_config", "config")
    )
    assert special == {"bos_token": "<start>", "eos_token": "<end>", "pad_token": "<pad>"}
    assert about.items() >= special.items() and about["model_max_length"] == 64
    assert about["model_input_names"] == ["input_ids", "attention_mask"]  # GPT-2 would add its types to the tokens
    assert ends == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    assert config.items() >= {**ends, "torchscript": False}.items()


def test_a_published_tokenizer_is_written_with_its_chat_and_its_ends(tmp_path: Path) -> None:
    file = gguf_file(tmp_path / "model.gguf")
    model, tokenizer = from_pretrained(file), load_tokenizer(file)
    save_pretrained(model, tmp_path / "there", tokenizer)
    again = load_tokenizer(tmp_path / "there")
    chat = [{"role": "user", "content": "hello"}]
    assert again.chat(chat) == tokenizer.chat(chat) and again.ends == tokenizer.ends
    for each in ("hello <s>", "<b> \n"):
        assert again.encode(each, special=True) == tokenizer.encode(each, special=True)
    here, there = (
        json.loads((tmp_path / "there" / name).read_text()) for name in ("config.json", "generation_config.json")
    )
    assert {here["eos_token_id"], there["eos_token_id"]} == set(tokenizer.ends) and here["bos_token_id"] == 261


def test_roberta_counts_positions_from_the_padding_of_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = made("words")
    for offset, fits in ((1, True), (2, False)):
        config = models.TextEncoderConfig(
            len(tokenizer), 16, 8, 2, 16, 1, types=1, position_offset=offset, count_real=True, pooler=None
        )
        model = models.MaskedLanguageModel(config)
        if fits:
            save_pretrained(model, tmp_path / "fits", tokenizer)
            assert not (tmp_path / "fits" / "generation_config.json").exists()
        else:
            with pytest.raises(ValueError, match="padding must have the id 1, because"):
                save_pretrained(model, tmp_path / "not", tokenizer)


PROMPTS = ("two men", "the garden, near")


def family_in(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text())["model_type"]


@pytest.mark.few(2)
@pytest.mark.parametrize("family", WRITERS)
@each_kind
def test_every_writer_writes_the_same_text_when_it_is_opened_again(kind: str, family: str, tmp_path: Path) -> None:
    tokenizer = made(kind)
    model = writer(tokenizer, **WRITERS[family])
    save_pretrained(model, tmp_path, tokenizer)
    assert family_in(tmp_path) == family
    again, reading, texts = from_pretrained(tmp_path), load_tokenizer(tmp_path), set()
    for prompt in PROMPTS:
        ids, read = tokenizer.encode(prompt), reading.encode(prompt)
        found = tokenizer.decode([*ids, *generate(model, [ids], 12, end=END)[0]])
        assert reading.decode([*read, *generate(again, [read], 12, end=END)[0]]) == found
        texts.add(found)
    assert len(texts) == 2 and any(len(text) > 10 for text in texts)


@pytest.mark.few(2)
@pytest.mark.parametrize("family, kinds, changes", TRANSLATED)
def test_every_translator_translates_alike_when_it_is_opened_again(
    family: str, kinds: tuple[str, ...], changes: dict[str, Any], tmp_path: Path
) -> None:
    tokenizers = [made(kind) for kind in kinds]
    source, target = tokenizers[0], tokenizers[-1]
    model = translator(source, target, **TRANSLATORS[family], **changes)
    save_pretrained(model, tmp_path, tokenizers)
    assert family_in(tmp_path) == family.split()[0]
    again, texts = from_pretrained(tmp_path), set()
    reading, writing = (text.load(tmp_path, side) for side in ("source", "target"))
    for prompt in PROMPTS:
        options = {"start": START, "end": END, "max_length": 8, "beam": 2}
        found = target.decode(translate(model, np.array([source.encode(prompt)]), **options)[0])
        assert writing.decode(translate(again, np.array([reading.encode(prompt)]), **options)[0]) == found
        texts.add(found)
    assert any(texts)


@pytest.mark.few(3)
@pytest.mark.parametrize("family", ENCODERS)
@each_kind
def test_every_encoder_tells_the_same_of_a_text_when_it_is_opened_again(kind: str, family: str, tmp_path: Path) -> None:
    tokenizer = made(kind)
    for classes in (0, 3):
        model, place = encoder(tokenizer, family, classes), tmp_path / str(classes)
        save_pretrained(model, place, tokenizer)
        assert family_in(place) == family
        again, reading = from_pretrained(place), load_tokenizer(place)
        for prompt in PROMPTS:
            scores = model(np.array([tokenizer.encode(prompt)]))[0][0]
            again_scores = again(np.array([reading.encode(prompt)]))[0][0]
            np.testing.assert_array_equal(again_scores, scores)
            if not classes:  # the most probable token at each place, none that ends the text
                told = scores[:, END + 1 :].argmax(axis=-1) + END + 1
                assert reading.decode(told) == tokenizer.decode(told) != ""


@pytest.mark.slow
def test_every_family_is_among_them(tmp_path: Path) -> None:
    """But for those whose models are written as another's, such as a CamemBERT, which is a RoBERTa."""
    written = set()
    for family in FAMILIES.values():
        config, head = family.example()
        model = family.build(config, head, np.random.default_rng(0))
        save_pretrained(model, tmp_path, eos_token_id=2)
        document, again = json.loads((tmp_path / "config.json").read_text()), from_pretrained(tmp_path).state()
        assert document["eos_token_id"] == 2 and all((again[name] == x).all() for name, x in model.state().items())
        written.add(document["model_type"])
    assert written <= {*WRITERS, *(name.split()[0] for name in TRANSLATORS), *ENCODERS}


@each_kind
def test_export_and_the_text_is_the_same(kind: str, tmp_path: Path, run: Run) -> None:
    model, tokenizer = saved_run(tmp_path / "run", kind)
    out = tmp_path / "there"
    assert run("export", tmp_path / "run", out) == f"wrote {out}, a GPT2LMHeadModel\n"
    ids = generate(model, [tokenizer.encode("two men")], 12, end=END)[0]
    expected = tokenizer.decode([*tokenizer.encode("two men"), *ids])
    for each in (tmp_path / "run", out):
        said = run("generate", "--model", each, "two men", "--tokens", 12, "--temperature", 0)
        assert said == expected + "\n"
    run("export", out, tmp_path / "again")
    run("view", "--model", out, "two men", "--html", tmp_path / "view.html")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"):
        assert (out / name).read_text() == (tmp_path / "again" / name).read_text()


@pytest.mark.parametrize("joint", [True, False])
def test_a_translator_keeps_its_logits_and_both_tokenizers(joint: bool, tmp_path: Path, run: Run) -> None:
    """Its sines and cosines alternate, those of the families do not: all features are reordered."""
    source = made("words")
    target = source if joint else made("bpe")
    model = translator(source, target, norm_order="pre" if joint else "post")
    folder.save(model, tmp_path / "run", source if joint else [source, target])
    out = tmp_path / "there"
    kind = "PegasusForConditionalGeneration" if joint else "MarianMTModel"
    assert run("export", tmp_path / "run", out) == f"wrote {out}, a {kind}\n"
    ids, begun = np.array([source.encode("two men")]), np.array([[1, 5, 4]])
    np.testing.assert_allclose(models.load(out)(ids, begun)[0], model(ids, begun)[0], rtol=0, atol=1e-10)
    assert joint != (out / "target_tokenizer").exists()
    for side, tokenizer in (("source", source), ("target", target)):
        assert text.load(out, side).encode("two men") == tokenizer.encode("two men")


@pytest.mark.few(1)
@pytest.mark.parametrize("joint", [False, True])
def test_an_exported_translator_translates_and_is_measured_as_before(
    joint: bool, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    beam, length_penalty, _, *rest = translation.written.__defaults__ or ()
    monkeypatch.setattr(translation.written, "__defaults__", (beam, length_penalty, 12, *rest))  # tokens, not 200
    source = made("words")
    target = source if joint else made("bpe")
    folder.save(translator(source, target).to(dtype="float32"), tmp_path / "run", [source, target])
    run("export", tmp_path / "run", tmp_path / "there")
    (tmp_path / "x").write_text("two men\nmen two men\n")
    said = {}
    for where in ("run", "there"):
        model = ("--model", tmp_path / where)
        files = ("--source", tmp_path / "x", "--target", tmp_path / "x")
        said[where] = run("translate", *model, "two men", "men"), run("evaluate", *model, *files)
    assert said["run"] == said["there"] and said["run"][0].strip()
    about = json.loads((tmp_path / "there" / "config.json").read_text())
    (tmp_path / "there" / "config.json").write_text(json.dumps(about | {"decoder_start_token_id": 0}))
    for command in (("translate", "men"), ("evaluate", *files)):
        wrong = run(*command, "--model", tmp_path / "there", status=1)
        assert "have the ids [0, 0, 2] there, but must have [0, 1, 2]" in wrong


def test_export_says_what_it_cannot_do(tmp_path: Path, run: Run) -> None:
    saved_run(tmp_path / "run", "words")
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir())
    assert "holds another model, which would be lost" in run("export", tmp_path / "run", tmp_path / "run", status=1)
    assert before == sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir())
    tokenizer = made("words")
    classifier = Classifier(ClassifierConfig(len(tokenizer), 2, 8, 2, 16, 1))
    folder.save(classifier, tmp_path / "classes", tokenizer, ["a", "b"])
    assert "TextClassifier" in (said := run("export", tmp_path / "classes", tmp_path / "there", status=1))
    assert "no family has sines as positions with a mean over the tokens" in said
    recurrent = RecurrentTranslatorConfig(len(tokenizer), len(tokenizer), 8, 1).build()
    with pytest.raises(TypeError, match="got RecurrentTranslator: no family has recurrent layers"):
        save_pretrained(recurrent, tmp_path / "there", tokenizer)
    convolutional = ConvolutionalConfig(len(tokenizer), len(tokenizer), 8, 2, 16, 1, 1).build()
    folder.save(convolutional, tmp_path / "convolutions", tokenizer)
    said = run("export", tmp_path / "convolutions", tmp_path / "there", status=1)
    assert "save_pretrained: no family has convolutions in place of self-attention\n" in said
    assert "there is no model folder" in run("export", tmp_path / "none", tmp_path / "there", status=1)
    assert not (tmp_path / "there").exists()


def test_load_opens_whatever_is_a_model(tmp_path: Path) -> None:
    model, tokenizer = saved_run(tmp_path / "run", "bpe")
    save_pretrained(model, tmp_path / "there", tokenizer)
    ids = np.array([tokenizer.encode("two men")])
    for name in ("run", "there"):
        np.testing.assert_array_equal(models.load(tmp_path / name)(ids)[0], model(ids)[0])
        assert text.load(str(tmp_path / name)).encode("two men") == ids[0].tolist()
    file = gguf_file(tmp_path / "model.gguf")
    assert isinstance(models.load(file), models.LanguageModel) and len(text.load(file)) == 264
    encoder = bert(tmp_path / "bert")
    assert isinstance(models.load(encoder), models.MaskedLanguageModel)
    assert text.load(encoder).encode("a cat") == [5, 6]


@pytest.mark.parametrize("there", ["run", "published"])
def test_a_model_must_be_of_the_kind_that_is_asked_for(there: str, tmp_path: Path) -> None:
    model, tokenizer = saved_run(tmp_path / "run", "words")
    save_pretrained(model, tmp_path / "published", tokenizer)
    assert models.load(tmp_path / there, models.LanguageModel).config.vocabulary == len(tokenizer)
    for kind, message in (
        (models.EncoderDecoder, "there holds a LanguageModel, but only an EncoderDecoder translates"),
        (models.Classifier, "there holds a LanguageModel, but only a Classifier has labels"),
        (models.Transformer, "there holds a LanguageModel, but only a Transformer will do here"),
    ):
        with pytest.raises(ValueError, match=message.replace("there", there)):
            models.load(tmp_path / there, kind)


def test_of_two_tokenizers_one_is_chosen(tmp_path: Path) -> None:
    source, target = made("words"), made("bpe")
    model = translator(source, target)
    models.save(model, tmp_path / "run", [source, target])
    save_pretrained(model, tmp_path / "published", [source, target])
    for name in ("run", "published"):
        with pytest.raises(ValueError, match=rf'{name} has two tokenizers; say which: text\.load\(path, "source"\)'):
            text.load(tmp_path / name)
        assert text.load(tmp_path / name, "source").encode("two men") == source.encode("two men")
        assert text.load(tmp_path / name, "target").encode("two men") == target.encode("two men")
    assert text.load(tmp_path / "run" / "target_tokenizer.json").encode("two men") == target.encode("two men")
    with pytest.raises(ValueError, match="say which"):
        text.load(tmp_path / "run", "both")  # type: ignore[arg-type]


def test_what_does_not_fit_a_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    words, letters, place = made("words"), made("characters"), tmp_path / "new"
    classifier = Classifier(ClassifierConfig(len(words), 2, 8, 2, 16, 1))
    for save in (models.save, save_pretrained):
        with pytest.raises(ValueError, match=rf"has {len(letters)} tokens, but the model {len(words)}"):
            save(writer(words), place, letters)
        with pytest.raises(ValueError, match="at most 1 tokenizers for this model, got 2"):
            save(writer(words), place, [words, words])
    for labels, known in ((("a", "b", "c"), words), (("a",), None)):
        with pytest.raises(ValueError, match=f"there are {len(labels)} labels, but the model has 2 classes"):
            models.save(classifier, place, known, labels)
    save_pretrained(writer(words), tmp_path / "there", words)
    with pytest.raises(ValueError, match="would lose its special tokens; write both with save_pretrained"):
        models.save(writer(words), place, text.load(tmp_path / "there"))
    assert not place.exists()


def test_tokenizers_of_an_earlier_model_go(tmp_path: Path) -> None:
    words = made("words")
    models.save(translator(words, words), tmp_path, [words, words])
    models.save(writer(words), tmp_path, words)
    assert {path.name for path in tmp_path.glob("*tokenizer*")} == {"tokenizer.json"}
    models.save(translator(words, words), tmp_path, [words, words])
    assert {path.name for path in tmp_path.glob("*tokenizer*")} == {"source_tokenizer.json", "target_tokenizer.json"}
    models.save(translator(words, words), tmp_path)  # as training does: they stay
    assert text.load(tmp_path, "target").tokens == words.tokens
