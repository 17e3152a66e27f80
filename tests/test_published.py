"""Published models in use: their tokenizers and chat templates, and the commands that take such a model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from exported import TRANSLATORS, translator
from gguf_files import llama, write_gguf
from tiers import in_one

from minitransformer.commands import plot
from minitransformer.core.models.encoder_only import EncoderOnly
from minitransformer.generation import Continuation, Sampler, generate, greedy, stream
from minitransformer.ideas.published.bart import BartConfig
from minitransformer.ideas.published.chat import render
from minitransformer.models import (
    LanguageModel,
    MaskedLanguageModel,
    TextEncoder,
    TextEncoderConfig,
    from_pretrained,
    load,
    save_pretrained,
)
from minitransformer.run.published_models import fill_mask, sentence_vectors
from minitransformer.school.show import plots
from minitransformer.text import PublishedTokenizer, WordTokenizer, pieces
from minitransformer.text import load as load_tokenizer

Run = Callable[..., str]


# ---- A small BERT with words for tokens. ----

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "is", "the", "##s", "."]


def words() -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    model.normalizer = tokenizers.normalizers.BertNormalizer()
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    model.decoder = tokenizers.decoders.WordPiece()
    model.add_special_tokens(WORDS[:5])
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    model.enable_truncation(3)  # as the folders of some sentence encoders have it
    model.enable_padding(length=9)
    return model


def bert(folder: Path, kind: type[Any] = MaskedLanguageModel) -> Path:
    config = TextEncoderConfig(len(WORDS), max_length=12, d_model=8, n_heads=2, d_ff=16, n_layers=2, pooler=None)
    model = kind(config, np.random.default_rng(0))
    for _, parameter in model.parameters():
        parameter.value += np.random.default_rng(1).normal(0.0, 0.3, parameter.value.shape).astype(np.float32)
    save_pretrained(model, folder)
    words().save(str(folder / "tokenizer.json"))
    about = {"mask_token": {"content": "[MASK]", "lstrip": True}, "cls_token": "[CLS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


# ---- A small Llama with bytes for tokens, in a .gguf file. ----

BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
TOKENS = [*BYTES, "he", "ll", "hell", "hello", "Ġhello", "<s>", "</s>", "<b>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
START, END, BOLD = (TOKENS.index(name) for name in ("<s>", "</s>", "<b>"))
CHAT = "{{ bos_token }}{% for m in messages %}\n{{ m['role'] }}: {{ m['content'] }}{% endfor %}\n{% if x %}x{% endif %}"


def gguf_file(path: Path, **changes: Any) -> Path:
    metadata = {
        "model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "merges": MERGES, "bos_token_id": START, "eos_token_id": END,
        "token_type": [1] * (len(TOKENS) - 3) + [3, 3, 4], "add_bos_token": True,
    } | changes  # fmt: skip
    more = {f"tokenizer__ggml__{name}": value for name, value in metadata.items()}
    model = llama(max_length=64)
    for parameter in (model.tokens.table,):
        parameter.value = np.random.default_rng(3).normal(0.0, 0.5, (len(TOKENS), 64)).astype(np.float32)
    return write_gguf(path, model, tokenizer__chat_template=CHAT, **more)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_file(tmp_path_factory.mktemp("writer") / "model.gguf")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("encoder"))


# ---- Tokenizers ----


def test_tokenizer_of_a_folder(encoder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(encoder)
    assert tokenizer.encode("The cats, a dog") == [9, 6, 10, 1, 5, 7]  # neither cut nor filled up
    assert tokenizer.encode("the dog", special=True) == [2, 9, 7, 3]
    assert tokenizer.decode([2, 9, 6, 10, 3, 0]) == "the cats"
    assert tokenizer.encode("a [MASK] .") == [5, 4, 11] and tokenizer.id_of("mask_token") == 4
    assert len(tokenizer) == 12 and tokenizer.tokens == tuple(WORDS) and tokenizer.ends == ()
    assert tokenizer.decode([12, 6, 99]) == tokenizer.decode([6])  # a model's table may have more rows
    with pytest.raises(ValueError, match="ids must be at least 0, got -1"):
        tokenizer.decode([6, -1])
    with pytest.raises(ValueError, match="has no eos_token"):
        tokenizer.id_of("eos_token")
    with pytest.raises(ValueError, match="has no chat template"):
        tokenizer.chat([])
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).encode("the dog", special=True) == [2, 9, 7, 3]


def test_tokenizer_of_a_file(writer: Path) -> None:
    tokenizer = load_tokenizer(writer)
    ids = tokenizer.encode("hello hellö<b></s>", special=True)
    names = [TOKENS[i] for i in ids]
    assert names == ["<s>", "hello", "Ġ", "hell", "Ã", "¶", "<b>", "</s>"]
    assert tokenizer.decode(ids) == "hello hellö<b>"  # <b> is no special token, only one that is never split
    assert tokenizer.encode("hello") == [TOKENS.index("hello")]
    assert tokenizer.ends == (END,) and tokenizer.tokens[TOKENS.index("Ġhello")] == " hello"


@pytest.mark.parametrize(
    "splitting, expected",
    [
        ("gpt-2", ["Ġ12", "34"]),
        ("smollm", ["Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", ["Ġ", "12", "3", "4"]),
        ("dbrx", ["Ġ", "12", "3", "4"]),
        ("qwen2", ["Ġ", "1", "2", "3", "4"]),
        ("qwen35", ["Ġ", "1", "2", "3", "4"]),
    ],
)
def test_ways_of_splitting(tmp_path: Path, splitting: str, expected: list[str]) -> None:
    tokens = [*BYTES, "12", "34", "Ġ12", "<s>", "</s>", "<b>"]
    merges, types = ["1 2", "3 4", "Ġ 12"], [1] * (len(tokens) - 3) + [3, 3, 4]
    options = {"tokens": tokens, "merges": merges, "token_type": types, "pre": splitting, "add_bos_token": False}
    path = gguf_file(tmp_path / "model.gguf", **options, bos_token_id=1, eos_token_id=2)
    assert [tokens[i] for i in load_tokenizer(path).encode(" 1234", special=True)] == expected


@pytest.mark.parametrize("first", [False, True])
def test_a_vocabulary_of_pieces_merges_by_score(tmp_path: Path, first: bool) -> None:
    """Of "ab b", first a and b, then the space and b; what no piece has becomes bytes; three spaces are never split."""
    own = ["   ", *(f"<0x{i:02X}>" for i in range(256)), "a", "b", "▁", "ab", "▁b", "▁ab"]
    more: dict[str, Any] = {
        "model": "llama", "tokens": ["<unk>", "<s>", "</s>", *own], "scores": [0.0] * 263 + [-1.0, -2.0, -9.0],
        "token_type": [2, 3, 3, 4] + [6] * 256 + [1] * 6, "merges": None, "bos_token_id": 1, "eos_token_id": 2,
        "unknown_token_id": 0, "add_space_prefix": first, "add_bos_token": None,
    }  # fmt: skip
    tokenizer = load_tokenizer(gguf_file(tmp_path / "model.gguf", **more))
    found = tokenizer.encode("ab b   ö", special=True)
    names = [more["tokens"][i] for i in found]
    assert names == ["<s>", "▁ab" if first else "ab", "▁b", "   ", "<0xC3>", "<0xB6>"]
    assert tokenizer.decode(found) == "ab b   ö"


def test_pieces_are_whole_characters(writer: Path) -> None:
    tokenizer = load_tokenizer(writer)
    ids = tokenizer.encode("hello 🙂 ö")
    found = list(pieces(tokenizer, ids[:1], ids[1:]))
    assert "".join(found) == " 🙂 ö" and "🙂" in found and "ö" in "".join(found)
    assert "".join(pieces(tokenizer, [], tokenizer.encode("ö")[:1])) == "\ufffd"  # nothing comes after it


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "generation": ({"eos_token_id": [7, 9]}, {"eos_token_id": 5}, (7, 9)),
    "config": ({}, {"eos_token_id": 5}, (5,)),
    "name": ({}, {"eos_token_id": None}, (3,)),
}


@pytest.mark.parametrize("where", ENDS)
def test_the_tokens_that_end_a_text(encoder: Path, tmp_path: Path, where: str) -> None:
    generation, config, expected = ENDS[where]
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((encoder / name).read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "[SEP]"}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.ends == expected
    assert tokenizer.special == {"eos_token": "[SEP]", "mask_token": "[MASK]"}  # found by its usual name


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": "rwkv"}, "tokenizer.ggml.model must be one of 'gpt2', byte.*'llama', .* got 'rwkv'"),
        ({"model": "bert"}, "tokenizer.ggml.unknown_token_id must be the id of a token"),
        ({"model": "llama"}, "each of tokenizer.ggml.tokens needs a score in tokenizer.ggml.scores"),
        ({"model": "llama", "scores": [float("nan")] * len(TOKENS)}, "a score .*, a finite number"),
        (
            {"pre": "deepseek"},
            "tokenizer.ggml.pre must be one of gpt-2, olmo, .*smollm, .*llama-bpe, .*qwen2, .*got 'deepseek'",
        ),
        ({"pre": None}, "got 'None'"),
        ({"tokens": None}, "tokenizer.ggml.tokens must be a list of texts"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens must be a list of texts"),
        ({"tokens": ["a"] * len(TOKENS)}, "tokens must differ"),
        ({"token_type": None}, "each needs a type"),
        ({"token_type": [1]}, "each needs a type"),
        ({"merges": ["h e e"]}, "'h e e' does not merge two tokens into a third"),
        ({"merges": ["hello hello"]}, "'hello hello' does not merge two tokens into a third"),
        ({"bos_token_id": 10**6}, "bos_token_id must be the id of a token"),
        ({"bos_token_id": "1"}, "bos_token_id must be an integer, got '1'"),
        ({"add_bos_token": "no"}, "add_bos_token must be true or false, got 'no'"),
        ({"add_eos_token": 0}, "add_eos_token must be true or false, got '0'"),
        ({"pre": 2}, "pre must be a text, got '2'"),
    ],
)
def test_what_is_no_vocabulary_is_said_plainly(tmp_path: Path, changes: Any, message: str) -> None:
    path = gguf_file(tmp_path / "model.gguf", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_tokenizer(path)
    assert str(path) in str(caught.value)


def test_a_folder_without_a_tokenizer(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no tokenizer .*tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        load_tokenizer(tmp_path)
    document = json.loads(words().to_str())
    document["model"] = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}  # the library panics
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        load_tokenizer(tmp_path)
    document["model"] = {"type": "BPE", "vocab": {"a": 2**31}, "merges": []}  # each id below has a name, too
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"tokenizer\.json has a token of id 2,147,483,648; at most 4,194,304 tokens"):
        load_tokenizer(tmp_path)
    words().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "3"}')
    with pytest.raises(ValueError, match="eos_token_id must be an integer"):
        load_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"generation_config\.json must hold a JSON object, got list"):
        load_tokenizer(tmp_path)


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("seed", range(2))
def test_no_spoiled_tokenizer_does_more_than_raise_one_error(encoder: Path, tmp_path: Path, seed: int) -> None:
    rng, data = np.random.default_rng(seed), (encoder / "tokenizer.json").read_bytes()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    refused = 0
    for _ in range(100):
        place = int(rng.integers(len(data)))
        spoiled = data[:place] if rng.random() < 0.3 else data[:place] + rng.bytes(1) + data[place + 1 :]
        (tmp_path / "tokenizer.json").write_bytes(spoiled)
        try:
            load_tokenizer(tmp_path)
        except ValueError as error:
            refused += 1
            assert "tokenizer.json" in str(error) and len(str(error)) < 500
    assert refused > 30


@pytest.mark.parametrize("library, opened", [("tokenizers", "encoder"), ("gguf", "writer")])
def test_without_a_library_the_extra_is_named(
    library: str, opened: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = request.getfixturevalue(opened)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf'library {library}; .*"minitransformer\[models\]"'):
        load_tokenizer(path)


# ---- Chats ----


def test_a_chat_is_written_as_the_template_says(writer: Path) -> None:
    tokenizer = load_tokenizer(writer)
    ids = tokenizer.chat([{"role": "user", "content": "hello"}])
    assert ids == [START, *tokenizer.encode("user: hello")]  # without the new line after a block, as in the folders


def test_the_template_of_a_folder(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((encoder / "tokenizer.json").read_bytes())
    about = tmp_path / "tokenizer_config.json"
    about.write_text(json.dumps({"chat_template": "one"}))
    assert load_tokenizer(tmp_path).template == "one"
    several = [{"name": "tools", "template": "two"}, {"name": "default", "template": "three"}]
    about.write_text(json.dumps({"chat_template": several}))
    assert load_tokenizer(tmp_path).template == "three"
    (tmp_path / "chat_template.jinja").write_text("four")
    assert load_tokenizer(tmp_path).template == "four"


HOSTILE = {
    "an attribute of Python's": ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    "a subclass": ("{{ messages.__class__.__base__.__subclasses__() }}", "SecurityError"),
    "globals": ("{{ raise_exception.__globals__['__builtins__'] }}", "SecurityError"),
    "a change of the messages": ("{{ messages.append(1) }}", "SecurityError"),
    "a file": ("{% include '/etc/passwd' %}", "TypeError: no loader"),
    "a long range": ("{% for i in range(10 ** 7) %}{% endfor %}", "OverflowError"),
    "half a template": ("{% for", "TemplateSyntaxError"),
    "a refusal": ("{{ raise_exception('roles must alternate') }}", "ValueError: roles must alternate"),
    "without end": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
}


@in_one("what", HOSTILE)
def test_a_template_runs_in_a_sandbox(what: str) -> None:
    template, message = HOSTILE[what]
    messages = [{"role": "user", "content": "a"}]
    with pytest.raises(ValueError, match=f"the chat template fails: {message}"):
        render(template, messages, {})
    assert messages == [{"role": "user", "content": "a"}]


def test_a_panic_of_the_library_is_an_error_that_says_what_failed() -> None:
    """Its panics are no Exceptions, so nothing else catches them."""

    class Panic(BaseException):
        pass

    class Broken:
        def no_truncation(self) -> None: ...

        def no_padding(self) -> None: ...

        def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
            return {"a": 0}

        def encode(self, text: str, add_special_tokens: bool) -> Any:
            raise KeyboardInterrupt if text == "stop" else Panic("index out of bounds")

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            raise Panic("no such piece")

    tokenizer = PublishedTokenizer(Broken(), {})
    with pytest.raises(ValueError, match="the tokenizer fails on this text: index out of bounds"):
        tokenizer.encode("a")
    with pytest.raises(ValueError, match="the tokenizer fails on these ids: no such piece"):
        tokenizer.decode([0])
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("stop")


def test_a_template_without_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r'"minitransformer\[models\]"'):
        render("", [], {})


# ---- generate ----


def test_a_stream_is_what_generate_writes(writer: Path) -> None:
    model: Any = from_pretrained(writer)
    prompt = [5, 9, 200]
    expected = generate(model, [prompt, prompt], 20)
    assert list(stream(Continuation(model), prompt, 20)) == expected[0]
    end = expected[0][7]
    first = expected[0].index(end)
    assert list(stream(Continuation(model), prompt, 20, ends=(999, end))) == expected[0][: first + 1]
    drawn = generate(model, [prompt, prompt], 20, Sampler(np.random.default_rng(4).spawn(2)))
    for i in range(2):
        sampler = Sampler(np.random.default_rng(4).spawn(2))
        assert list(stream(Continuation(model), prompt, 20, sampler, text=i)) == drawn[i]


def test_generate_with_a_file(writer: Path, run: Run) -> None:
    model, tokenizer = load(writer, LanguageModel), load_tokenizer(writer)
    prompt = tokenizer.encode("hello", special=True)
    ids = generate(model, [prompt], 6)[0]
    ids = ids[: ids.index(END)] if END in ids else ids
    said = run("generate", "--model", writer, "hello", "--tokens", 6, "--temperature", 0)
    assert said == tokenizer.decode([*prompt, *ids]) + "\n"
    answer = run("generate", "--model", writer, "hello", "--tokens", 6, "--temperature", 0, "--chat")
    assert not answer.startswith("hello")
    two = run("generate", "--model", writer, "hello", "--tokens", 6, "--samples", 2, "--seed", 3)
    assert two.count("-" * 40) == 1 and two == run(
        "generate", "--model", writer, "hello", "--tokens", 6, "--samples", 2, "--seed", 3, "--textbook"
    )


def test_the_lines_of_the_readme_write_what_the_command_writes(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """They went on past the token that ends a text."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    (lines,) = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "models.load(" in block]
    generate_ = "generate", "--tokens", 50, "--temperature", 0, "hello", "--model"
    past_it = load(gguf_file(tmp_path / "model.gguf"), LanguageModel)
    (ids,) = generate(past_it, [load_tokenizer(tmp_path / "model.gguf").encode("hello", special=True)], 50)
    ended = gguf_file(tmp_path / "ended.gguf", eos_token_id=ids[20])
    exec(lines.replace("runs/shakespeare", str(ended)).replace("ROMEO:", "hello"), {})
    shown = capsys.readouterr().out
    assert shown == run(*generate_, ended) and len(shown) < len(run(*generate_, tmp_path / "model.gguf"))


def test_generate_says_what_it_cannot_do(encoder: Path, writer: Path, tmp_path: Path, run: Run) -> None:
    assert "only a LanguageModel continues a text" in run("generate", "--model", encoder, "a", status=1)
    assert "there is no model folder" in run("generate", "--model", tmp_path / "none.gguf", "a", status=1)
    (tmp_path / "model.gguf").write_bytes(writer.read_bytes()[:999])
    assert "cannot be read as GGUF" in run("generate", "--model", tmp_path / "model.gguf", "a", status=1)
    assert "tokenizer has 264 tokens, but the model 11" in run(
        "generate", "--model", small_table(tmp_path / "small.gguf"), "a", status=1
    )


def small_table(path: Path) -> Path:
    more = {"model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "merges": MERGES, "token_type": [1] * len(TOKENS)}
    return write_gguf(path, llama(), **{f"tokenizer__ggml__{name}": value for name, value in more.items()})


# ---- embed and fill-mask ----


def test_sentence_vectors_are_means_of_length_one(encoder: Path) -> None:
    model, tokenizer = load(encoder, EncoderOnly), load_tokenizer(encoder)
    texts = ["the cat", "a dog is the cats .", "dog"] * 15  # more than one batch
    vectors = sentence_vectors(model, tokenizer, texts)
    for text, vector in zip(texts, vectors, strict=True):
        hidden, _ = model.hidden(np.array([tokenizer.encode(text, special=True)]))
        mean = hidden[0].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.sqrt((mean**2).sum()), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="must have 1 to 12 tokens, got 22"):
        sentence_vectors(model, tokenizer, ["a " * 20])


def test_embed_prints_the_similarities(encoder: Path, run: Run) -> None:
    texts = ["the cat", "a dog"]
    model, tokenizer = load(encoder, EncoderOnly), load_tokenizer(encoder)
    vectors = sentence_vectors(model, tokenizer, texts)
    found = json.loads(run("embed", "--model", encoder, *texts, "--json"))
    np.testing.assert_allclose(found["vectors"], vectors, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["similarities"], vectors @ vectors.T, rtol=0, atol=1e-5)
    assert found["texts"] == texts
    lines = run("embed", "--model", encoder, *texts).splitlines()
    assert lines[:2] == ["  1  the cat", "  2  a dog"]
    assert lines[-2].split() == ["1", "1.0000", f"{vectors[0] @ vectors[1]:.4f}"]


def test_embed_says_what_it_cannot_do(encoder: Path, writer: Path, tmp_path: Path, run: Run) -> None:
    assert "holds no model: config.json is missing" in run("embed", "--model", tmp_path, "a", status=1)
    folder = bert(tmp_path / "other", TextEncoder)
    assert run("embed", "--model", folder, "a")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    assert "pooling_mode_lasttoken must be true, got ['max_tokens']" in run("embed", "--model", folder, "a", status=1)


@pytest.mark.parametrize("mode, at", [("cls_token", 0), ("lasttoken", -1)])
def test_embed_takes_the_token_that_the_folder_names(tmp_path: Path, run: Run, mode: str, at: int) -> None:
    folder = bert(tmp_path / "other", TextEncoder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    found = json.loads(run("embed", "--model", folder, "the cat", "a dog is the cats .", "--json"))["vectors"][0]
    model, tokenizer = load(folder, EncoderOnly), load_tokenizer(folder)
    vector = model.hidden(np.array([tokenizer.encode("the cat", special=True)]))[0][0, at]
    np.testing.assert_allclose(found, vector / np.sqrt((vector**2).sum()), rtol=0, atol=1e-5)


def test_embed_takes_the_last_token_of_a_language_model(writer: Path, run: Run) -> None:
    found = json.loads(run("embed", "--model", writer, "ab", "a", "--json"))["vectors"]
    model, tokenizer = load(writer, LanguageModel), load_tokenizer(writer)
    for text, vector in zip(("ab", "a"), found, strict=True):
        last = model.hidden(np.array([tokenizer.encode(text, special=True)]))[0][0, -1]
        np.testing.assert_allclose(vector, last / np.sqrt((last**2).sum()), rtol=0, atol=1e-5)


def test_fill_mask_prints_the_most_probable_tokens(encoder: Path, run: Run) -> None:
    model, tokenizer = load(encoder, MaskedLanguageModel), load_tokenizer(encoder)
    assert isinstance(model, MaskedLanguageModel)
    logits = model(np.array([[2, 9, 4, 8, 5, 4, 3]]))[0][0].astype(np.float64)
    text = "the [MASK] is a [MASK]"
    for guesses, row in zip(fill_mask(model, tokenizer, text), logits[[2, 5]], strict=True):
        p = np.exp(row) / np.exp(row).sum()
        best = sorted(range(len(p)), key=lambda i: -p[i])[:5]
        np.testing.assert_allclose([guess.probability for guess in guesses], p[best], rtol=1e-5)
        assert [guess.token for guess in guesses] == [WORDS[i] if i > 4 else "" for i in best]
    found = json.loads(run("fill-mask", "--model", encoder, text, "--json"))
    assert found["text"] == text and [len(guesses) for guesses in found["masks"]] == [5, 5]
    lines = run("fill-mask", "--model", encoder, text).splitlines()
    assert len(lines) == 11 and lines[5] == ""
    first = found["masks"][0][0]
    assert lines[0] == f"{first['probability']:8.4f}  {first['token']}"


def test_fill_mask_says_what_it_cannot_do(encoder: Path, writer: Path, run: Run) -> None:
    assert "the text has no [MASK]" in run("fill-mask", "--model", encoder, "the dog", status=1)
    assert "only a MaskedLanguageModel fills a mask" in run("fill-mask", "--model", writer, "[MASK]", status=1)


# ---- view and plot ----


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["encoder", "writer"])
def test_view_and_plot(kind: str, request: pytest.FixtureRequest, tmp_path: Path, run: Run) -> None:
    path = request.getfixturevalue(kind)
    text = "the dog" if kind == "encoder" else "hello hello"
    assert run("view", "--model", path, text, "--html", tmp_path / "view.html").startswith(text)
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert ("[CLS]" if kind == "encoder" else " hello") in page
    run("plot", "attention", "--model", path, text, "--out", tmp_path / "a.png", "--layer", 1)
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_view_and_plot_of_what_an_encoder_decoder_writes(
    family: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "attention_maps", lambda *arguments: drawn.extend((arguments[:3], None)))
    monkeypatch.setattr(plot, "write_figure", lambda *_: None)
    tokenizer = WordTokenizer.train(["two men stand in the garden"])
    model = translator(tokenizer, tokenizer, **TRANSLATORS[family])
    save_pretrained(model, tmp_path / "m", tokenizer)
    ids = tokenizer.encode("two men")
    (said,) = greedy(model, np.array([ids]), None, start=1, end=2, max_length=63).tolist()
    said = said[: said.index(2)] if 2 in said else said
    run("view", "--model", tmp_path / "m", "two men", "--html", tmp_path / "view.html")
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found = json.loads(data)
    assert found["sequences"] == [["two", "men"], [tokenizer.tokens[i] for i in (1, *said)]] and said
    for kind in ("encoder", "decoder", "cross"):
        drawn.clear()
        run("plot", "attention", "--model", tmp_path / "m", "two men", "--kind", kind, "--head", 2, "--layer", 1)
        (weights, *words), _ = drawn
        sizes = {"two": 2, "<start>": len(said) + 1}
        assert weights.shape == (1, *(sizes[each[0]] for each in words))
        assert words[0][0] == ("two" if kind == "encoder" else "<start>")
    about = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(about | {"decoder_start_token_id": None}))
    assert "must name decoder_start_token_id" in run("view", "--model", tmp_path / "m", "two men", status=1)


def test_an_encoder_decoder_writes_no_further_than_its_positions(tmp_path: Path, run: Run) -> None:
    tokenizer = WordTokenizer.train(["two men stand in the garden"])
    sizes = {"d_model": 4, "n_heads": 2, "d_ff": 4, "n_encoder_layers": 1, "n_decoder_layers": 1, "n_positions": 4}
    config = BartConfig(len(tokenizer), len(tokenizer), **sizes, position_offset=2, embedding_norm=True)
    model = config.build(np.random.default_rng(0))
    save_pretrained(model, tmp_path / "m", tokenizer)
    run("view", "--model", tmp_path / "m", "two men", "--html", tmp_path / "view.html")
    data = (tmp_path / "view.html").read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    assert [len(each) for each in json.loads(data)["sequences"]] == [2, 4]  # none of its texts ends


def test_view_says_what_it_cannot_show(tmp_path: Path, run: Run) -> None:
    assert "only published models that predict tokens" in run(
        "view", "--model", bert(tmp_path, TextEncoder), "a", status=1
    )
