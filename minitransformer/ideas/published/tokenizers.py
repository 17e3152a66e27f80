"""Tokenizers of published models: the tokenizer.json of a folder. gguf_tokenizers.py reads those of .gguf files.

The library `tokenizers`, which wrote most of these files, does the work. A tokenizer is spread over several files:

tokenizer.json           the vocabulary, the merges, how a text is split, the special tokens around it
tokenizer_config.json    the names of special tokens; the chat template, unless chat_template.jinja holds it
generation_config.json   the tokens that end a text; if it is missing, config.json names them
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.arrays.boundary import check_flags
from ...core.arrays.files import check_content, write
from ...core.text.tokenizer import Tokenizer, load_library
from . import chat
from .weight_files import read_object

TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "target_tokenizer"  # the second: a folder inside the model's folder
_LONGEST, _MOST_TOKENS = 1 << 27, 1 << 22  # bytes of a tokenizer.json, and tokens
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class PublishedTokenizer(Tokenizer):
    """A tokenizer that came with a model. special: {"mask_token": "[MASK]", ...}; ends: ids that end a text.

    Special tokens written in a text become special tokens, unless plain=True. `decode` leaves them out.
    """

    kind = "published"

    def __init__(
        self,
        model: Any,
        special: Mapping[str, str],
        ends: Sequence[int] = (),
        template: str | None = None,
        plain: bool = False,
    ) -> None:
        check_flags("PublishedTokenizer", plain=plain)
        model.no_truncation()  # a file may hold length limits that were set for training
        model.no_padding()
        model.encode_special_tokens = plain
        self._model = model  # a tokenizers.Tokenizer
        self.special, self.ends, self.template, self.plain = dict(special), tuple(ends), template, plain

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:  # type: ignore[override]  # read-only, and computed on demand
        """The name of each id, with the marks of a space and of a new line replaced."""
        names = [self._model.id_to_token(i) or f"<{i}>" for i in range(len(self))]
        return tuple(name.replace("Ġ", " ").replace("Ċ", "\n").replace("▁", " ") for name in names)

    def __len__(self) -> int:
        return max(self._model.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def _encode(self, text: str, special: bool) -> list[int]:
        """The ids of a text. special: add the tokens that the model expects around it, such as [CLS] and [SEP]."""
        with _caught("the tokenizer fails on this text"):
            return self._model.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens. An id beyond the last has no text: the table of a model may be
        longer than its vocabulary. Raises ValueError for an id below 0.
        """
        ids = [int(i) for i in ids]
        if (least := min(ids, default=0)) < 0:
            raise ValueError(f"ids must be at least 0, got {least}")
        ids = [i for i in ids if i < len(self)]
        with _caught("the tokenizer fails on these ids"):
            return self._model.decode(ids, skip_special_tokens=True)

    def id_of(self, name: str) -> int:
        """The id of a special token by its name, such as "mask_token". Raises ValueError where there is none."""
        found = self._model.token_to_id(self.special[name]) if name in self.special else None
        if found is None:
            raise ValueError(f"this tokenizer has no {name}")
        return found

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation, as the model's template has it."""
        if self.template is None:
            return super().chat(messages)
        return self.encode(chat.render(self.template, messages, self.special))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer.json."""
        write(path, self._model.to_str(pretty=True) + "\n")

    def special_ids(self) -> dict[str, Any]:
        """The ids of those special tokens that config.json can name and this tokenizer has."""
        found = {f"{name}_id": self._model.token_to_id(text) for name, text in self.special.items()}
        ends = {"eos_token_id": self.ends[0] if len(self.ends) == 1 else list(self.ends)} if self.ends else {}
        known = {name: found.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")} | ends
        return {name: i for name, i in known.items() if i is not None}

    def _for_library(self) -> Any:
        return self._model


def _library() -> Any:
    return load_library("the tokenizer of a published model", "models")


@contextlib.contextmanager
def _caught(what: str) -> Iterator[None]:
    """Turn the library's errors into ValueError: it raises plain Exceptions, and panics that are not Exceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise ValueError(f"{what}: {str(error)[:200]}") from error


# ---- A folder. ----


def of_folder(folder: Path) -> tuple[PublishedTokenizer, ...]:
    """The tokenizer in a folder, and that of the target, if it has its own.

    Raises FileNotFoundError for a missing file, ModuleNotFoundError, which names the extra, for a missing library, and
    ValueError for a file that cannot be read.
    """
    target = folder / TARGET_TOKENIZER
    return tuple(_of_folder(each) for each in (folder, target) if each == folder or target.is_dir())


def _of_folder(folder: Path) -> PublishedTokenizer:
    path, library = folder / TOKENIZER, _library()
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no tokenizer.json. If it has another file of a tokenizer, Hugging Face's transformers makes "
            "one of that: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    if path.stat().st_size > _LONGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, but may have at most {_LONGEST:,}")
    check_content(path)
    with _caught(f"{path} cannot be read as a tokenizer"):
        model = library.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    about = _object(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in about:  # older files
        about |= _object(folder / "special_tokens_map.json")
    special = {name: text for name in _SPECIAL if (text := _text(about.get(name))) is not None}
    added = {token.content for token in model.get_added_tokens_decoder().values()}
    # What these files call special is so for the library transformers, whatever tokenizer.json says.
    with _caught(f"{folder}: the special tokens cannot be read"):
        model.add_special_tokens([x for x in _named(about) if x not in added and model.token_to_id(x) is not None])
    if "mask_token" not in special:
        known = [name for name in ("[MASK]", "<mask>") if model.token_to_id(name) is not None]
        special |= {"mask_token": known[0]} if known else {}
    ends = _object(folder / "generation_config.json").get("eos_token_id")
    if ends is None:
        ends = _object(folder / "config.json").get("eos_token_id")
    if ends is None and "eos_token" in special:
        ends = model.token_to_id(special["eos_token"])
    found = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(type(i) is int for i in found):
        raise ValueError(f"{folder}: eos_token_id must be an integer or a list of integers, got {str(ends)[:60]}")
    plain = about.get("split_special_tokens") is True
    tokenizer = PublishedTokenizer(model, special, found, _template(folder, about), plain)
    if (size := len(tokenizer)) > _MOST_TOKENS:
        raise ValueError(f"{path} has a token of id {size - 1:,}; at most {_MOST_TOKENS:,} tokens are read")
    return tokenizer


def _named(about: Mapping[str, Any]) -> list[str]:
    """The special tokens that a tokenizer_config.json names."""
    values = [*map(about.get, _SPECIAL)]
    for more in map(about.get, ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens")):
        values += more.values() if isinstance(more, dict) else more if isinstance(more, list) else ()
    return [text for value in values if (text := _text(value)) is not None]


def _template(folder: Path, about: Mapping[str, Any]) -> str | None:
    path, template = folder / "chat_template.jinja", about.get("chat_template")
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    if isinstance(template, list):  # of several, by name
        template = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}.get(
            "default"
        )
    return template if isinstance(template, str) else None


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where the file is missing."""
    return read_object(path) if path.is_file() else {}


def _text(value: Any) -> str | None:
    """The text of a special token. The file may give it alone or with options."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None
