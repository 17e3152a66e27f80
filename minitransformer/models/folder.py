"""A model as a folder: its sizes in config.json, its parameters in model.safetensors.

config.json        {"format": 1, "model": "Transformer", "config": {"d_model": 64, ...}}
model.safetensors  every parameter under its dotted name, without code (https://github.com/huggingface/safetensors)
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.boundary import check_sizes
from ..arrays.files import read_arrays, read_json, write, write_arrays
from .classifier import Classifier, ClassifierConfig
from .encoder_decoder import EncoderDecoder
from .language_model import LanguageModel, LanguageModelConfig
from .recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig
from .transformer import Transformer, TransformerConfig
from .weights import n_numbers, of_file

Model = EncoderDecoder | LanguageModel | Classifier

_FORMAT = 1
_DTYPES = ("F16", "F32", "F64")
_KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "Transformer": (Transformer, TransformerConfig),
    "LanguageModel": (LanguageModel, LanguageModelConfig),
    "Classifier": (Classifier, ClassifierConfig),
    "RecurrentTranslator": (RecurrentTranslator, RecurrentTranslatorConfig),
}


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write the model's config and parameters into a folder. A missing folder is created.

    Raises TypeError for anything but a model of this library.
    """
    name = type(model).__name__
    if type(model) is not _KINDS.get(name, (None,))[0]:
        raise TypeError(f"save: the model must be one of {', '.join(_KINDS)}, got {name}")
    config = {"format": _FORMAT, "model": name, "config": asdict(model.config)}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / "model.safetensors", model.state())
    write(folder / "config.json", json.dumps(config, indent=1) + "\n")


def kind(folder: str | os.PathLike[str]) -> str:
    """The kind of model in a folder: "Transformer", "LanguageModel", ... Raises errors as `load` does."""
    return _described(Path(folder))[0]


def load(folder: str | os.PathLike[str]) -> Model:
    """Read a model that `save` wrote, onto the default device and in the dtype it was saved in.

    Raises FileNotFoundError if the folder or one of its files is missing. Raises ValueError if a file cannot be read,
    or if the parameters are not finite floating-point numbers or do not fit the config. The fit is checked before
    memory is taken for them.
    """
    folder = Path(folder)
    name, config = _described(folder)
    weights_path = folder / "model.safetensors"
    if not weights_path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: {weights_path.name} is missing")
    model_class, config_class = _KINDS[name]
    tensors = of_file(weights_path)
    for parameter, tensor in sorted(tensors.items()):
        if tensor.dtype not in _DTYPES:
            raise ValueError(
                f"{weights_path}: {parameter} has dtype {tensor.dtype}, but must have {', '.join(_DTYPES)}; convert it"
            )
    there = n_numbers(tensors)
    try:
        sizes = config_class(**config)
        if (fewest := _fewest(sizes)) > there:
            raise ValueError(f"these sizes need at least {fewest:,} parameters, but {weights_path.name} has {there:,}")
        model = model_class(sizes, np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    state = read_arrays(weights_path)
    for parameter, value in state.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"{weights_path}: {parameter} contains NaN or infinity; this model is broken, train it again"
            )
    dtypes = {value.dtype for value in state.values()}
    if len(dtypes) == 1 and (dtype := dtypes.pop()).kind == "f":
        model.to(dtype=dtype.name)
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{weights_path}: {error}") from error
    return model


def _fewest(config: Any) -> int:
    """A lower bound of the number of parameters, found without making any; a model has less than four times as many.

    Attention with H heads of queries and G of keys has at least 2·D·(H + G)·d in each layer, the feed-forward network
    2·D·F, each table of N rows N·D.
    """
    sizes = {f.name: getattr(config, f.name) for f in fields(config) if f.type in ("int", "int | None")}
    offset = sizes.pop("position_offset", 0)
    check_sizes(type(config).__name__, **{name: size for name, size in sizes.items() if size is not None})
    if isinstance(config, RecurrentTranslatorConfig):  # each LSTM, GRU or plain layer has at least 2·D²
        n_layers = config.n_encoder_layers // 2 + config.n_decoder_layers
        return n_layers * 2 * config.d_model**2 + config.target_vocabulary * config.d_model
    d, f, n_heads = config.d_model, config.d_ff, config.n_heads
    d_head, n_key_heads = sizes.get("d_head") or d // n_heads, sizes.get("n_key_heads") or n_heads
    n_layers = sum(getattr(config, name, 0) for name in ("n_layers", "n_encoder_layers", "n_decoder_layers"))
    tables = [getattr(config, name, 0) for name in ("vocabulary", "source_vocabulary", "target_vocabulary")]
    rows = max(tables) + getattr(config, "n_classes", 0)
    if getattr(config, "rotary_base", None) is None and not getattr(config, "alibi", False):
        rows += getattr(config, "max_length", 0)
    positions = getattr(config, "positions", None)
    if positions == "learned":
        rows += 2 * (offset + config.n_positions)
    biases = 2 * config.relative_buckets * n_heads if positions == "relative" else 0
    return n_layers * 2 * d * ((n_heads + n_key_heads) * d_head + f) + rows * d + biases


def _described(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind of model that a folder's config.json names, and the fields of its config."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    path = folder / "config.json"
    if not path.is_file():
        began = (folder / "run.json").is_file()  # training writes it before its first step
        hint = "; its training has not saved one yet: add --resume to its train command to continue" if began else ""
        if (folder / "model" / path.name).is_file():  # the demo saves its model beside its pictures
            hint = f"; did you mean {folder / 'model'}?"
        raise FileNotFoundError(f"{folder} holds no model: {path.name} is missing{hint}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}; write the folder again with save')
    name = document.get("model")
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f'{path}: "model" must be one of {", ".join(_KINDS)}, got {name!r}')
    if not isinstance(document.get("config"), dict):
        raise ValueError(f'{path}: "config" must be an object')
    return name, document["config"]
