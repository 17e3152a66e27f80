"""A model as a folder: its sizes in config.json, its parameters in model.safetensors.

config.json        {"format": 1, "model": "Transformer", "config": {"d_model": 64, ...}}
model.safetensors  every parameter under its dotted name (https://github.com/huggingface/safetensors): no code in it
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.files import read_arrays, read_json, write, write_arrays
from .classifier import Classifier, ClassifierConfig
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import Transformer, TransformerConfig

Model = Transformer | LanguageModel | Classifier

_FORMAT = 1
_KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "Transformer": (Transformer, TransformerConfig),
    "LanguageModel": (LanguageModel, LanguageModelConfig),
    "Classifier": (Classifier, ClassifierConfig),
}


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write the model's config and parameters into a folder, which is made if it is not there.

    Raises TypeError for anything but a Transformer, LanguageModel or Classifier.
    """
    name = type(model).__name__
    if type(model) is not _KINDS.get(name, (None,))[0]:
        raise TypeError(f"save: the model must be one of {', '.join(_KINDS)}, got {name}")
    config = {"format": _FORMAT, "model": name, "config": dataclasses.asdict(model.config)}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / "model.safetensors", model.state())
    write(folder / "config.json", json.dumps(config, indent=1) + "\n")


def kind(folder: str | os.PathLike[str]) -> str:
    """Which kind of model a folder holds: "Transformer", "LanguageModel" or "Classifier". Raises as `load` does."""
    return _described(Path(folder))[0]


def load(folder: str | os.PathLike[str]) -> Model:
    """Read a model that `save` wrote, onto the default device and in the dtype it was saved in.

    Raises FileNotFoundError where the folder or one of its files is missing, and ValueError where a file cannot be read
    or the parameters do not fit the config.
    """
    folder = Path(folder)
    name, config = _described(folder)
    weights_path = folder / "model.safetensors"
    if not weights_path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: {weights_path.name} is missing")
    model_class, config_class = _KINDS[name]
    try:
        model = model_class(config_class(**config), np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    state = read_arrays(weights_path)
    dtypes = {value.dtype for value in state.values()}
    if len(dtypes) == 1 and (dtype := dtypes.pop()).kind == "f":
        model.to(dtype=dtype.name)
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{weights_path}: {error}") from error
    return model


def _described(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind of model that a folder's config.json names, and the fields of its config."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: {path.name} is missing")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}; write the folder anew with save')
    name = document.get("model")
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f'{path}: "model" must be one of {", ".join(_KINDS)}, got {name!r}')
    if not isinstance(document.get("config"), dict):
        raise ValueError(f'{path}: "config" must be an object')
    return name, document["config"]
