"""A model as a folder: its sizes in config.json, its parameters in model.safetensors.

config.json        {"format": 1, "model": "Transformer", "recipe": "core.models.transformer.TransformerConfig",
                    "config": {"d_model": 64, ...}}
model.safetensors  every parameter under its dotted name, without code (https://github.com/huggingface/safetensors)
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.files import forms_of, naming, read_arrays, read_json, write, write_arrays
from ..layers.unread import Unread
from .classifier import Classifier, ClassifierConfig
from .earlier import PACKAGE, known, recipe_of
from .encoder_decoder import EncoderDecoder
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import TransformerConfig

Model = EncoderDecoder | LanguageModel | Classifier

_FORMAT = 1
_DTYPES = ("F16", "F32", "F64")
_KINDS: dict[str, type[Any]] = {  # what an older folder means, which names no recipe
    "Transformer": TransformerConfig,
    "LanguageModel": LanguageModelConfig,
    "Classifier": ClassifierConfig,
}


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write the model's config and parameters into a folder. A missing folder is created.

    Raises TypeError for anything but a model of this library.
    """
    name, made_by = type(model).__name__, type(getattr(model, "config", None))
    if not hasattr(made_by, "build"):
        raise TypeError(f"save: the model must be one of {', '.join(_KINDS)}, or made by a recipe; got {name}")
    recipe = f"{made_by.__module__}.{made_by.__qualname__}".removeprefix(f"{PACKAGE}.")
    config = {"format": _FORMAT, "model": name, "recipe": recipe, "config": asdict(model.config)}
    content = json.dumps(config, indent=1)  # first, so that what JSON cannot hold leaves no folder behind
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / "model.safetensors", model.state())
    write(folder / "config.json", content + "\n")


def kind(folder: str | os.PathLike[str]) -> str:
    """The kind of model in a folder: "Transformer", "LanguageModel", ... Raises errors as `load` does."""
    return _described(Path(folder))[0]


def load(folder: str | os.PathLike[str]) -> Model:
    """Read a model that `save` wrote, onto the default device and in the widest dtype of its parameters.

    Raises FileNotFoundError if the folder or one of its files is missing. Raises ValueError if a file cannot be read,
    or if the parameters are not finite floating-point numbers or do not fit the config. The fit is checked before
    memory is taken for them.
    """
    folder = Path(folder)
    _, config_class, config = _described(folder)
    weights_path = folder / "model.safetensors"
    if not weights_path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: {weights_path.name} is missing")
    forms = forms_of(weights_path)
    for parameter, (stored, _) in sorted(forms.items()):
        if stored not in _DTYPES:
            raise ValueError(
                f"{weights_path}: {parameter} has dtype {stored}, but must have {', '.join(_DTYPES)}; convert it"
            )
    with naming(folder / "config.json"):
        model = config_class(**config).build(Unread(at_most=4 * sum(math.prod(shape) for _, shape in forms.values())))
    state = read_arrays(weights_path)
    for parameter, value in state.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"{weights_path}: {parameter} contains NaN or infinity; this model is broken, train it again"
            )
    dtypes = {value.dtype for value in state.values()}
    if all(dtype.kind == "f" for dtype in dtypes):
        model.to(dtype=np.result_type(*dtypes).name)
    with naming(weights_path):
        model.load_state(state)
    return model


def _described(folder: Path) -> tuple[str, type[Any], dict[str, Any]]:
    """The kind of model that a folder's config.json names, the class of its config, and the fields of that."""
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
    if isinstance(document, dict) and "model_type" in document:
        raise ValueError(f"{folder} holds a published model; open it with models.load")
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}; write the folder again with save')
    name, recipe = document.get("model"), document.get("recipe")
    if not isinstance(name, str) or (recipe is None and name not in _KINDS):
        raise ValueError(f'{path}: "model" must be one of {", ".join(_KINDS)}, got {name!r}')
    if not isinstance(document.get("config"), dict):
        raise ValueError(f'{path}: "config" must be an object')
    config_class = _KINDS[name] if recipe is None else recipe_of(path, recipe)
    return name, config_class, known(path, config_class, document["config"])
