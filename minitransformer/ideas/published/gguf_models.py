"""Models in a GGUF file: the metadata as a config.json, and the tensors with the names that a folder has.

Which tensor is which follows from its names in a folder (names.in_gguf). Where a family differs, a table of its own has
the name in the file, a mark, and the name in a folder, written as in names.py. The marks:

    =       stored unchanged
    halves  the rows of each head are in another order, see below
    plus1   γ of a norm that multiplies by 1 + γ, stored as 1 + γ
    log     a logarithm, of which the file has -exp
    taps    a short convolution, stored without its axis of length 1
    flat    a vector, stored as a matrix
    row     a matrix of one row, stored as a vector
    1x1     a vector, which a folder has with three axes of length 1
    T       a matrix, or one of each expert, that a folder has transposed
    heads   queries, keys and values one after the other, which a folder has head by head: of each head all three

A family may have marks of its own; a + joins several. Where a name in a folder has one * more, the file has one tensor
of all experts. A name in the file may be that of one tensor, as `blk.*.ssm_dt.bias` is; so is then that in the folder.

llama.cpp rotates neighbouring numbers of a Llama's head; the models in folders rotate each number of the first half
with one of the second. So the program that writes GGUF (convert_hf_to_gguf.py) moves the rows of each head's queries
and keys:

    their row  0  1  2  3    ...
    our row    0  h  1  h+1  ...        where h is half the width of a head
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .angles import part_of
from .families import FAMILIES, Family
from .family import Change, check_layers
from .fields import Fields, general
from .gguf import Changed, File, Packed
from .names import in_gguf, lines
from .unknown import UNKNOWN, missing
from .weight_files import Tensor

_FIELDS = """
embedding_length      size  hidden_size
attention.head_count  size  num_attention_heads
feed_forward_length   size  intermediate_size
block_count           size  num_hidden_layers
context_length        size  max_position_embeddings
"""
_ALWAYS = "model_type", "architectures", "vocab_size", "tie_word_embeddings"
_FACTORS = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
_IGNORED = "*.pooling_type"  # it changes no vector of a token


def _by_heads(numbers: np.ndarray, config: Mapping[str, Any], name: str) -> np.ndarray:
    """The rows of queries, keys and values, head by head."""
    n_heads = config["num_attention_heads"]
    if len(numbers) % (3 * n_heads):
        raise ValueError(f"{name} has {len(numbers)} rows, not the queries, keys and values of {n_heads} heads")
    return numbers.reshape(3, n_heads, -1, *numbers.shape[1:]).swapaxes(0, 1)


def _paired(numbers: np.ndarray, config: Mapping[str, Any], name: str) -> np.ndarray:
    """The rows of each head in our order."""
    n_heads = config["num_attention_heads" if ".attn_q." in name else "num_key_value_heads"]
    if len(numbers) % (2 * n_heads):
        raise ValueError(f"{name} has {len(numbers)} rows, not {n_heads} heads of even width")
    return numbers.reshape(n_heads, -1, 2, *numbers.shape[1:]).swapaxes(1, 2)


_CHANGES: dict[str, Change] = {
    "halves": _paired,
    "heads": _by_heads,
    "T": lambda numbers, config, name: numbers.swapaxes(-1, -2) if numbers.ndim > 1 else numbers,
    "plus1": lambda numbers, config, name: numbers - np.float32(1.0),
    "log": lambda numbers, config, name: np.log(-numbers),
}


def _family(kind: Any, file: File) -> Family:
    """The family of an architecture. Raises ValueError, which says what is missing, for another."""
    known: dict[str, list[Family]] = {}
    for name, each in FAMILIES.items():
        if each.in_gguf:
            for architecture in (each.in_gguf.architecture or name).split():
                known.setdefault(architecture, []).append(each)
    if isinstance(kind, str) and kind in known:
        plain = _own(kind, file)
        return max(known[kind], key=lambda each: bool(each.in_gguf and each.in_gguf.when(plain, file.tensors)))
    name = next((name for name in (*FAMILIES, *UNKNOWN) if _plain(name) == _plain(kind)), kind)  # gptoss, gpt_oss
    why = f"as a folder of Hugging Face's, {name} opens" if name in FAMILIES else missing(name)
    raise ValueError(
        f"general.architecture must be one of {', '.join(known)} in a .gguf file, got {str(kind)[:60]!r}; {why}"
    )


def _own(kind: Any, file: File) -> dict[str, Any]:
    """The metadata of the architecture, with lists in the place of arrays."""
    found = {name: value for name, value in file.metadata.items() if name.startswith(f"{kind}.")}
    return {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in found.items()}


def _plain(name: Any) -> str:
    return re.sub("[-_]", "", str(name))


def document(file: File) -> dict[str, Any]:
    """The config.json of a file's metadata. Raises ValueError for a model that no family has."""
    kind = file.metadata.get("general.architecture")
    family = _family(kind, file)
    fields = Fields(_own(kind, file))
    if fields.document.get(f"{kind}.expert_count") == 0:
        fields.asked |= {f"{kind}.expert_count", f"{kind}.expert_used_count"}
    assert family.in_gguf is not None
    own = _own_names(family)
    config: dict[str, Any] = {
        theirs: fields.size(f"{kind}.{name}") for name, _, theirs in lines(_FIELDS) if not own or theirs in own
    }
    config["num_hidden_layers"] -= _predicting(fields, str(kind), file.tensors)
    n_heads = config.get("num_attention_heads", 1)
    if n_heads > config["hidden_size"]:
        raise ValueError(f"{kind}.attention.head_count must be at most {kind}.embedding_length")
    config["num_key_value_heads"] = _key_heads(fields, str(kind), n_heads)
    width = fields.size(f"{kind}.attention.key_length", config["hidden_size"] // n_heads)
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise ValueError("token_embd.weight must be the matrix (vocabulary, width) of tokens")
    check_layers(config["num_hidden_layers"], len(file.tensors), len(file.tensors))
    fields.size(f"{kind}.vocab_size", table.shape[0])  # an integer, if it is there; the table shows how many there are
    config |= {
        "model_type": family.model_type,
        "architectures": [name for name, head in family.architectures.items() if head == "words"][:1],
        "head_dim": width,
        "rope_theta": fields.positive(f"{kind}.rope.freq_base", 10000.0),
        "rms_norm_eps": fields.positive(f"{kind}.attention.{_epsilon(fields, str(kind))}"),
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    config |= _angles(fields, str(kind), file.tensors, width)
    more = fields.of_gguf(family.in_gguf.table, str(kind), file.tensors)
    more |= family.in_gguf.more(fields, file.tensors, config)
    if own:
        config = {own.get(name, name): value for name, value in config.items() if name in own or name in _ALWAYS}
    config |= more
    if "v_head_dim" not in config and fields.size(f"{kind}.attention.value_length", width) != width:
        raise ValueError(f"{kind}.attention.value_length must be the width {width} of a head")
    ignored = [f"{kind}.{name}" for name in family.in_gguf.ignored.split()]
    fields.nothing_else(" ".join([_IGNORED, *ignored]), "the metadata")
    return config


def _lines(family: Family) -> Iterator[tuple[str, str, str]]:
    """The lines of a family's table of names: the name in the file, the mark, the name in a folder."""
    assert family.in_gguf is not None
    own = family.in_gguf.names
    return lines(own if callable(family.names) else in_gguf(family.names, own))


def _own_names(family: Family) -> dict[str, str]:
    """{a general name of a field: the family's}, where that has a table of its own for all fields."""
    assert family.in_gguf is not None
    return general(family.fields) | {name: theirs for theirs, _, name in lines(family.in_gguf.fields)}


def in_words_of(file: File, config: Mapping[str, Any], message: str) -> str:
    """A message about a folder's config.json and its tensors, with the names that a file has."""
    kind, family = file.metadata["general.architecture"], FAMILIES[config["model_type"]]
    assert family.in_gguf is not None
    own = _own_names(family)
    names = {
        **{own.get(theirs, theirs): f"{kind}.{name}" for name, _, theirs in lines(_FIELDS)},
        "partial_rotary_factor": f"{kind}.rope.dimension_count over the width of a head,",
        "head_dim": "the width of a head",
        "config": "metadata",
    }
    for theirs, _, ours in _lines(family):
        whole = theirs.endswith((".weight", ".bias"))
        places = (re.escape(ours.lstrip("/")).replace(r"\*", r"(\d+)"), theirs.replace("*", r"\1"))
        at = rf"(?<![\w.])(?:{re.escape(family.prefix)}\.)?{places[0]}" + ("" if whole else r"(?=\.(weight|bias))")
        message = re.sub(rf"{at}(?!\w)", places[1], message) if ours.count("*") < 2 else message
    return re.sub(r"(?<![\w.])\w+(?![\w.])", lambda match: names.get(match[0], match[0]), message)


def _epsilon(fields: Fields, kind: str) -> str:
    """The name of what a norm of either kind adds below the root."""
    names = "layer_norm_rms_epsilon", "layer_norm_epsilon"
    return next((name for name in names if fields.get(f"{kind}.attention.{name}") is not None), names[0])


def _predicting(fields: Fields, kind: str, stored: Mapping[str, Packed]) -> int:
    """How many of the layers predict further tokens, in training: they are the last, and are not read."""
    n, n_layers = fields.count(name := f"{kind}.nextn_predict_layers"), fields.size(f"{kind}.block_count")
    if n >= n_layers:
        raise ValueError(f"{name} must be less than {kind}.block_count, {n_layers}; got {n}")
    for i in range(n_layers - n, n_layers):
        found = [each for each in stored if each.startswith(f"blk.{i}.")]
        if found and not any(".nextn." in each for each in found):
            raise ValueError(f"{name} is {n}, but blk.{i} is a layer like the others, without a tensor blk.{i}.nextn.*")
    return n


def _key_heads(fields: Fields, kind: str, default: int) -> int:
    """The heads of keys: one number, or one for each layer, which is 0 where a layer does not attend."""
    found = fields.get(name := f"{kind}.attention.head_count_kv")
    if not isinstance(found, list):
        return fields.size(name, default)
    sizes = set(found)
    if len(found) != fields.get(f"{kind}.block_count") or len(sizes - {0}) != 1 or max(sizes) not in range(1, 1 << 32):
        raise ValueError(f"{name} must have a number for each layer, the same in all layers that attend")
    if 0 in sizes:
        fields.asked.discard(name)  # the family must ask which layers attend
    return int(max(sizes))


def _angles(fields: Fields, kind: str, stored: Mapping[str, Packed], width: int) -> dict[str, Any]:
    """What config.json says about scaled angles, and about how much of a head of this width is rotated.

    Unless they are scaled linearly or by YaRN, a file has no kind of angles, but the factors of the pairs: one tensor
    for every text, or one for short and one for long texts. So what was Llama 3's comes as LongRoPE's. Raises
    ValueError for another scaling that stands in the metadata.
    """
    rope = f"{kind}.rope"
    found: dict[str, Any] = {"partial_rotary_factor": part_of(fields.size(f"{rope}.dimension_count", width), width)}
    if fields.get(f"{rope}.scaling.type") == "linear":
        return found | {"rope_scaling": {"rope_type": "linear", "factor": fields.positive(f"{rope}.scaling.factor")}}
    if fields.get(f"{rope}.scaling.type") == "yarn":
        return found | {"rope_scaling": {"rope_type": "yarn", **_yarn(fields, f"{rope}.scaling")}}
    short, long = (stored.get(name) or stored.get(_FACTORS[0]) for name in _FACTORS[1:])
    if fields.get(f"{rope}.scaling.type") != "longrope" or short is None:
        fields.only(**{f"{rope}.scaling.type": "none"})
    if short is None or long is None:
        return found
    lists = [factors.read().astype(float).ravel().tolist() for factors in (short, long)]
    n_pairs = fields.size(f"{rope}.dimension_count", width) // 2
    for factors, numbers in zip((short, long), lists, strict=True):
        if len(numbers) != n_pairs or min(numbers) <= 0.0:
            raise ValueError(f"{factors.name} must have a number above 0 for each of the {n_pairs} pairs of a head")
    if set(lists[0] + lists[1]) == {1.0}:
        return found
    trained = fields.size_or_none(f"{rope}.scaling.original_context_length")
    angles = {"rope_type": "longrope", "short_factor": lists[0], "long_factor": lists[1]}
    factor = fields.positive(f"{rope}.scaling.attn_factor", 1.0)
    found["rope_scaling"] = angles | {"attention_factor": factor}
    return found | ({} if trained is None else {"original_max_position_embeddings": trained})


def _yarn(fields: Fields, scaling: str) -> dict[str, Any]:
    """YaRN's numbers. A file without the factor of cosines and sines has the usual one."""
    fields.only(**{f"{scaling}.yarn_ext_factor": 1.0, f"{scaling}.attn_factor": 1.0})
    found: dict[str, Any] = {
        "factor": fields.positive(f"{scaling}.factor"),
        "original_max_position_embeddings": fields.size(f"{scaling}.original_context_length"),
    }
    names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow", "attention_factor": "yarn_attn_factor"}
    there = {ours: f"{scaling}.{name}" for ours, name in names.items() if fields.get(f"{scaling}.{name}") is not None}
    return found | {ours: fields.positive(name) for ours, name in there.items()}


def tensors(file: File, config: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file under the names of a folder. config: its config.json. Unknown names stay as they are."""
    family = FAMILIES[config["model_type"]]
    assert family.in_gguf is not None
    of_folder = {theirs: (mark, ours) for theirs, mark, ours in _lines(family)}
    changes = {**_CHANGES, **family.in_gguf.changes}
    found: dict[str, Tensor] = {}
    extra = any(name.endswith(".nextn_predict_layers") for name in file.metadata)
    for name, packed in file.tensors.items():
        if name in _FACTORS:
            continue  # they are in config
        number = re.search(r"\bblk\.(\d+)\.", name)
        if extra and number and int(number[1]) >= config["num_hidden_layers"]:
            continue
        pattern = re.sub(r"\bblk\.\d+\.", "blk.*.", name)
        place, leaf = pattern.rpartition(".")[::2]
        mark, ours = of_folder.get(pattern) or of_folder.get(place, ("=", ""))
        theirs = (ours if pattern in of_folder else f"{ours}.{leaf}") if ours else name
        theirs = theirs.replace("*", number[1], 1) if number else theirs
        if ours:
            theirs = f"{family.prefix}.{theirs}".lstrip(".") if theirs[0] != "/" else theirs[1:]
        for each, part in _experts(theirs, packed):
            if each in found:
                raise ValueError(f"two tensors have names for the same tensor {each}")
            found[each] = _in_folder(each, part, mark, changes, config)
    return family.in_gguf.joined(found, dict(config))


def _experts(theirs: str, packed: Packed) -> Iterator[tuple[str, Packed]]:
    """A tensor, or where its name in a folder has a * left, that of each expert, which lie one after the other."""
    if "*" not in theirs:
        yield theirs, packed
        return
    step = packed.n_bytes // packed.shape[0]
    for i in range(packed.shape[0]):
        part = {"shape": packed.shape[1:] or (1,), "start": packed.start + i * step, "n_bytes": step}
        yield theirs.replace("*", str(i)), dataclasses.replace(packed, **part)  # type: ignore[arg-type]


def _in_folder(
    theirs: str, packed: Packed, mark: str, changes: Mapping[str, Change], config: Mapping[str, Any]
) -> Tensor:
    """A tensor as a folder has it, under its name there."""
    shape, marks = packed.shape, mark.split("+")
    if "taps" in marks:
        shape = (math.prod(shape[:-1]), 1, shape[-1])
    if "1x1" in marks:
        shape = (1, 1, math.prod(shape), 1)
    if "row" in marks:
        shape = (1, math.prod(shape))
    if "flat" in marks:
        shape = (math.prod(shape),)
    if "T" in marks:
        shape = *shape[:-2], *shape[-2:][::-1]
    if not (steps := [changes[each] for each in marks if each in changes]):
        return dataclasses.replace(packed, name=theirs, shape=shape)

    def change(numbers: np.ndarray) -> np.ndarray:
        for step in steps:
            numbers = step(numbers, config, packed.name)
        return numbers

    moves = marks in (["halves"], ["heads"])
    return Changed(theirs, packed.path, packed.dtype, shape, packed.start, (packed,), change, moves)
