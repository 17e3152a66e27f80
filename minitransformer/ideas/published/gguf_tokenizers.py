"""The tokenizer in the metadata of a .gguf file: its vocabulary, and the name of how a text is split.

tokenizer.ggml.model   what makes tokens of the pieces of a text: one of _MODELS
tokenizer.ggml.pre     where a text is split before that, if it is byte-pair encoding: the name of some patterns
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.files import naming
from ...core.text.tokenizer import load_library
from . import gguf
from .tokenizers import PublishedTokenizer

# https://github.com/ggml-org/llama.cpp, llama-vocab.cpp: how each named way splits a text.
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_EACH_ALONE = _LLAMA_3.replace("{1,3}", "")  # each digit
_WITH_MARKS = _EACH_ALONE.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT_4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"  # and what lies before: it is an interval of their pattern
# Letters that have a case, without those that the pattern leaves out: Armenian and Georgian, and all of later years.
_CASED = (
    "[\\p{Lu}\\p{Ll}\\p{Lt}&&[^\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8a\u2d00-\u2d2d\ua790-\ua7ff\uab30-\uab68"
    "\U00010570-\U000105bc\U00010d50-\U00010d85\U00016e40-\U00016e7f\U0001d400-\U0001df2a]]+"
)
_DEEPSEEK_LLM = (
    "[\r\n]", rf"\s?{_CASED}", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", _CHINESE,
    r"\p{N}+",
)  # fmt: skip
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip
_LIKE_GPT_2, _EACH_DIGIT = ("gpt-2", "olmo", "mpt", "phi-2", "modern-bert"), ("smollm", "refact", "starcoder")
_LIKE_LLAMA_3 = "llama-bpe", "lfm2"
_SPLITS: dict[str, tuple[str, ...]] = dict.fromkeys((*_LIKE_LLAMA_3, "dbrx", "smaug-bpe"), (_LLAMA_3,)) | {
    "qwen2": (_EACH_ALONE,), "deepseek-r1-qwen": (_EACH_ALONE,), "qwen35": (_WITH_MARKS,), "gpt-4o": (_GPT_4O,),
    "bloom": (" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",), "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, r"\p{N}"), "deepseek-v3": _DEEPSEEK_V3,
}  # fmt: skip
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # kinds of tokens


def of_file(path: Path) -> tuple[PublishedTokenizer]:
    """The tokenizer in a .gguf file. Raises the errors of `of_folder`."""
    found = gguf.open_file(path).metadata
    library = load_library("the tokenizer of a published model", "models")
    with naming(path):
        _check_kinds(found)
        names = _texts(found, "tokenizer.ggml.tokens")
        kind = found.get("tokenizer.ggml.model")
        if not isinstance(kind, str) or kind not in _MODELS:
            known = ", ".join(f"{name!r}, {what}" for name, (_, what) in _MODELS.items())
            raise ValueError(f"tokenizer.ggml.model must be one of {known}; got {str(kind)[:40]!r}")
        model = _MODELS[kind][0](found, names, library)
        at = {short: found.get(f"tokenizer.ggml.{name}_token_id") for short, name in _IN_GGUF.items()}
        special = {short: names[i] for short, i in at.items() if type(i) is int and 0 <= i < len(names)}
        unsaid = kind in ("llama", "bert") or str(found.get("tokenizer.ggml.pre")) in _LIKE_LLAMA_3
        asked = found.get("tokenizer.ggml.add_bos_token", unsaid), _asked_at_end(found, str(kind))
        around = [_one_of(special, each) if wanted else None for each, wanted in zip(_AROUND, asked, strict=True)]
        if any(around):
            ids = {text: at[name] for name, text in special.items() if text in around}
            first, last = ([text] if text else [] for text in around)
            model.post_processor = library.processors.TemplateProcessing(
                single=[*first, "$A", *last], pair=[*first, "$A", *last, "$B", *last], special_tokens=list(ids.items())
            )
    ends = [found.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    template = found.get("tokenizer.chat_template")
    return (PublishedTokenizer(model, special, [i for i in ends if i is not None], template),)


def _check_kinds(found: Mapping[str, Any]) -> None:
    """Require numbers, flags and texts where they belong. An id that is no token's counts as missing."""
    wanted = {"*_token_id": int, "ggml.add_*": bool, "ggml.remove_*": bool, "ggml.pre": str, "chat_template": str}
    words = {int: "an integer", bool: "true or false", str: "a text"}
    for pattern, kind in wanted.items():
        for name in fnmatch.filter(found, f"tokenizer.{pattern}"):
            if type(found[name]) is not kind:
                raise ValueError(f"{name} must be {words[kind]}, got {str(found[name])[:40]!r}")


_IN_GGUF = {
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding", "cls_token": "cls",
    "sep_token": "seperator", "mask_token": "mask",
}  # fmt: skip
_AROUND = ("bos_token", "cls_token"), ("eos_token", "sep_token")  # a text


def _asked_at_end(found: Mapping[str, Any], kind: str) -> bool:
    """Whether a text ends with a token of its own: llama.cpp adds it for BERT and T5 where nothing is said."""
    said = [found.get(f"tokenizer.ggml.add_{name}_token") for name in ("eos", "sep")]
    return any(said) if any(each is not None for each in said) else kind in ("bert", "t5")


def _one_of(special: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of these special tokens. Raises ValueError where there is none."""
    for name in names:
        if name in special:
            return special[name]
    raise ValueError(f"tokenizer.ggml.{_IN_GGUF[names[0]]}_token_id must be the id of a token")


def _byte_pairs(found: Mapping[str, Any], names: list[str], library: Any) -> Any:
    """Byte-pair encoding on bytes (Radford et al. 2019, GPT-2, section 2.2), split as the file says."""
    splitting = str(found.get("tokenizer.ggml.pre"))
    split = library.pre_tokenizers
    before, on_bytes = [], split.ByteLevel(add_prefix_space=False, use_regex=splitting not in _SPLITS)
    if splitting in _SPLITS:
        before = [split.Split(library.Regex(pattern), "isolated") for pattern in _SPLITS[splitting]]
    elif splitting in _EACH_DIGIT:
        before = [split.Digits(individual_digits=True)]
    elif splitting not in _LIKE_GPT_2:
        ways = ", ".join((*_LIKE_GPT_2, *_EACH_DIGIT, *_SPLITS))
        raise ValueError(f"tokenizer.ggml.pre must be one of {ways}, got {splitting[:40]!r}")
    merges = [tuple(merge.split(" ")) for merge in _texts(found, "tokenizer.ggml.merges")]
    ids, kinds = _ids_and_kinds(found, names)
    for merge in merges:  # the library would stop the whole program
        if len(merge) != 2 or not ids.keys() >= {*merge, "".join(merge)}:
            raise ValueError(f"tokenizer.ggml.merges: {' '.join(merge)[:60]!r} does not merge two tokens into a third")
    pairs = library.models.BPE(vocab=ids, merges=merges, ignore_merges=splitting in _LIKE_LLAMA_3)
    model = library.Tokenizer(pairs)
    model.pre_tokenizer, model.decoder = split.Sequence([*before, on_bytes]), library.decoders.ByteLevel()
    return _with_whole_tokens(model, names, kinds, library)


def _pieces(found: Mapping[str, Any], names: list[str], library: Any) -> Any:
    """SentencePiece's byte-pair encoding on characters (Kudo and Richardson 2018), a space written as ▁.

    Two neighbours that together are a piece are merged, those with the highest score first. A character that is no
    piece becomes its bytes, <0xE2> and so on. User-defined pieces are cut out before.
    """
    ids, kinds = _ids_and_kinds(found, names)
    each = zip(names, _scores(found, names), kinds, strict=True)
    ordinary = {name: score for name, score, kind in each if kind == _NORMAL}
    ranked = sorted(
        (-score, -i, name) for name, score in ordinary.items() for i in range(1, len(name))
        if name[:i] in ordinary and name[i:] in ordinary
    )  # fmt: skip
    unknown = found.get("tokenizer.ggml.unknown_token_id")
    model = library.Tokenizer(
        library.models.BPE(
            vocab=ids, merges=[(name[:-i], name[-i:]) for _, i, name in ranked], byte_fallback=True, fuse_unk=True,
            unk_token=names[unknown] if type(unknown) is int and 0 <= unknown < len(names) else None,
        )
    )  # fmt: skip
    decoders, first = library.decoders, found.get("tokenizer.ggml.add_space_prefix", True)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    model.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if first else steps)
    model.normalizer = library.normalizers.Replace(" ", "▁")
    model.pre_tokenizer = library.pre_tokenizers.Metaspace("▁", "first" if first else "never", split=False)
    return _with_whole_tokens(model, names, kinds, library)


def _words(found: Mapping[str, Any], names: list[str], library: Any) -> Any:
    """WordPiece (Schuster and Nakajima 2012; Devlin et al. 2019), in small letters without accents.

    A file writes ▁ before what begins a word, and nothing before what goes on; a vocabulary has ## before the latter.
    """
    for i, name in enumerate(names):
        if not (name.startswith("[") and name.endswith("]")):
            names[i] = name[1:] if name.startswith("▁") else f"##{name}"
    ids, kinds = _ids_and_kinds(found, names)
    unknown = _unknown(found, names)
    model = library.Tokenizer(library.models.WordPiece(vocab=ids, unk_token=names[unknown]))
    model.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer, model.decoder = library.pre_tokenizers.BertPreTokenizer(), library.decoders.WordPiece()
    return _with_whole_tokens(model, names, kinds, library)


def _likeliest(found: Mapping[str, Any], names: list[str], library: Any) -> Any:
    """SentencePiece's unigram model (Kudo 2018): the pieces whose scores, logarithms of probabilities, add up to most.

    A file may hold SentencePiece's own table of what stands for which characters.
    """
    _, kinds = _ids_and_kinds(found, names)
    unknown = _unknown(found, names)
    pieces = list(zip(names, _scores(found, names), strict=True))
    model = library.Tokenizer(library.models.Unigram(pieces, unknown, False))
    change, table = library.normalizers, found.get("tokenizer.ggml.precompiled_charsmap")
    steps = [change.Precompiled(table.astype("u1").tobytes())] if isinstance(table, np.ndarray) and len(table) else []
    if found.get("tokenizer.ggml.remove_extra_whitespaces", False):
        steps += [change.Strip(), change.Replace(library.Regex(" {2,}"), " ")]
    model.normalizer = change.Sequence(steps)
    first = "always" if found.get("tokenizer.ggml.add_space_prefix", True) else "never"
    model.pre_tokenizer = library.pre_tokenizers.Metaspace("▁", first)
    model.decoder = library.decoders.Metaspace("▁", first)
    return _with_whole_tokens(model, names, kinds, library)


_MODELS: dict[str, tuple[Callable[..., Any], str]] = {
    "gpt2": (_byte_pairs, "byte-pair encoding on bytes"),
    "llama": (_pieces, "SentencePiece's pieces"),
    "bert": (_words, "WordPiece"),
    "t5": (_likeliest, "SentencePiece's unigram model"),
}


def _with_whole_tokens(model: Any, names: list[str], kinds: list[int], library: Any) -> Any:
    """The tokenizer with those tokens that are cut out of a text first; Gemma's runs of spaces are among them."""
    for number, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        chosen = [name for name, each in zip(names, kinds, strict=True) if each == number]
        model.add_tokens([library.AddedToken(name, normalized=not special, special=special) for name in chosen])
    return model


def _unknown(found: Mapping[str, Any], names: list[str]) -> int:
    unknown = found.get("tokenizer.ggml.unknown_token_id")
    if type(unknown) is not int or not 0 <= unknown < len(names):
        raise ValueError("tokenizer.ggml.unknown_token_id must be the id of a token")
    return unknown


def _ids_and_kinds(found: Mapping[str, Any], names: list[str]) -> tuple[dict[str, int], list[int]]:
    types = found.get("tokenizer.ggml.token_type")
    kinds = types.tolist() if isinstance(types, np.ndarray) else []
    ids = {name: i for i, name in enumerate(names)}
    if len(ids) < len(names) or len(kinds) != len(names):
        raise ValueError("tokenizer.ggml.tokens must differ, and each needs a type in tokenizer.ggml.token_type")
    return ids, kinds


def _scores(found: Mapping[str, Any], names: list[str]) -> list[float]:
    scores = found.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(names) or not np.isfinite(scores).all():
        raise ValueError("each of tokenizer.ggml.tokens needs a score in tokenizer.ggml.scores, a finite number")
    return scores.astype(float).tolist()


def _texts(found: Mapping[str, Any], name: str) -> list[str]:
    value = found.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of texts")
    return value
