"""Models that others trained: opening a Hugging Face folder or a .gguf file, and writing such a folder.

config.json        what kind of model it is, and its sizes; `model_type` names the family, `architectures` the head
model.safetensors  its parameters, under the names of that family; or several files and model.safetensors.index.json
tokenizer.json     and more files beside it: from its text to token ids and back; see text/

A .gguf file holds all of this; models of those families that say how they lie in one are read from it.

Each family has a file in published/: the translation of its config, in both directions, and a table of names. The
layers are our own.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ...core.arrays.backend import to_device, to_numpy
from ...core.arrays.files import naming, write, write_arrays
from ...core.layers.unread import Unread
from ...core.models.folder import fitting
from ...core.models.transformer import Transformer, TransformerConfig
from ...core.text.tokenizer import Tokenizers
from . import fp8, gguf, gguf_models, text_part
from .bart import BartConfig
from .families import EVERY, Family
from .family import BODY, WORDS, Config, Pretrained, body_of, check_layers, head_of
from .fields import Fields
from .heads import ANSWERS, REPLACED
from .names import Layout, Place
from .packed import PackedWeight, put
from .tokenizers import TARGET_TOKENIZER, TOKENIZER
from .unknown import missing
from .weight_files import CONFIG, WEIGHTS, Tensor, check_dtype, n_numbers, read_object, tensors, write_bfloat16


def _named(found: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of a file under their names in a body without a head."""
    stored: dict[str, Tensor] = {}
    for name, tensor in found.items():
        plain = name.removeprefix(f"{prefix}.") if prefix else name
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):  # BERT's first files
            plain = plain[: -len(old)] + new if plain.endswith(f"LayerNorm{old}") else plain
        if plain in stored:
            raise ValueError(f"{name} and {stored[plain].name} are names for the same tensor")
        stored[plain] = tensor
    return stored


def is_folder(path: Path) -> bool:
    """Whether a folder is of Hugging Face's form, by its config.json; where that is missing, by its tokenizer.json."""
    if (path / CONFIG).is_file():
        found = read_object(path / CONFIG)
        return "model_type" in found or "format" not in found  # `models.save` writes its format
    return (path / TOKENIZER).is_file() and "kind" not in read_object(path / TOKENIZER)


def of_folder(folder: Path) -> Pretrained:
    """The model in a folder, with the head that its config names. float16, bfloat16 and fp8 become float32.

    A body without a head uses its table of tokens as the head; `hidden` and `encode` need no head. Raises
    FileNotFoundError where a file is missing, and ValueError where one cannot be read, where the config asks for
    something we do not have, or where a tensor is missing, unknown or of another shape.
    """
    whole = read_object(folder / CONFIG)
    with naming(folder / CONFIG):
        document, block = fp8.without(text_part.config_of_text(whole))
        block = block or fp8.without(whole)[1]
        family, head = _family(document)
    found = text_part.tensors_of_text(tensors(folder), whole)
    with naming(folder):
        found = fp8.unpacked(found, block)
    return _filled(family, head, document, _named(found, family.before_body(head)), folder, folder / CONFIG)


def of_file(path: Path, packed: bool = False) -> Pretrained:
    """The model in a .gguf file, its numbers unpacked to float32. packed: matrices stay as they are in the file.

    Raises ValueError as of a folder, and ModuleNotFoundError, which names the extra, without the library `gguf`.
    """
    if path.suffix != ".gguf":
        raise ValueError(f"{path} is a file; give the folder of the model, or a .gguf file")
    file = gguf.open_file(path)
    with naming(path):
        document = gguf_models.document(file)
        found = gguf_models.tensors(file, document)
        family, head = _family(document)
        stored = _named(found, family.prefix)
    try:
        return _filled(family, head, document, stored, path, path, packed)
    except ValueError as error:
        told = gguf_models.in_words_of(file, document, str(error).removeprefix(f"{path}: "))
        raise ValueError(f"{path}: {told}") from error


def _family(document: Mapping[str, Any]) -> tuple[Family, str]:
    """The family and the head that a config.json names."""
    name = document.get("model_type")
    if not isinstance(name, str) or name not in EVERY:
        why = missing(name, document)
        raise ValueError(f"model_type must be one of {', '.join(EVERY)}, got {str(name)[:60]!r}; {why}")
    family = EVERY[name]
    found = document.get("architectures")
    if found is None:
        return family, BODY
    if not isinstance(found, list) or len(found) != 1 or str(found[0]) not in family.architectures:
        raise ValueError(f"architectures must be one of {', '.join(family.architectures)}, got {str(found)[:80]}")
    return family, family.architectures[str(found[0])]


def _filled(
    family: Family,
    head: str,
    document: Mapping[str, Any],
    stored: Mapping[str, Tensor],
    folder: Path,
    about: Path,
    packed: bool = False,
) -> Pretrained:
    """The model. folder, about: where its tensors and its config are; errors name them."""
    with naming(about):
        config = family.read(Fields(document), head, stored)
        stored = text_part.without_training(family, body_of(config), stored)
        _check_sizes(body_of(config), n_numbers(stored), len(stored))
        model = family.build(config, head, Unread())
    layout = family.layout(model).as_in(stored)
    with naming(folder):
        _check_tensors(layout, stored)
        kept = _kept(layout, stored) if packed else {}
        _fill(layout, stored, kept)
        put(model, kept)
    return model


def _check_sizes(config: Config, n_numbers: int, n_tensors: int) -> None:
    """Refuse a config that asks for more than the file holds, before anything of that size is allocated."""
    layers = [f.name for f in dataclasses.fields(config) if f.name.endswith("layers")]
    n_layers = 1 if getattr(config, "shared", False) else sum(getattr(config, name) for name in layers)
    check_layers(n_layers, n_tensors, n_tensors)
    heads = getattr(config, "n_heads", 1) * (getattr(config, "d_head", None) or 1)
    width = max(config.d_model, heads, *(getattr(config, name, None) or 1 for name in ("d_ff", "width")))  # of ALBERT
    tables = [getattr(config, name, 0) for name in ("vocabulary", "source_vocabulary", "target_vocabulary", "types")]
    experts = (getattr(config, "n_experts", None) or 0) * config.d_model
    if n_layers * width > n_numbers or max(*tables, experts) > n_numbers:
        raise ValueError(f"these sizes ask for more than the {n_numbers:,} numbers that the file holds")


def _check_tensors(layout: Layout, stored: Mapping[str, Tensor]) -> None:
    """Require exactly the tensors that the model has, with the right shapes."""
    wanted = {place.theirs: place for place in layout.places}
    problems = [f"{name} is missing" for name in wanted if name not in stored]
    known = {**layout.again, **wanted}
    for name, tensor in stored.items():
        if name in known:
            if tensor.shape != known[name].shape:
                problems.append(f"{tensor.name} must have shape {known[name].shape}, got {tensor.shape}")
            else:
                check_dtype(tensor)
        elif not layout.ignores(name):
            problems.append(f"{tensor.name} is unknown")
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError("the tensors do not fit the config: " + "; ".join(problems[:5]) + more)
    for name, place in layout.again.items():
        if name in stored and not np.array_equal(stored[name].read(), stored[place.theirs].read()):
            raise ValueError(
                f"{stored[name].name} and {stored[place.theirs].name} differ, though the config says that they are "
                "tied; if they are not, set tie_word_embeddings to false"
            )


def _kept(layout: Layout, stored: Mapping[str, Tensor]) -> dict[int, PackedWeight]:
    """The matrices of a file that stay packed, by the ids of our parameters: each has some rows of theirs."""
    found: dict[int, PackedWeight] = {}
    for place in layout.places:
        mark = place.mark if isinstance(place, Place) and (place.mark == "T" or len(place.ours) == 1) else ""
        packed = gguf.packed_rows(stored[place.theirs]) if mark in ("T", "=") else None
        if packed is None:
            continue
        (rows, kind, width), across, first = packed, mark == "T", 0
        for _, parameter in place.ours:
            last = first + (parameter.value.shape[-1] if across else len(rows))
            found[id(parameter)] = PackedWeight(rows[first:last], kind, width, across)
            first = last
    return found


def _fill(layout: Layout, stored: Mapping[str, Tensor], kept: Mapping[int, PackedWeight]) -> None:
    wide = any(stored[place.theirs].dtype == "F64" for place in layout.places)
    for place in layout.places:
        if id(place.ours[0][1]) in kept:
            continue
        values = place.split(stored[place.theirs].read())
        for (_, parameter), value in zip(place.ours, values, strict=True):
            parameter.value = to_device(value.astype(np.float64 if wide else np.float32, copy=False))


def save_pretrained(
    model: Pretrained, directory: str | os.PathLike[str], tokenizer: Tokenizers = None, **fields: Any
) -> None:
    """Write a model as a folder that Hugging Face and `load` can open. The folder is created if necessary.

    tokenizer: the model's, written beside it; without one, nobody can use the model on text. Of a pair for source and
    target, the second goes into the folder target_tokenizer. fields: further entries of config.json, such as
    eos_token_id=2; dtype="bfloat16" writes the tensors so, too, which changes nothing in those that were read so. The
    features of the paper's Transformer are written in another order, all sines before all cosines: the same model, up
    to rounding.

    Raises ValueError for a model that fits no family, for example because its norms are in another order than GPT-2's,
    or that has too few tokens for the tokenizer, and TypeError for anything else.
    """
    if not isinstance(model, Pretrained):
        known = ", ".join(kind.__name__ for kind in get_args(Pretrained))
        why = f": {reason}" if (reason := _NO_FAMILY.get(type(model).__name__)) else ""
        raise TypeError(f"save_pretrained: model must be one of {known}, got {type(model).__name__}{why}")
    folder, head, unlike = Path(directory), head_of(model), []
    if (folder / CONFIG).is_file() and "model_type" not in read_object(folder / CONFIG):
        raise ValueError(f"save_pretrained: {folder} holds another model, which would be lost; choose another folder")
    if isinstance(model, Transformer) and type(model.config) is TransformerConfig:
        model = _sines_first(model)
    for family in EVERY.values():
        try:
            document, arrays = _as_family(family, model, head)
        except _Unlike as error:
            unlike.append(error)
            continue
        document |= _written(tokenizer, model, document, folder) | fields
        folder.mkdir(parents=True, exist_ok=True)
        if document["dtype"] == "bfloat16":
            write_bfloat16(folder / WEIGHTS, arrays)
        else:
            write_arrays(folder / WEIGHTS, arrays, {"format": "pt"})
        write(folder / CONFIG, json.dumps(document, indent=1) + "\n")
        if head == WORDS:
            ends = {name: document[name] for name in _SPECIAL_IDS if document.get(name) is not None}
            write(folder / "generation_config.json", json.dumps(ends, indent=1) + "\n")
        return
    raise ValueError(f"save_pretrained: {_refusal(unlike, model.config)}")


_NO_FAMILY = {
    "ClassifierConfig": "no family has sines as positions with a mean over the tokens; TextClassifierConfig is BERT's",
    "RecurrentTranslator": "no family has recurrent layers",
    "ConvolutionalConfig": "no family has convolutions in place of self-attention",
    "AlibiTransformerConfig": "no family has ALiBi in an encoder and a decoder",
    "AlibiLanguageModelConfig": "BLOOM, which has ALiBi, norms its embedding",
}
# Unless a tokenizer or the family names them: the defaults of families may lie outside the vocabulary.
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def _written(tokenizer: Tokenizers, model: Pretrained, document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write the tokenizers of a model. Returns their entries for config.json."""
    config, is_pair = model.config, isinstance(model, Transformer)
    if tokenizer and "texts" not in (reads := getattr(model, "reads", "texts")):
        apart = "save it without a tokenizer, and that one by its own save_pretrained"
        raise ValueError(f"save_pretrained: a {type(model).__name__} reads {reads}; {apart}")
    if not (given := fitting("save_pretrained", model, tokenizer, exactly=False)):
        return {}
    ids = given[-1].special_ids()
    if not is_pair:
        ids.pop("decoder_start_token_id", None)
    if getattr(config, "count_real", False) and ids.get("pad_token_id") != document["pad_token_id"]:
        raise ValueError(
            f"save_pretrained: the tokenizer's padding must have the id {document['pad_token_id']}, because this model "
            f"counts its positions from it; got {ids.get('pad_token_id')}"
        )
    longest = getattr(config, "max_length", None)
    if is_pair and getattr(config, "positions", None) == "learned":
        longest = config.n_positions
    for each, place in zip(given, (folder, folder / TARGET_TOKENIZER), strict=False):
        each.save_pretrained(place, longest)
    return ids


def _sines_first(model: Transformer) -> Transformer:
    """The same model with its D features in another order: all sines before all cosines, instead of alternating.

    The order of features means nothing to a layer. So it suffices to reorder the rows of each matrix that reads the
    features, and the columns of each matrix that writes them.
    """
    order = np.concatenate([np.arange(0, model.config.d_model, 2), np.arange(1, model.config.d_model, 2)])
    config = BartConfig(**dataclasses.asdict(model.config), positions="halves", scale_embedding=True)
    moved = config.build(Unread()).to(dtype=str(next(model.parameters())[1].value.dtype))
    values = {name: to_numpy(parameter.value) for name, parameter in model.parameters()}
    for name, parameter in moved.parameters():
        layer, leaf = name.split(".")[-2:] if "." in name else ("", name)
        value = values[name]
        if layer in ("query", "key", "value", "inner", "gate"):  # they read the features
            value = value[order] if leaf == "weight" else value
        elif leaf in ("weight", "bias", "gamma", "beta", "table"):
            value = value[..., order]
        parameter.value = to_device(np.ascontiguousarray(value))
    return moved


class _Unlike(Exception):
    """A family cannot hold a model. differ: {field: the family's value in place of the model's}.

    differ is empty where the message gives the reason, and None where the family's models are of another kind.
    """

    def __init__(self, family: Family, differ: dict[str, Any] | None, message: str = "") -> None:
        super().__init__(message)
        self.name, self.differ = family.model_type, differ


def _refusal(unlike: Sequence[_Unlike], config: Any) -> str:
    """Say what no family has, and what the nearest family has instead."""

    def shown(values: Mapping[str, Any]) -> str:
        return " and ".join(f"{name}={value!r}" for name, value in values.items())

    alike = [each for each in unlike if each.differ is not None]
    apart = sorted((each for each in alike if each.differ), key=lambda each: len(each.differ or ()))
    if not alike:
        return _NO_FAMILY.get(type(config).__name__, f"no family has the recipe {type(config).__name__}")
    if not apart:
        return "no family has such a model" + "".join(f"; {each.name}: {each}" for each in alike)
    everywhere = [name for name in apart[0].differ or () if all(name in (each.differ or ()) for each in apart)]
    given = {name: getattr(config, name, None) for name in everywhere}
    what = shown(given) if given and len(apart) == len(alike) else "all of this together"
    return f"no family has {what}; the nearest is {apart[0].name}, with {shown(apart[0].differ or {})}"


def _as_family(family: Family, model: Pretrained, head: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config.json and the tensors of a model in a family. Reading them must give the same model again."""
    architecture = next((name for name, kind in family.architectures.items() if kind == head), None)
    if architecture is None:
        raise _Unlike(family, None)
    misplaced, plain = "", {}
    try:
        try:
            plain = {place.theirs: place for place in family.layout(model).places}
        except ValueError as error:  # it has no place for a tensor; comparing the configs shows why
            misplaced = str(error)
        document = family.theirs(body_of(model.config))
        again = family.read(Fields(document), head, plain)
    except AttributeError:  # configs of this kind lack the field
        raise _Unlike(family, None) from None
    except (ValueError, TypeError, KeyError) as error:
        raise _Unlike(family, {}, str(error)) from error
    if type(again) is not type(model.config) or type(body_of(again)) is not type(body_of(model.config)):
        raise _Unlike(family, None)
    differ = _differences(body_of(model.config), body_of(again))
    if differ or misplaced:
        raise _Unlike(family, differ, misplaced)
    prefix = f"{before}." if (before := family.before_body(head)) else ""
    layout = family.layout(model, prefix)
    arrays = {place.theirs: place.read() for place in (*layout.places, *layout.unused)}
    names: dict[str, Any] = {"architectures": [architecture], "model_type": family.model_type} | _NO_TOKENS
    if getattr(again, "n_classes", None) and head not in (ANSWERS, REPLACED):
        labels = [f"LABEL_{i}" for i in range(again.n_classes)]
        names |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    dtype = str(next(model.parameters())[1].value.dtype)
    arrays |= {f"{prefix}{name}": x.astype(dtype) for name, x in family.computed(model.config).items()}
    return names | document | {"dtype": dtype}, arrays


def _differences(config: Any, again: Any) -> dict[str, Any]:
    """{field: the second config's value} where two differ, apart from dropout and recomputing (training only)."""
    training = {"recompute", "dropout", "attention_dropout"}
    given, read = dataclasses.asdict(config), dataclasses.asdict(again)
    if given.get("positions") == "halves":  # then there is no table
        training.add("n_positions")
    differ = {name: read[name] for name in given if name not in training and given[name] != read[name]}
    follow = ("n_positions", "position_offset") if "positions" in differ else ()
    return {name: value for name, value in differ.items() if name not in follow}
