"""The recipes of the models that can be trained.

A recipe is a config that builds a model. It suits a task if it needs just the sizes that the task's data determine.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from ...core.models import ClassifierConfig, LanguageModelConfig, TransformerConfig
from ...ideas.after.alibi_models import AlibiLanguageModelConfig, AlibiTransformerConfig
from ...ideas.before.convolutional import ConvolutionalConfig
from ...ideas.before.recurrent_translator import RecurrentTranslatorConfig
from ...ideas.published import families
from ..tasks import Task

RECIPES: dict[str, type[Any]] = {
    "transformer": TransformerConfig,
    "gpt2": LanguageModelConfig,
    "classifier": ClassifierConfig,
    **families.RECIPES,
    "alibi-gpt2": AlibiLanguageModelConfig,
    "alibi-transformer": AlibiTransformerConfig,
    "convolutional": ConvolutionalConfig,
    "recurrent": RecurrentTranslatorConfig,
}


def recipes(task: Task) -> list[str]:
    """The names of the recipes that suit a task."""
    return [name for name, config in RECIPES.items() if _needed(config) == task.from_data]


def _needed(config: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(config) if field.default is MISSING)


def recipe_name(task: Task) -> str:
    """The name of the recipe that a task trains."""
    return next(name for name, config in RECIPES.items() if config is task.config)


def with_recipe(task: Task, name: str) -> Task:
    """The task with another recipe. Raises ValueError for one that is unknown or does not suit it."""
    if name not in recipes(task):
        raise ValueError(f"no recipe of {task.name} is called {name!r}; choose one of {', '.join(recipes(task))}")
    return replace(task, config=RECIPES[name])


def of_earlier_run(task: Task, model: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The recipe and its settings in a run.json that names none. A translator's setting `model` was its kind then."""
    kinds = {"convolution": "convolutional", "lstm": "recurrent", "lstm-attention": "recurrent"}
    kind = model.get("model", "transformer")
    recipe = kinds.get(kind, recipe_name(task))
    known = {field.name for field in fields(RECIPES[recipe])}
    sizes = {name: value for name, value in model.items() if name in known}
    return recipe, sizes | ({"attention": "none"} if kind == "lstm" else {})
