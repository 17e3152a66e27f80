"""`minitransformer info`: what a model costs in parameters, FLOPs and memory."""

import dataclasses
import json
import typing
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.models import load
from ..ideas.published.families import EVERY
from ..ideas.published.presets import PRESETS
from ..run.cost import describe
from ..run.machines.recipes import RECIPES
from ..run.tasks import TASKS
from ..school.show.boxes_table import markdown
from . import Options, UsageError
from .common import make, unknown


def _name(config: type[Any]) -> str:
    return config.__name__.removesuffix("Config")


# Every recipe by the name of its config.
_MODELS: dict[str, tuple[type[Any], Mapping[str, Any]]] = {_name(config): (config, {}) for config in RECIPES.values()}


def _presets() -> dict[str, tuple[type[Any], Mapping[str, Any]]]:
    """The presets of `train`. If several tasks use a name, the task's name precedes it, as in translate-numbers."""
    found: dict[str, tuple[type[Any], Mapping[str, Any]]] = {}
    names = Counter(name for task in TASKS.values() for name in task.presets)
    for task in TASKS.values():
        for name, preset in task.presets.items():
            sizes = {f.name: preset[f.name] for f in dataclasses.fields(task.config) if f.name in preset}
            if "vocabulary" in preset:  # the tokenizer's; the model has the same, on both sides
                sizes |= {size: preset["vocabulary"] for size in task.from_data if size.endswith("vocabulary")}
            found[name if names[name] == 1 else f"{task.name}-{name}"] = task.config, sizes
    return found


# The values of KIND: a name, its config, and the sizes that differ from the config's defaults.
_KINDS = _MODELS | _presets()
_PUBLISHED = [name for name in PRESETS if name not in _KINDS]


def fields() -> dict[str, tuple[type[Any], str]]:
    """The fields of all configs: the type of each, and its default in every kind that has it."""
    found: dict[str, tuple[type[Any], list[str]]] = {}
    for config in RECIPES.values():
        types = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            default = "needed" if field.default is dataclasses.MISSING else str(field.default)
            found.setdefault(field.name, (_plain(types[field.name]), []))[1].append(f"{_name(config)}: {default}")
    flags = {name: each for name, each in found.items() if typing.get_origin(each[0]) not in (dict, tuple)}
    return {name: (type_, ", ".join(defaults)) for name, (type_, defaults) in flags.items()}


def _plain(kind: Any) -> type[Any]:
    """The type of a field that may also be None."""
    return next((part for part in typing.get_args(kind) if part is not type(None)), kind)


def main(options: Options) -> None:
    if options.kinds:
        presets = ", ".join(name for name in _KINDS if name not in _MODELS)
        print(f"models: {', '.join(_MODELS)}\n\npresets: {presets}\n\npublished: {', '.join(PRESETS)}")
        return
    if options.families:
        width = max(map(len, EVERY)) + 1
        print(*(f"{name:<{width}}{family.adds}" for name, family in EVERY.items()), sep="\n")
        return
    if options.parts:
        print(markdown(), end="")
        return
    changes = {name: value for name, value in vars(options).items() if name in fields()}
    if (options.kind is None) == (options.model is None):
        raise UsageError("info needs exactly one of: a kind of model such as LanguageModel, a preset, a path")
    path = options.model
    if path is None and options.kind not in {**_KINDS, **PRESETS} and Path(options.kind).exists():
        path = Path(options.kind)
    dtype, published = options.dtype, dict[str, Any]()
    if path is not None:
        model: Any = load(path)
        about = _changed(model.config, changes) if changes else model
        dtype = dtype or str(next(model.parameters())[1].value.dtype)
    elif options.kind in PRESETS and not changes:
        published, about = _published(options.kind), PRESETS[options.kind].build()
    else:
        about = _config(options.kind, changes)
    info = make(describe, {"model": about, "batch": options.batch, "length": options.length, "dtype": dtype})
    if options.json:
        print(json.dumps(info.as_dict() | published, indent=1))
    else:
        print(*([_as_text(published), ""] if published else []), info, sep="\n")


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    """The config of a model that exists, with other sizes."""
    if not hasattr(config, "build"):
        raise UsageError(f"the sizes of this model are as published; leave {flag(next(iter(changes)))} out")
    _check_known(type(config), changes)
    return dataclasses.replace(config, **changes)


def _published(name: str) -> dict[str, Any]:
    """What is known of a published model, in the types of JSON."""
    preset = PRESETS[name]
    config: Any = preset.build().config
    fields = dataclasses.asdict(config)
    layers = {f.replace("n_", "").replace("_", " "): fields[f] for f in fields if f.endswith("layers")}
    words = {"source_vocabulary", "vocabulary"} & fields.keys()
    sizes = {"width": config.d_model, "heads": config.n_heads, "feed-forward width": config.d_ff}
    sizes |= {"vocabulary": fields[words.pop()], "parameters": preset.parameters}
    said = {"documents": preset.said, "why they differ": preset.why}
    return {"model": name, "family": preset.family, **layers, **sizes, **said}


def _as_text(published: Mapping[str, Any]) -> str:
    return "\n".join(f"{name:<20}{v:,}" if isinstance(v, int) else f"{name:<20}{v}" for name, v in published.items())


def _config(kind: str, changes: dict[str, Any]) -> Any:
    if kind not in _KINDS:
        if kind in PRESETS:
            raise UsageError(f"the sizes of {kind} are as published; leave {flag(next(iter(changes)))} out")
        raise UsageError(unknown("info", kind, [*_KINDS, *_PUBLISHED]))
    config, sizes = _KINDS[kind]
    _check_known(config, changes)
    sizes = {**sizes, **changes}
    needed = [field.name for field in dataclasses.fields(config) if field.default is dataclasses.MISSING]
    if missing := [flag(name) for name in needed if name not in sizes]:
        raise UsageError(f"info {kind} needs {' and '.join(missing)}")
    return config(**sizes)


def _check_known(config: type[Any], changes: dict[str, Any]) -> None:
    names = {field.name for field in dataclasses.fields(config)}
    for name in changes:
        if name not in names:
            raise UsageError(f"a {_name(config)} has no {flag(name)}")


def flag(field: str) -> str:
    """The flag of a field."""
    return "--" + field.replace("_", "-")
