"""Tokenizers: what goes in comes out, ids are as promised, and files that hold no tokenizer are refused."""

import json
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer.cli import main
from minitransformer.text import END, PAD, START, BytePairTokenizer, CharacterTokenizer, WordTokenizer, encode_lines
from minitransformer.text import load as load_tokenizer

TEXTS = [
    "Zwei junge Männer, die im Garten stehen.",
    "Zwei Männer stehen am Herd; sie kochen!",
    "two young men stand in the garden, near 12 bushes.",
    "two men stand at the stove (cooking)",
]
CHARACTERS = sorted(set("".join(TEXTS)) - {" "})
BPE = BytePairTokenizer.train(TEXTS, 90)


def made(kind):
    return {
        "words": lambda: WordTokenizer.train(TEXTS),
        "characters": lambda: CharacterTokenizer.train(TEXTS),
        "bpe": lambda: BytePairTokenizer.train(TEXTS, 90),
    }[kind]()


each_kind = pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
words_of = st.lists(st.text(st.sampled_from(CHARACTERS), min_size=1), min_size=1)


# ---- To ids and back. ----


@pytest.mark.slow
@given(st.text())
def test_characters_come_back_exactly(text):
    tokenizer = CharacterTokenizer.train([text, "abc"])
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and tokenizer.decode(ids) == text


@given(st.lists(st.text(st.characters(exclude_characters="<"))))
def test_words_come_back_but_for_the_space_between(texts):
    text = " ".join(texts)
    tokenizer = WordTokenizer.train(texts)
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(text.split())
    assert len(tokenizer) == 3 + len(set(text.split()))


@given(words_of)
def test_bpe_brings_back_every_text_of_known_characters_with_single_spaces(words):
    text = " ".join(words)
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text
    assert all(3 < i < len(BPE) for i in ids)


@given(st.text())
def test_bpe_reads_every_text_and_writes_no_special_token_but_unknown(text):
    assert all(3 <= i < len(BPE) for i in BPE.encode(text))


def test_bpe_keeps_the_pieces_of_a_word_together_and_words_and_punctuation_apart():
    for token in BPE.tokens[4:]:
        body = token.removeprefix("▁")
        assert "▁" not in body and " " not in body
        assert body.isalnum() or not any(c.isalnum() for c in body)
    pieces = [BPE.tokens[i] for i in BPE.encode("two men, stand")]
    assert pieces == ["▁two", "▁men", ",", "▁stand"]  # whole: each occurs twice


def test_bpe_merges_the_most_frequent_pair_first():
    tokenizer = BytePairTokenizer.train(["xy xy xy xz"], 9)  # ▁-x occurs 4 times, x-y 3 times, x-z once
    assert tokenizer.tokens == ("<pad>", "<start>", "<end>", "<unknown>", "x", "y", "z", "▁", "▁x")
    assert BytePairTokenizer.train(["xy xy xy xz"], 10).tokens[-1] == "▁xy"


@each_kind
def test_the_first_ids_are_the_special_tokens(kind):
    tokenizer = made(kind)
    wanted = ("<pad>", "<start>", "<end>", *["<unknown>"] * (kind == "bpe"))
    assert tokenizer.tokens[: len(wanted)] == wanted and (PAD, START, END) == (0, 1, 2)
    assert len(tokenizer) == len(tokenizer.tokens) == len(set(tokenizer.tokens))


@each_kind
def test_decode_leaves_padding_and_start_out_and_ends_at_the_end(kind):
    tokenizer = made(kind)
    ids = tokenizer.encode("two men")
    assert tokenizer.decode([START, *ids, PAD, END, *ids]) == tokenizer.decode(np.array(ids)) == "two men"
    assert tokenizer.decode([]) == ""


@each_kind
@pytest.mark.parametrize("wrong", [-1, 1000])
def test_decode_refuses_ids_that_do_not_exist(kind, wrong):
    tokenizer = made(kind)
    with pytest.raises(ValueError, match=f"ids must be from 0 to {len(tokenizer) - 1}, got {wrong}"):
        tokenizer.decode([4, wrong])


def test_what_bpe_does_not_know_is_unknown():
    assert [BPE.tokens[i] for i in BPE.encode("x")] == ["▁", "<unknown>"]
    assert BPE.decode(BPE.encode("two Ω men")) == "two <unknown> men"


@pytest.mark.parametrize("kind, text, unknown", [("words", "two womn", "womn"), ("characters", "twoΩ", "Ω")])
def test_what_the_others_do_not_know_is_an_error(kind, text, unknown):
    with pytest.raises(ValueError, match=f"the vocabulary does not hold '{unknown}'"):
        made(kind).encode(text)


@pytest.mark.parametrize("name", ["<pad>", "<start>", "<end>", "<unknown>"])
def test_a_text_cannot_write_a_special_token_of_bpe(name, tmp_path):
    tokenizer = BytePairTokenizer.train([*TEXTS, name], 120)
    tokenizer.save(tmp_path / "t.json")
    for each in (tokenizer, load_tokenizer(tmp_path / "t.json"), BytePairTokenizer.train(TEXTS, 90)):
        assert not {PAD, START, END} & set(each.encode(f"two {name} men"))
    assert tokenizer.decode(tokenizer.encode(f"two {name} men")) == f"two {name} men"


@pytest.mark.parametrize("name", ["<pad>", "<start>", "<end>"])
def test_a_special_token_as_a_word_is_refused_and_as_characters_comes_back(name):
    words = WordTokenizer.train([f"two {name} men"])
    with pytest.raises(ValueError, match=f"a text must not contain the special token '{name}' as a word"):
        words.encode(f"two {name} men")
    assert words.decode(words.encode("two men")) == "two men"
    assert WordTokenizer.train([f"two{name}"]).encode(f"two{name}") == [3]  # only a part of a word
    characters = CharacterTokenizer.train([f"two {name} men"])
    assert characters.decode(characters.encode(f"two {name} men")) == f"two {name} men"


def test_lines_are_encoded_one_by_one_and_the_one_that_cannot_be_is_named(tmp_path):
    tokenizer = made("words")
    assert encode_lines(tokenizer, TEXTS, None) == [tokenizer.encode(text) for text in TEXTS]
    lines = ["two men", "two <end>", "two womn"]
    with pytest.raises(ValueError) as caught:
        encode_lines(tokenizer, lines, tmp_path / "a.txt")
    assert str(caught.value).startswith(f"{tmp_path / 'a.txt'}, line 2: a text must not contain the special token")
    with pytest.raises(ValueError, match=r"^the vocabulary does not hold 'womn'"):
        encode_lines(tokenizer, lines[::2], None)


# ---- Training. ----


@each_kind
def test_training_is_deterministic(kind, tmp_path):
    for name in "ab":
        made(kind).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@settings(max_examples=20)
@given(st.integers(1, 200))
def test_bpe_has_as_many_tokens_as_asked_for_or_fewer_or_says_how_many_it_needs(size):
    least = 4 + len(CHARACTERS) + 1  # the characters, and ▁ for the space
    if size < least:
        with pytest.raises(ValueError, match=f"{size} tokens are too few .* at least {least}"):
            BytePairTokenizer.train(TEXTS, size)
    else:
        assert least <= len(BytePairTokenizer.train(TEXTS, size)) <= size


def test_bpe_stops_when_nothing_is_left_to_merge():
    tokens = BytePairTokenizer.train(["ab ab"], 1000).tokens[4:]
    assert tokens[:3] == ("a", "b", "▁") and tokens[3] in ("ab", "▁a") and tokens[4:] == ("▁ab",)


@pytest.mark.parametrize("texts", [[], [""]])
def test_bpe_of_nothing_is_refused(texts):
    with pytest.raises(ValueError, match="the texts are empty"):
        BytePairTokenizer.train(texts, 100)


@pytest.mark.parametrize("size, error", [(0, ValueError), (-3, ValueError), (2.5, TypeError)])
def test_a_size_that_is_none_is_refused(size, error):
    with pytest.raises(error, match="size must be"):
        BytePairTokenizer.train(TEXTS, size)


# ---- Without the library. ----


def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path):
    BPE.save(tmp_path / "t.json")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for act in (lambda: BytePairTokenizer.train(TEXTS, 90), lambda: load_tokenizer(tmp_path / "t.json")):
        with pytest.raises(ModuleNotFoundError) as caught:
            act()
        assert 'pip install "minitransformer[text]"' in str(caught.value)


def test_without_the_library_a_command_says_so_in_one_line(monkeypatch, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one dog\ntwo dogs\n" * 9)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    arguments = "train lm --preset numbers --tokenizer bpe --text".split()
    assert main([*arguments, str(tmp_path / "a.txt"), "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and 'pip install "minitransformer[text]"' in err


# ---- Files. ----


@each_kind
def test_a_saved_tokenizer_comes_back(kind, tmp_path):
    tokenizer = made(kind)
    tokenizer.save(tmp_path / "t.json")
    loaded = load_tokenizer(tmp_path / "t.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.tokens == tokenizer.tokens
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(tokenizer.encode(text)) == text
    document = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert (document["format"], document["kind"]) == (1, kind)


def test_tokens_that_are_hard_on_files_come_back(tmp_path):
    odd = ["zwölf", "<b>", '"\\', "\u2028", "\x00", "𝛼"]
    for tokenizer in (WordTokenizer.train(odd), CharacterTokenizer.train(odd)):
        tokenizer.save(tmp_path / "t.json")
        assert load_tokenizer(tmp_path / "t.json").tokens == tokenizer.tokens


WORDS = '{"format": 1, "kind": "words", "tokens": '


@pytest.mark.parametrize(
    "text, message",
    [
        ("[", "cannot be read as JSON"),
        ("\xff", "cannot be read as JSON"),
        ("[]", 'must be an object with "format": 1'),
        ('{"format": 2, "kind": "words", "tokens": []}', '"format": 1'),
        ('{"format": 1, "tokens": []}', '"kind" must be one of words, characters, bpe, got None'),
        ('{"format": 1, "kind": ["words"]}', '"kind" must be one of words, characters, bpe'),
        (WORDS + "3}", '"tokens" must be a list of texts'),
        (WORDS + '["a", 1]}', '"tokens" must be a list of texts'),
        (WORDS + '["a", "b"]}', "must contain <pad>, <start>, <end> and then"),
        (WORDS + '["<pad>", "<start>", "<end>", "b", "a"]}', "alphabetical order"),
        (WORDS + '["<pad>", "<start>", "<end>", "a", "a"]}', "different tokens"),
        ('{"format": 1, "kind": "characters", "tokens": ["a"]}', "must contain <pad>, <start>, <end> and then"),
        ('{"format": 1, "kind": "bpe"}', '"bpe" is not a byte-pair encoding'),
        ('{"format": 1, "kind": "bpe", "bpe": {"model": 3}}', '"bpe" is not a byte-pair encoding'),
    ],
)
def test_a_damaged_file_is_refused(text, message, tmp_path):
    (tmp_path / "t.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message) as caught:
        load_tokenizer(tmp_path / "t.json")
    assert str(caught.value).startswith(str(tmp_path / "t.json"))


def test_a_bpe_with_other_special_tokens_is_refused(tmp_path):
    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    model.train_from_iterator(TEXTS, tokenizers.trainers.BpeTrainer(special_tokens=["[UNK]"], show_progress=False))
    document = {"format": 1, "kind": "bpe", "bpe": json.loads(model.to_str())}
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match='"bpe" must contain <pad>, <start>, <end>, <unknown> and then'):
        load_tokenizer(tmp_path / "t.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no tokenizer .*t\.json"):
        load_tokenizer(tmp_path / "t.json")
