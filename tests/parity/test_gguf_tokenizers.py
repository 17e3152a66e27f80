"""Tokenizers in .gguf files: patterns beside the library `regex`, words and pieces beside Hugging Face's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
import tokenizers
import transformers
from gguf_files import llama, write_gguf

from minitransformer.ideas.published.gguf_tokenizers import of_file

TEXT = (
    "Hello, WORLD!\r\n it's 12345 don'T  naïve été…  x_y == (a[1]);\n\n\tdef f(x):\n  return 3.14 ,.Foo 東京 "
    "は日本の首都 한국어 Привет МИР ქართული ΟΔΟΣ १२ \U0001d54f-ray é "
)  # fmt: skip
V3 = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]  # fmt: skip
CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"]
# Of its list of letters those that stand in the text; Georgian and the letter of mathematics are not in the list.
LLM = [
    r"[\r\n]", r"\s?[A-Za-zÀ-ÖØ-öø-ƺΑ-ΡΣ-ϵϷ-ҁ]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$",
    "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+",
]  # fmt: skip


def pieces(patterns: list[str], text: str) -> list[str]:
    """The text cut at every match of one pattern after the other; what lies between matches is a piece as well."""
    found = [text]
    for pattern in patterns:
        found = [part for whole in found for part in _cut(pattern, whole) if part]
    return found


def _cut(pattern: str, whole: str) -> list[str]:
    at, out = 0, []
    for match in regex.finditer(pattern, whole):
        out += [whole[at : match.start()], match.group()]
        at = match.end()
    return [*out, whole[at:]]


def opened(path: Path, **metadata: Any) -> Any:
    more = {f"tokenizer__ggml__{name}": value for name, value in metadata.items()}
    return of_file(write_gguf(path, llama(), **more))[0]


@pytest.mark.parametrize("pre, patterns", [("deepseek-v3", V3), ("deepseek-coder", CODER), ("deepseek-llm", LLM)])
def test_a_text_is_split_as_the_patterns_say(tmp_path: Path, pre: str, patterns: list[str]) -> None:
    names = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "he"]
    found = opened(
        tmp_path / "model.gguf", model="gpt2", pre=pre, tokens=names, merges=["h e"], token_type=[1] * len(names)
    )
    split = found._model.pre_tokenizer.pre_tokenize_str(TEXT)
    assert [TEXT[start:end] for _, (start, end) in split] == pieces(patterns, TEXT)
    assert found.decode(found.encode(TEXT)) == TEXT


def test_words_and_their_parts_are_those_of_bert(tmp_path: Path) -> None:
    """As BertModel.set_vocab of convert_hf_to_gguf.py writes them, ▁ before what begins a word."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "##ly", "a", ",", "naive", "##a", "東"]
    theirs = transformers.BertTokenizer(vocab={name: i for i, name in enumerate(names)})
    stored = [n if n[0] == "[" else n[2:] if n[:2] == "##" else f"▁{n}" for n in names]
    found = opened(
        tmp_path / "model.gguf", model="bert", pre="bert-bge", tokens=stored, token_type=[3] * 5 + [1] * 9,
        padding_token_id=0, unknown_token_id=1, cls_token_id=2, seperator_token_id=3, mask_token_id=4,
    )  # fmt: skip
    for text in ("The cats, a naïve catly", "東 the a[MASK]", "dog A,a"):
        assert found.encode(text, special=True) == theirs(text)["input_ids"]
        assert found.decode(found.encode(text)) == theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)
    assert found.special["cls_token"] == "[CLS]" and found.tokens[7] == "##s"


def test_the_likeliest_pieces_are_those_of_t5(tmp_path: Path) -> None:
    names = ["<pad>", "</s>", "<unk>", "▁", "▁the", "▁ca", "t", "s", "ts", "▁cat", "a", "c", "h", "e", "▁t", "he"]
    scores = np.array([0, 0, 0, -3, -2, -4, -3.5, -3, -4.5, -6, -4, -4, -4, -4, -3, -3], np.float32)
    theirs = transformers.T5Tokenizer(vocab=list(zip(names, scores.tolist(), strict=True)), extra_ids=0)
    found = opened(
        tmp_path / "model.gguf", model="t5", tokens=names, scores=scores.tolist(), token_type=[3, 3, 2] + [1] * 13,
        padding_token_id=0, eos_token_id=1, unknown_token_id=2, remove_extra_whitespaces=True,
    )  # fmt: skip
    for text in ("the cats", "cat the the", "the  cxt"):
        assert found.encode(text, special=True) == theirs(text)["input_ids"], text
    assert found.decode(found.encode("the cats")) == "the cats" and found.ends == (1,)
