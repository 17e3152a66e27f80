"""Models that others trained: opening a folder of Hugging Face's or a .gguf file, and writing such a folder.

config.json        what kind of model it is, and its sizes; `model_type` names the family, `architectures` the head
model.safetensors  its parameters, under the names of that family; or several files and model.safetensors.index.json

A .gguf file holds all of it; only Llama's kind is read from one.

Each family has a file in families/: its config translated both ways, and a table of names. The layers are our own.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.backend import array_module, to_device
from ..arrays.files import write, write_arrays
from ..layers.module import Unread
from . import gguf
from .encoder import TextClassifier
from .families import FAMILIES, Family, llama_gguf
from .families.family import BODY, CLASSES, Config, Pretrained, head_of
from .families.fields import Fields
from .families.names import Layout
from .weights import CONFIG, WEIGHTS, Unopened, check_dtype, n_numbers, read_object, tensors

_MOST_LAYERS = 10_000  # of a layer that is used many times; others are counted in the file


def _named(found: Mapping[str, Unopened], prefix: str) -> dict[str, Unopened]:
    """The tensors of a file under the names of a body without a head."""
    stored: dict[str, Unopened] = {}
    for name, tensor in found.items():
        plain = name.removeprefix(f"{prefix}.") if prefix else name
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):  # BERT's first files
            plain = plain[: -len(old)] + new if plain.endswith(f"LayerNorm{old}") else plain
        if plain in stored:
            raise ValueError(f"{name} and {stored[plain].name} mean the same tensor")
        stored[plain] = tensor
    return stored


def is_published(path: str | os.PathLike[str]) -> bool:
    """Whether a path is for `from_pretrained`: a file, or a folder whose config.json names a family of models.

    False for a folder that `folder.save` wrote, or that has no config.json. Raises ValueError if that cannot be read.
    """
    path = Path(path)
    return path.is_file() or ((path / CONFIG).is_file() and "model_type" in read_object(path / CONFIG))


def from_pretrained(directory: str | os.PathLike[str]) -> Pretrained:
    """Open a folder of Hugging Face's, with the head that its config names. Parameters are on the default device.

    directory: the folder, or a .gguf file of Llama's kind, whose numbers are unpacked to float32.

    Returns a TextEncoder, MaskedLanguageModel or TextClassifier (bert, roberta, distilbert, albert), a LanguageModel
    (gpt2, llama, mistral, qwen2) or a Transformer (t5, bart, pegasus, marian). A body without a head comes with its own
    table as the head; `hidden` and `encode` go without. float16 and bfloat16 become float32.

    Raises FileNotFoundError where a file is missing, and ValueError where one cannot be read, where the config asks for
    what we do not have, or where a tensor is missing, unknown or of another shape. Nothing of a folder is executed.
    Raises ModuleNotFoundError that names the extra, where a .gguf file is given without the library `gguf`.
    """
    folder = Path(directory)
    if folder.is_file():
        return _from_file(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    document = read_object(folder / CONFIG)
    try:
        family, head = _family(document)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    return _filled(family, head, document, _named(tensors(folder), family.prefix), folder, folder / CONFIG)


def _from_file(path: Path) -> Pretrained:
    if path.suffix != ".gguf":
        raise ValueError(f"{path} is a file; give the folder of the model, or a .gguf file")
    file = gguf.open_file(path)
    try:
        document = llama_gguf.document(file)
        found = llama_gguf.tensors(file, document)
        family, head = _family(document)
        stored = _named(found, family.prefix)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _filled(family, head, document, stored, path, path)


def _family(document: Mapping[str, Any]) -> tuple[Family, str]:
    """The family that a config.json names, and which head."""
    name = document.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"model_type must be one of {', '.join(FAMILIES)}, got {str(name)[:60]!r}")
    family = FAMILIES[name]
    found = document.get("architectures")
    if found is None:
        return family, BODY
    if not isinstance(found, list) or len(found) != 1 or str(found[0]) not in family.architectures:
        raise ValueError(f"architectures must be one of {', '.join(family.architectures)}, got {str(found)[:80]}")
    return family, family.architectures[str(found[0])]


def _filled(
    family: Family, head: str, document: Mapping[str, Any], stored: Mapping[str, Unopened], folder: Path, about: Path
) -> Pretrained:
    """The model. folder, about: where its tensors and its config are, for the errors."""
    try:
        config = family.ours(Fields(document), head, stored)
        _check_sizes(config, n_numbers(stored), len(stored))
        model = family.build(config, head, _n_classes(head, stored), Unread())
    except (ValueError, TypeError, MemoryError) as error:
        raise ValueError(f"{about}: {error}") from error
    layout = family.layout(model, head)
    try:
        _check_tensors(layout, stored)
        _fill(layout, stored)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return model


def _check_sizes(config: Config, n_numbers: int, n_tensors: int) -> None:
    """Refuse a config that asks for more than the file holds, before anything of that size is made."""
    layers = [f.name for f in dataclasses.fields(config) if f.name.endswith("layers")]
    for name in layers:
        if getattr(config, name) > (_MOST_LAYERS if getattr(config, "shared", False) else n_tensors):
            raise ValueError(f"{getattr(config, name)} layers are more than the {n_tensors} tensors of the file hold")
    n_layers = 1 if getattr(config, "shared", False) else sum(getattr(config, name) for name in layers)
    width = max(config.d_model, config.d_ff, config.n_heads * (getattr(config, "d_head", None) or 1))
    tables = [getattr(config, name, 0) for name in ("vocabulary", "source_vocabulary", "target_vocabulary", "types")]
    if n_layers * width > n_numbers or max(tables) > n_numbers:
        raise ValueError(f"these sizes ask for more than the {n_numbers:,} numbers that the file holds")


def _n_classes(head: str, stored: Mapping[str, Unopened]) -> int:
    if head != CLASSES:
        return 1
    name = "classifier.out_proj.weight" if "classifier.out_proj.weight" in stored else "classifier.weight"
    if name not in stored or len(stored[name].shape) != 2 or 0 in stored[name].shape:
        raise ValueError(f"{name} must be the matrix (classes, width) of the head")
    return stored[name].shape[0]


def _check_tensors(layout: Layout, stored: Mapping[str, Unopened]) -> None:
    """Require every tensor that the model has, in its shape, and no other."""
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


def _fill(layout: Layout, stored: Mapping[str, Unopened]) -> None:
    wide = any(stored[place.theirs].dtype == "F64" for place in layout.places)
    for place in layout.places:
        values = place.split(stored[place.theirs].read())
        for (_, parameter), value in zip(place.ours, values, strict=True):
            parameter.value = to_device(value.astype(np.float64 if wide else np.float32, copy=False))
            parameter.grad = array_module(parameter.value).zeros(value.shape, dtype=parameter.value.dtype)


def save_pretrained(model: Pretrained, directory: str | os.PathLike[str], **fields: Any) -> None:
    """Write a model as a folder that Hugging Face opens, and from_pretrained. The folder is made if it is not there.

    fields: further entries of config.json, such as eos_token_id=2. Raises ValueError for a model that no family has,
    such as one with another order of norms than GPT-2, and TypeError for what is no such model.
    """
    if not isinstance(model, Pretrained):
        raise TypeError(
            f"save_pretrained: the model must be one that from_pretrained returns, got {type(model).__name__}"
        )
    head, reasons = head_of(model), []
    for family in FAMILIES.values():
        try:
            document, arrays = _as_family(family, model, head)
        except _Unlike as error:
            reasons.append(f"{family.model_type}: {error}")
            continue
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / WEIGHTS, arrays, {"format": "pt"})
        write(folder / CONFIG, json.dumps(document | fields, indent=1) + "\n")
        return
    raise ValueError("save_pretrained: no family has such a model; " + "; ".join(reasons))


class _Unlike(Exception):
    """A family cannot hold a model; says why."""


def _as_family(family: Family, model: Pretrained, head: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config.json and the tensors of a model in a family, which must read as the very same model again."""
    architecture = next((name for name, kind in family.architectures.items() if kind == head), None)
    if architecture is None:
        raise _Unlike(f"has no {type(model).__name__}")
    if isinstance(model, TextClassifier) and model.activation != family.class_activation:
        raise _Unlike(f"classifies with {family.class_activation}")
    try:
        plain = {place.theirs: place for place in family.layout(model, head).places}
        document = family.theirs(model.config)
        again = family.ours(Fields(document), head, plain)
    except (ValueError, TypeError, AttributeError, StopIteration, KeyError) as error:
        raise _Unlike(str(error)) from error
    differ = _differences(model.config, again)
    if differ:
        raise _Unlike(f"has other {', '.join(differ[:3])}")
    prefix = f"{family.prefix}." if family.prefix and head != BODY else ""
    arrays = {place.theirs: place.read() for place in family.layout(model, head, prefix).places}
    names: dict[str, Any] = {"architectures": [architecture], "model_type": family.model_type}
    if isinstance(model, TextClassifier):
        labels = [f"LABEL_{i}" for i in range(model.output.weight.value.shape[1])]
        names |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    dtype = str(next(model.parameters())[1].value.dtype)
    return names | document | {"dtype": dtype}, arrays


def _differences(config: Any, again: Any) -> list[str]:
    """The fields in which two configs mean different models; dropout and checkpointing concern training alone."""
    if type(config) is not type(again):
        return ["layers"]
    training = {"checkpoint", "dropout", "attention_dropout"}
    given, read = _meaning(config), _meaning(again)
    return [name for name in given if name not in training and given[name] != read[name]]


def _meaning(config: Any) -> dict[str, Any]:
    """The fields of a config, with those that are None at what they then mean."""
    found = dataclasses.asdict(config)
    unless_given = {
        "d_head": config.d_model // config.n_heads,
        "n_key_heads": config.n_heads,
        "qkv_bias": found.get("bias"),
        "final_norm": found.get("norm_order") == "pre",
    }
    found |= {name: meant for name, meant in unless_given.items() if name in found and found[name] is None}
    if found.get("positions") != "relative":
        found = {name: value for name, value in found.items() if not name.startswith("relative_")}
    if found.get("positions") in ("sinusoidal", "relative", "alibi"):
        found["n_positions"] = None
    return found
