"""A family of published models: how to read its config.json, and where its tensors lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..models.language_model import LanguageModel
from ..models.transformer import Transformer
from .fields import Fields
from .names import Layout, layout, lines
from .text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder, TextEncoderConfig
from .weight_files import Numbers

Config: TypeAlias = Any  # a TextEncoderConfig, or one with a recipe: `parts(rng)`
Pretrained = TextEncoder | MaskedLanguageModel | TextClassifier | LanguageModel | Transformer
Stored: TypeAlias = Mapping[str, Numbers]  # the tensors of a file by their names, without the prefix of the body

BODY, MASKED, CLASSES, WORDS = "body", "masked", "classes", "words"


@dataclass(frozen=True)
class Family:
    """One family. model_type: as in config.json. prefix: what precedes the body's names in a model with a head.

    architectures: {their class: BODY, MASKED, CLASSES or WORDS}; a saved model names the first class with its head.
    ours(fields, head, stored) returns our config; theirs(config) returns the fields of config.json. names(config,
    head) returns the tables of names for the body and for the head; see names.py. class_activation: f in the head of a
    classifier.
    """

    model_type: str
    prefix: str
    architectures: Mapping[str, str]
    ours: Callable[[Fields, str, Stored], Config]
    theirs: Callable[[Any], dict[str, Any]]
    names: Callable[[Any, str], tuple[str, str]]
    class_activation: str = "tanh"

    def build(self, config: Config, head: str, n_classes: int, rng: np.random.Generator) -> Pretrained:
        """A model of this config with this head."""
        if not isinstance(config, TextEncoderConfig):
            return config.build(rng)
        if head == MASKED:
            return MaskedLanguageModel(config, rng)
        if head == CLASSES:
            return TextClassifier(config, n_classes, self.class_activation, rng)
        return TextEncoder(config, rng)

    def layout(self, model: Pretrained, head: str, prefix: str = "") -> Layout:
        """Where the parameters of a model lie in a file. prefix: precedes the names of the body there."""
        inner = "" if isinstance(model, TextEncoder | LanguageModel | Transformer) else "encoder."
        body, rest = map(lines, self.names(model.config, head))
        within = [(prefix + theirs, mark, inner + ours) for theirs, mark, ours in body]
        return layout(dict(model.parameters()), [*within, *rest])


def head_of(model: Pretrained) -> str:
    """Which head a model of ours has."""
    kinds: dict[type[Any], str] = {TextEncoder: BODY, MaskedLanguageModel: MASKED, TextClassifier: CLASSES}
    return next((head for kind, head in kinds.items() if isinstance(model, kind)), WORDS)
