"""Recipes by their names in saved folders, and what earlier versions saved: fields that another recipe has now."""

import json
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ... import moved
from ..arrays import rooms

PACKAGE = __name__.split(".")[0]
_RENAMED = {"checkpoint": "recompute"}  # fields that have another name now, in every config


def known(path: Path, config_class: type[Any], config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config under their names of today, without those of an earlier version that changed nothing.

    earlier.json in the rooms around: {config: {field, or field=value: [what changed nothing, which recipe has it now]}}
    Raises ValueError for any other field that the config does not have.
    """
    about = {
        name: entry
        for file in rooms.files("earlier.json")
        for name, entry in json.loads(file.read_text(encoding="utf-8")).get(config_class.__name__, {}).items()
    }
    names = [field.name for field in fields(config_class)]
    config = {_RENAMED.get(name, name): value for name, value in config.items()}
    unknown = {
        name: about.get(f"{name}={value}", about.get(name, (None, None)))[1]
        for name, value in config.items()
        if name not in names and (name not in about or value != about[name][0])
    }
    if unknown:
        raise ValueError(f"{path}: {_refusal(config_class, config, unknown)}")
    return {name: value for name, value in config.items() if name in names}


def _refusal(config_class: type[Any], config: dict[str, Any], unknown: dict[str, str | None]) -> str:
    """What to do about fields that another recipe has, or none. unknown: {field: the recipe}."""
    given = ", ".join(f"{name[:30]}={repr(config[name])[:30]}" for name in list(unknown)[:9])
    recipes = sorted({recipe for recipe in unknown.values() if recipe})
    if None in unknown.values():
        return f"{config_class.__name__} has no {given}; it has {', '.join(f.name for f in fields(config_class))}"
    cause = f"an earlier version saved this model with {given}, which {config_class.__name__} no longer has"
    if all(recipe.startswith("ideas.published.") for recipe in recipes):
        advice = "write the model with save_pretrained of that version, and open that folder here"
    elif len(recipes) == 1:
        rest = set(config) - {field.name for field in fields(recipe_of(Path(), recipes[0]))}
        advice = f'write "recipe": "{recipes[0]}" into the file, and take out of its "config" {", ".join(sorted(rest))}'
    else:
        advice = "no recipe has all of this, so train the model again"
    return f"{cause} (now in {' and '.join(recipes)}); {advice}"


def recipe_of(path: Path, recipe: Any) -> type[Any]:
    """The class of a config by its place in this package. Nothing outside of the package is imported."""
    module, _, name = moved.now(str(recipe)).rpartition(".")
    inside = Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")
    if re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", module) and inside.is_file():
        found = getattr(import_module(f"{PACKAGE}.{module}"), name, None)
        if isinstance(found, type) and is_dataclass(found) and (hasattr(found, "build") or hasattr(found, "parts")):
            return found
    raise ValueError(f'{path}: "recipe" names {str(recipe)[:60]!r}, which this version does not have')
