"""A model as a folder: its sizes, its parameters, and what belongs to it.

config.json        {"format": 1, "model": "Transformer", "recipe": "core.models.transformer.TransformerConfig",
                    "config": {"d_model": 64, ...}}
model.safetensors  every parameter under its dotted name, without code (https://github.com/huggingface/safetensors)
tokenizer.json     its tokenizer; or source_tokenizer.json and target_tokenizer.json
labels.json        of a classifier: the names of its classes
"""

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.files import forms_of, naming, read_arrays, read_json, write, write_arrays
from ..layers.module import Module
from ..layers.unread import Unread
from ..text.tokenizer import Tokenizer, Tokenizers, read_tokenizer
from .classifier import Classifier, ClassifierConfig
from .earlier import PACKAGE, known, recipe_of
from .encoder_decoder import EncoderDecoder
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import TransformerConfig

Model = EncoderDecoder | LanguageModel | Classifier

_FORMAT = 1
_DTYPES = ("F16", "F32", "F64")
_LABELS = "labels.json"
_TOKENIZERS = {1: ("tokenizer.json",), 2: ("source_tokenizer.json", "target_tokenizer.json")}
_KINDS: dict[str, type[Any]] = {  # what an older folder means, which names no recipe
    "Transformer": TransformerConfig,
    "LanguageModel": LanguageModelConfig,
    "Classifier": ClassifierConfig,
}


def save(
    model: Model, folder: str | os.PathLike[str], tokenizer: Tokenizers = None, labels: Sequence[str] = ()
) -> None:
    """Write a model into a folder, which is created if necessary.

    tokenizer: the model's, or those of source and target. labels: of a classifier. Both may also be in the folder
    already. Raises TypeError for anything but a model of this library, and ValueError for a tokenizer or labels that do
    not fit it, and for a published tokenizer, which `save_pretrained` writes.
    """
    name, made_by = type(model).__name__, type(getattr(model, "config", None))
    if not hasattr(made_by, "parts") and not hasattr(made_by, "build"):
        raise TypeError(f"save: the model must be one of {', '.join(_KINDS)}, or made by a recipe; got {name}")
    recipe = f"{made_by.__module__}.{made_by.__qualname__}".removeprefix(f"{PACKAGE}.")
    config = {"format": _FORMAT, "model": name, "recipe": recipe, "config": asdict(model.config)}
    content = json.dumps(config, indent=1)  # first, so that what JSON cannot hold leaves no folder behind
    folder, given = Path(folder), fitting("save", model, tokenizer, labels)
    if any(each.kind == "published" for each in given):
        raise ValueError("save: a published tokenizer would lose its special tokens; write both with save_pretrained")
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizers(folder, given, labels)
    write_arrays(folder / "model.safetensors", model.state())
    write(folder / "config.json", content + "\n")


def save_tokenizers(folder: Path, given: Sequence[Tokenizer], labels: Sequence[str] = ()) -> None:
    """Write what belongs to a model into its folder. Tokenizers of an earlier model go."""
    for name, each in zip(_TOKENIZERS.get(len(given), ()), given, strict=True):
        each.save(folder / name)
    for name in _TOKENIZERS.get(3 - len(given), ()):
        (folder / name).unlink(missing_ok=True)
    if labels:
        write(folder / _LABELS, json.dumps(labels, ensure_ascii=False) + "\n")


def tokenizers(path: Path) -> tuple[Tokenizer, ...]:
    """The tokenizers of a folder, or the one in a file. Raises the errors of `read_tokenizer`."""
    if path.is_file():
        return (read_tokenizer(path),)
    names = next((names for names in _TOKENIZERS.values() if (path / names[0]).is_file()), _TOKENIZERS[1])
    return tuple(read_tokenizer(path / name) for name in names)


def labels(folder: Path) -> tuple[str, ...]:
    """The labels of a classifier. Raises FileNotFoundError or ValueError."""
    path = folder / _LABELS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {_LABELS}")
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        raise ValueError(f"{path} must be a list of labels, each a text")
    return tuple(found)


def vocabularies(model: Any) -> tuple[int, ...]:
    """How many tokens a model knows; of an encoder-decoder, in the source and in the target."""
    sizes = ("source_vocabulary", "target_vocabulary") if isinstance(model, EncoderDecoder) else ("vocabulary",)
    return tuple(getattr(model.config, size) for size in sizes)


def fitting(
    where: str, model: Any, tokenizer: Tokenizers, labels: Sequence[str] = (), exactly: bool = True
) -> tuple[Tokenizer, ...]:
    """All tokenizers. They and the labels must fit the model; exactly: none has fewer tokens than the model knows."""
    given = (tokenizer,) if isinstance(tokenizer, Tokenizer) else tuple(tokenizer or ())
    sizes = vocabularies(model) if given else ()
    if len(given) > len(sizes):
        raise ValueError(f"{where}: expected at most {len(sizes)} tokenizers for this model, got {len(given)}")
    for each, size in zip((*given[:1], *given[-1:]), sizes, strict=False):
        if len(each) > size or (exactly and len(each) < size):
            raise ValueError(f"{where}: the tokenizer has {len(each)} tokens, but the model {size}")
    if labels and len(labels) != (classes := getattr(model.config, "n_classes", 0)):
        raise ValueError(f"{where}: there are {len(labels)} labels, but the model has {classes} classes")
    return given


def load(folder: Path) -> Model:
    """Read a model that `save` wrote, onto the default device and in the widest dtype of its parameters.

    Raises FileNotFoundError if the folder or one of its files is missing. Raises ValueError if a file cannot be read,
    or if the parameters are not finite floating-point numbers or do not fit the config. The fit is checked before
    memory is taken for them.
    """
    make, config_class, config = _described(folder)
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
        for name, n in config.items():
            if name.endswith("layers") and isinstance(n, int) and n > len(forms):
                raise ValueError(f"{name} is {n}, more than the {len(forms)} arrays of {weights_path.name}")
        sizes = Unread(at_most=4 * sum(math.prod(shape) for _, shape in forms.values()))
        model = make(config_class(**config), sizes)
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


def _described(folder: Path) -> tuple[Callable[..., Any], type[Any], dict[str, Any]]:
    """What a folder's config.json names: what makes a model of a config, the class of the config, and its fields."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; give the folder of the model")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}")
    path = folder / "config.json"
    if not path.is_file():
        began = (folder / "run.json").is_file()  # training writes it before its first step
        hint = "; its training has not saved one yet: add --resume to its train command to continue" if began else ""
        if path.is_symlink():
            hint = ", or a link that leads nowhere"
        if (folder / "model" / path.name).is_file():  # the demo saves its model beside its pictures
            hint = f"; did you mean {folder / 'model'}?"
        raise FileNotFoundError(f"{folder} holds no model: {path.name} is missing{hint}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f'{path} must be an object with "format": {_FORMAT}; write the folder again with save')
    name, recipe = document.get("model"), document.get("recipe")
    if not isinstance(name, str) or (recipe is None and name not in _KINDS):
        raise ValueError(f'{path}: "model" must be one of {", ".join(_KINDS)}, got {name!r}')
    if not isinstance(document.get("config"), dict):
        raise ValueError(f'{path}: "config" must be an object')
    config_class = _KINDS[name] if recipe is None else recipe_of(path, recipe)
    return _maker(path, config_class, name), config_class, known(path, config_class, document["config"])


def _maker(path: Path, config_class: type[Any], name: str) -> Callable[..., Any]:
    """A config builds its model; where several kinds of models have the config, the class beside it does."""
    if hasattr(config_class, "build"):
        return config_class.build
    found = getattr(sys.modules[config_class.__module__], name, None)
    if not isinstance(found, type) or not issubclass(found, Module):
        raise ValueError(f'{path}: "model" names {name[:60]!r}, which {config_class.__name__} does not make')
    return found
