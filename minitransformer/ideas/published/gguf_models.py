"""Models in a GGUF file: the metadata as a config.json, and the tensors with the names that a folder has.

Which tensor is which stands in the family's file, as a table: the name in the file, a mark, the name in a folder,
written as in names.py. The marks:

    =       stored unchanged
    halves  the rows of each head are in another order, see below
    plus1   γ of a norm that multiplies by 1 + γ, stored as 1 + γ

llama.cpp rotates neighbouring numbers of a Llama's head; the models in folders rotate each number of the first half
with one of the second. So the program that writes GGUF (convert_hf_to_gguf.py) moves the rows of each head's queries
and keys:

    their row  0  1  2  3    ...
    our row    0  h  1  h+1  ...        where h is half the width of a head
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .angles import part_of
from .families import FAMILIES, Family
from .fields import Fields
from .gguf import File, Packed
from .names import lines
from .unknown import UNKNOWN, missing

_FIELDS = """
embedding_length      size  hidden_size
attention.head_count  size  num_attention_heads
feed_forward_length   size  intermediate_size
block_count           size  num_hidden_layers
context_length        size  max_position_embeddings
"""
_FACTORS = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
_IGNORED = "*.vocab_size"  # the table of tokens shows it


@dataclass(frozen=True)
class _Changed(Packed):
    """A tensor that a folder stores in another way. n_heads: if its rows are moved; plus: what is added to it."""

    n_heads: int = 0
    plus: float = 0.0

    def read(self) -> np.ndarray:
        """Its numbers as a folder has them, in float32."""
        stored = super().read()
        return stored + np.float32(self.plus) if self.plus else self._moved(stored)

    def rows(self) -> np.ndarray:
        """Its packed rows as a folder has them."""
        return self._moved(super().rows())

    def _moved(self, stored: np.ndarray) -> np.ndarray:
        pairs = stored.reshape(self.n_heads, -1, 2, *stored.shape[1:])
        return pairs.swapaxes(1, 2).reshape(stored.shape)


def _family(kind: Any) -> Family:
    """The family of an architecture. Raises ValueError, which says what is missing, for another."""
    known = {each.in_gguf.architecture or name: each for name, each in FAMILIES.items() if each.in_gguf}
    if isinstance(kind, str) and kind in known:
        return known[kind]
    name = next((name for name in (*FAMILIES, *UNKNOWN) if _plain(name) == _plain(kind)), kind)  # qwen3moe, qwen3_moe
    why = f"as a folder of Hugging Face's, {name} opens" if name in FAMILIES else missing(name)
    raise ValueError(
        f"general.architecture must be one of {', '.join(known)} in a .gguf file, got {str(kind)[:60]!r}; {why}"
    )


def _plain(name: Any) -> str:
    return re.sub("[-_]", "", str(name))


def document(file: File) -> dict[str, Any]:
    """The config.json of a file's metadata. Raises ValueError for a model that no family has."""
    kind = file.metadata.get("general.architecture")
    family = _family(kind)
    fields = Fields({name: value for name, value in file.metadata.items() if name.startswith(f"{kind}.")})
    if fields.get(f"{kind}.expert_count"):
        raise ValueError(f"{kind}.expert_count: a mixture of experts is not supported")
    rows = (line.split() for line in _FIELDS.strip().splitlines())
    config: dict[str, Any] = {theirs: fields.size(f"{kind}.{name}") for name, _, theirs in rows}
    if config["num_attention_heads"] > config["hidden_size"]:
        raise ValueError(f"{kind}.attention.head_count must be at most {kind}.embedding_length")
    n_heads = config["num_attention_heads"]
    config["num_key_value_heads"] = fields.size(f"{kind}.attention.head_count_kv", n_heads)
    width = fields.size(f"{kind}.attention.key_length", config["hidden_size"] // n_heads)
    if fields.size(f"{kind}.attention.value_length", width) != width:
        raise ValueError(f"{kind}.attention.value_length must be the width {width} of a head")
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise ValueError("token_embd.weight must be the matrix (vocabulary, width) of tokens")
    config |= {
        "model_type": family.model_type,
        "architectures": [next(name for name, head in family.architectures.items() if head == "words")],
        "head_dim": width,
        "rope_theta": fields.positive(f"{kind}.rope.freq_base", 10000.0),
        "rms_norm_eps": fields.positive(f"{kind}.attention.layer_norm_rms_epsilon"),
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    assert family.in_gguf is not None
    config |= _angles(fields, str(kind), file.tensors, width)
    config |= family.in_gguf.more(fields, file.tensors, config)
    fields.nothing_else(_IGNORED, "the metadata")
    return config


def _angles(fields: Fields, kind: str, stored: Mapping[str, Packed], width: int) -> dict[str, Any]:
    """What config.json says about scaled angles, and about how much of a head of this width is rotated.

    Unless they are scaled linearly, a file has no kind of angles, but the factors of the pairs: one tensor for every
    text, or one for short and one for long texts. So what was Llama 3's comes as LongRoPE's. Raises ValueError for
    another scaling that stands in the metadata.
    """
    rope = f"{kind}.rope"
    found: dict[str, Any] = {"partial_rotary_factor": part_of(fields.size(f"{rope}.dimension_count", width), width)}
    if fields.get(f"{rope}.scaling.type") == "linear":
        return found | {"rope_scaling": {"rope_type": "linear", "factor": fields.positive(f"{rope}.scaling.factor")}}
    short, long = (stored.get(name) or stored.get(_FACTORS[0]) for name in _FACTORS[1:])
    if fields.get(f"{rope}.scaling.type") != "longrope" or short is None:
        fields.only(**{f"{rope}.scaling.type": "none"})
    if short is None or long is None:
        return found
    lists = [factors.read().astype(float).ravel().tolist() for factors in (short, long)]
    if set(lists[0] + lists[1]) == {1.0}:
        return found
    trained = fields.size_or_none(f"{rope}.scaling.original_context_length")
    angles = {"rope_type": "longrope", "short_factor": lists[0], "long_factor": lists[1]}
    factor = fields.positive(f"{rope}.scaling.attn_factor", 1.0)
    found["rope_scaling"] = angles | {"attention_factor": factor}
    return found | ({} if trained is None else {"original_max_position_embeddings": trained})


def tensors(file: File, config: Mapping[str, Any]) -> dict[str, Packed]:
    """The tensors of a file under the names of a folder. config: its config.json. Unknown names stay as they are."""
    family = FAMILIES[config["model_type"]]
    assert family.in_gguf is not None
    of_folder = {theirs: (mark, ours) for theirs, mark, ours in lines(family.in_gguf.names)}
    found: dict[str, Packed] = {}
    for name, packed in file.tensors.items():
        if name in _FACTORS:
            continue  # they are in config
        place, leaf = name.rpartition(".")[::2]
        number = re.match(r"blk\.(\d+)\.", place)
        mark, ours = of_folder.get(re.sub(r"^blk\.\d+\.", "blk.*.", place), ("=", ""))
        theirs = name
        if ours:
            theirs = f"{family.prefix}.{ours}" if ours[0] != "/" else ours[1:]
            theirs = f"{theirs.replace('*', number[1] if number else '')}.{leaf}"
        if theirs in found:
            raise ValueError(f"two tensors have names for the same tensor {theirs}")
        found[theirs] = dataclasses.replace(packed, name=theirs)
        if mark == "halves":
            n_heads = config["num_attention_heads" if place.endswith("attn_q") else "num_key_value_heads"]
            if packed.shape[0] % (2 * n_heads):
                raise ValueError(f"{name} has {packed.shape[0]} rows, not {n_heads} heads of even width")
            found[theirs] = _Changed(**vars(found[theirs]), n_heads=n_heads)
        elif mark == "plus1":
            found[theirs] = _Changed(**vars(found[theirs]), plus=-1.0)
    return found
