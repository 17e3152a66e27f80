"""Tokenizers: from a text to token ids and back.

    words        "two dogs"  ->  two | dogs           tokens are words separated by spaces
    characters   "dogs"      ->  d | o | g | s
    bpe          "two dogs"  ->  ▁two | ▁dog | s      frequent pairs of pieces merged (Sennrich et al. 2016)

In each, <pad> = 0, <start> = 1 and <end> = 2 come first. BPE splits a text into words and runs of punctuation, marks
the space before each with ▁, and starts from characters. A character that the training text does not contain becomes
<unknown> = 3. The library `tokenizers`, of the extra `text`, does the work.

A text cannot contain <pad>, <start> or <end> as tokens. The kinds `characters` and `bpe` read them as plain characters;
for `words` they are an error.

`save_pretrained` writes any of them for Hugging Face's AutoTokenizer, which then encodes and decodes in the same way.
What is an error here is an error there.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..arrays.boundary import check_flags, check_sizes
from ..arrays.files import read_json, write
from .vocabulary import END, PAD, START, Vocabulary, without_special

_FORMAT = 1
_UNKNOWN = "<unknown>"
_SPECIAL = ("<pad>", "<start>", "<end>", _UNKNOWN)  # of bpe
_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace())  # what str.split removes, and \s not quite
_NONE = "none of these"  # stands for what is unknown; no character or word, so the library raises an error


class Tokenizer:
    """Base of every tokenizer. tokens: the text of each id; kind: its name.

    special: the names of special tokens, as Hugging Face calls them; ends: the ids that end a text; template: of chats;
    plain: whether the names of special tokens are plain characters in a text.
    """

    kind: str
    tokens: tuple[str, ...]
    special: Mapping[str, str] = {"bos_token": "<start>", "eos_token": "<end>", "pad_token": "<pad>"}
    ends: tuple[int, ...] = (END,)
    template: str | None = None
    plain: bool = True

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text. special: with those that its model expects around it; a model of ours expects none."""
        check_flags(f"{type(self).__name__}.encode", special=special)
        return self._encode(text, special)

    def _encode(self, text: str, special: bool) -> list[int]:
        raise NotImplementedError

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation, up to the model's answer. messages: each has a "role" and a "content".

        Raises ValueError where the model has no chat template, or the template fails.
        """
        raise ValueError("this model has no chat template, so it was not made for chats; give it a text to continue")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to <end>, without <pad> and <start>."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as JSON, which `text.load` reads."""
        document = {"format": _FORMAT, "kind": self.kind, **self._document()}
        write(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def _document(self) -> dict[str, Any]:
        raise NotImplementedError

    def save_pretrained(self, folder: str | os.PathLike[str], max_length: int | None = None) -> None:
        """Write what AutoTokenizer and `text.load` read: tokenizer.json, tokenizer_config, special_tokens_map.

        Their `decode` with skip_special_tokens leaves <pad>, <start> and <end> out, but reads on after <end>.
        max_length: the most tokens that the model reads. Raises ModuleNotFoundError without the library `tokenizers`.
        """
        folder, special = Path(folder), dict(self.special)
        about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
        about |= {"split_special_tokens": self.plain, "clean_up_tokenization_spaces": False}
        about |= {"model_input_names": ["input_ids", "attention_mask"]}
        about |= {} if max_length is None else {"model_max_length": max_length}
        about |= {} if self.template is None else {"chat_template": self.template}
        model = self._for_library()
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "tokenizer.json", model.to_str(pretty=True) + "\n")
        for name, document in (("tokenizer_config", about), ("special_tokens_map", special)):
            write(folder / f"{name}.json", json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def special_ids(self) -> dict[str, Any]:
        """The ids of the special tokens that a model's config.json names: {"eos_token_id": 2, ...}."""
        return {"bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD, "decoder_start_token_id": START}

    def _for_library(self) -> Any:
        """A tokenizers.Tokenizer that does the same."""
        raise NotImplementedError


class WordTokenizer(Tokenizer):
    """Words separated by spaces. A word that is not in the vocabulary is an error."""

    kind = "words"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokens = vocabulary.tokens

    @classmethod
    def train(cls, texts: Iterable[str]) -> WordTokenizer:
        """A tokenizer of all words that occur in the texts."""
        return cls(Vocabulary(text.split() for text in _texts(cls, texts)))

    def _encode(self, text: str, special: bool) -> list[int]:
        """The ids of the words. Raises ValueError for a word that is not in the vocabulary, or is a special token."""
        words = text.split()
        for token in self.tokens[: END + 1]:
            if token in words:
                raise ValueError(f"a text must not contain the special token {token!r} as a word; change the word")
        return self.vocabulary.encode(words)

    def decode(self, ids: Iterable[int]) -> str:
        """The words, separated by spaces."""
        return " ".join(self.vocabulary.decode(ids))

    def _document(self) -> dict[str, Any]:
        return {"tokens": self.tokens}

    def _for_library(self) -> Any:
        library, refused = load_library("a tokenizer for Hugging Face"), "<special>"
        while refused in self.tokens:
            refused += ">"
        model, space = self._levels(library), f"[{_SPACE}]"
        special = rf"(?<![^{_SPACE}])<(pad|start|end)>(?![^{_SPACE}])"
        model.normalizer = library.normalizers.Replace(library.Regex(special), refused)
        model.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(f"{space}+"), "removed")
        return model  # without a decoder the library puts spaces between the words

    def _levels(self, library: Any) -> Any:
        """A library's tokenizer whose tokens are those of the vocabulary, and nothing is unknown."""
        ids = {token: i for i, token in enumerate(self.tokens)}
        model = library.Tokenizer(library.models.WordLevel(ids, unk_token=_NONE))
        model.add_special_tokens(
            [library.AddedToken(token, special=True, normalized=False) for token in self.tokens[: END + 1]]
        )
        return model


class CharacterTokenizer(WordTokenizer):
    """Single characters. One that is not in the vocabulary is an error."""

    kind = "characters"

    @classmethod
    def train(cls, texts: Iterable[str]) -> CharacterTokenizer:
        """A tokenizer of all characters that occur in the texts."""
        return cls(Vocabulary(_texts(cls, texts)))

    def _encode(self, text: str, special: bool) -> list[int]:
        """The ids of the characters. Raises ValueError for a character that is not in the vocabulary."""
        return self.vocabulary.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The characters, joined."""
        return "".join(self.vocabulary.decode(ids))

    def _for_library(self) -> Any:
        library = load_library("a tokenizer for Hugging Face")
        model = self._levels(library)
        model.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"[\s\S]"), "isolated")
        model.decoder = library.decoders.Fuse()
        return model


class BytePairTokenizer(Tokenizer):
    """Byte-pair encoding. Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"."""

    kind = "bpe"

    def __init__(self, model: Any) -> None:
        self._model = model  # a tokenizers.Tokenizer
        model.encode_special_tokens = True  # "<end>" in a text is five characters, not the end of the sentence
        self.tokens = tuple(model.id_to_token(i) for i in range(model.get_vocab_size()))

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> BytePairTokenizer:
        """Merge the most frequent pairs in the texts until there are `size` tokens, or nothing is left to merge.

        Raises ModuleNotFoundError, which names the extra, if the library `tokenizers` is not installed.
        """
        check_sizes("BytePairTokenizer", size=size)
        library = load_library()
        texts = _texts(cls, texts)
        # The library reserves memory for as many tokens as it is given. There cannot be more than one for each
        # character and one for each merge.
        most = len(_SPECIAL) + 2 * sum(len(text) + 1 for text in texts)
        model = library.Tokenizer(library.models.BPE(unk_token=_UNKNOWN))
        words = library.Regex(r"▁?[\p{L}\p{M}\p{N}]+|▁?[^\p{L}\p{M}\p{N}▁]+|▁")
        model.pre_tokenizer = library.pre_tokenizers.Sequence(
            [library.pre_tokenizers.Metaspace(), library.pre_tokenizers.Split(words, "isolated")]
        )
        model.decoder = library.decoders.Metaspace()
        options = {"special_tokens": [*_SPECIAL], "show_progress": False}
        trainer = library.trainers.BpeTrainer(vocab_size=min(size, most), **options)
        model.train_from_iterator(texts, trainer)
        if model.get_vocab_size() <= len(_SPECIAL):
            raise ValueError("BytePairTokenizer: the texts are empty; give some to learn the merges from")
        if model.get_vocab_size() > size:
            raise ValueError(
                f"BytePairTokenizer: {size} tokens are too few for the characters of the texts; choose a size of at "
                f"least {model.get_vocab_size()}"
            )
        return cls(model)

    def _encode(self, text: str, special: bool) -> list[int]:
        """The ids of the pieces."""
        return self._model.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The pieces, joined, with spaces where they were."""
        kept = [int(i) for i in without_special(ids, len(self))]
        return self._model.decode(kept, skip_special_tokens=False)

    def _document(self) -> dict[str, Any]:
        return {"bpe": json.loads(self._model.to_str())}

    def _for_library(self) -> Any:
        document = json.loads(self._model.to_str())  # where <unknown> is a piece: `decode` shows it
        document["added_tokens"] = [each for each in document["added_tokens"] if each["content"] != _UNKNOWN]
        return load_library().Tokenizer.from_str(json.dumps(document))


Tokenizers: TypeAlias = Tokenizer | Sequence[Tokenizer] | None  # none, one, or those of source and target


def _texts(owner: type[Tokenizer], texts: Any) -> list[str]:
    """Require texts to learn from, and list them."""
    found: list[Any] = list(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else [None]
    if not all(isinstance(text, str) for text in found):
        raise TypeError(f"{owner.__name__}: texts must be a list of texts, got {type(texts).__name__}")
    return found


def load_library(what: str = "byte-pair encoding", extra: str = "text", name: str = "tokenizers") -> Any:
    """A library. Raises ModuleNotFoundError, which says what needs it and names the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f'{what} needs the library {name}; install it: pip install "minitransformer[{extra}]"'
        ) from error


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str], path: Path | None) -> list[list[int]]:
    """The ids of each line. For a line that cannot be encoded, ValueError names the file, if given, and the line."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(tokenizer.encode(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}" if path else str(error)) from error
    return found


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Read what `save` wrote. Raises FileNotFoundError if the file is missing, ValueError if it has no tokenizer."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no tokenizer {path}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}')
    kind = document.get("kind")
    if kind == "bpe":
        library = load_library()
        try:
            tokenizer = BytePairTokenizer(library.Tokenizer.from_str(json.dumps(document.get("bpe"))))
        except Exception as error:  # the library raises a plain Exception
            raise ValueError(f'{path}: "bpe" is not a byte-pair encoding: {error}') from error
        if tokenizer.tokens[: len(_SPECIAL)] != _SPECIAL or None in tokenizer.tokens:
            raise ValueError(f'{path}: "bpe" must contain {", ".join(_SPECIAL)} and then tokens without a gap')
        return tokenizer
    kinds: dict[Any, type[WordTokenizer]] = {each.kind: each for each in (WordTokenizer, CharacterTokenizer)}
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f'{path}: "kind" must be one of {", ".join([*kinds, "bpe"])}, got {kind!r}')
    return kinds[kind](_vocabulary(path, document.get("tokens")))


def _vocabulary(path: Path, tokens: Any) -> Vocabulary:
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f'{path}: "tokens" must be a list of texts')
    vocabulary = Vocabulary([tokens])
    if vocabulary.tokens != tuple(tokens):
        raise ValueError(f"{path} must contain <pad>, <start>, <end> and then different tokens in alphabetical order")
    return vocabulary


def pieces(tokenizer: Tokenizer, before: Sequence[int], ids: Iterable[int]) -> Iterator[str]:
    """What each new id adds to the text of those before, as soon as its characters are whole."""
    read, shown = [*before], tokenizer.decode(before)
    for i in ids:
        read.append(i)
        text = tokenizer.decode(read)
        if not text.endswith("\ufffd"):  # a character of several bytes has begun
            yield text[len(shown) :]
            shown = text
    yield tokenizer.decode(read)[len(shown) :]
