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
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as bytes_of

from ..files import write
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
    kind = type(model).__name__
    if type(model) is not _KINDS.get(kind, (None,))[0]:
        raise TypeError(f"save: the model must be one of {', '.join(_KINDS)}, got {kind}")
    config = {"format": _FORMAT, "model": kind, "config": dataclasses.asdict(model.config)}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: np.ascontiguousarray(value) for name, value in model.state().items()}
    write(folder / "model.safetensors", bytes_of(state))
    write(folder / "config.json", json.dumps(config, indent=1) + "\n")


def load(folder: str | os.PathLike[str]) -> Model:
    """Read a model that `save` wrote, onto the default device and in the dtype it was saved in.

    Raises FileNotFoundError where the folder or one of its files is missing, and ValueError where a file cannot be read
    or the parameters do not fit the config.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    config_path, weights_path = folder / "config.json", folder / "model.safetensors"
    for path in (config_path, weights_path):
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no model: {path.name} is missing")
    model = _untrained(config_path)
    try:
        state = arrays_of(weights_path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{weights_path} cannot be read as safetensors: {error}") from error
    dtypes = {value.dtype for value in state.values()}
    if len(dtypes) == 1 and (dtype := dtypes.pop()).kind == "f":
        model.to(dtype=dtype.name)
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{weights_path}: {error}") from error
    return model


def _untrained(path: Path) -> Model:
    """The model that a config.json describes, with whatever parameters it starts from."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}; write the folder anew with save')
    kind = document.get("model")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f'{path}: "model" must be one of {", ".join(_KINDS)}, got {kind!r}')
    if not isinstance(document.get("config"), dict):
        raise ValueError(f'{path}: "config" must be an object')
    model_class, config_class = _KINDS[kind]
    try:
        return model_class(config_class(**document["config"]), np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
