"""A case, or several, for every model: the loss from ids, so that the gradient of every parameter is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import models
from .case import Random, Setup, call, case, frozen, ordinary

_WANTED = np.array([[5, 5, 2, 3], [4, 3, 0, 0]])
_SMALL: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6}


def _transformer(target_vocabulary: int = 7, **options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        sizes = _SMALL | {"n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.2}
        model = ordinary(models.Transformer(models.TransformerConfig(7, target_vocabulary, **sizes, **options)), r)
        source, target = np.array([[1, 3, 1], [2, 6, 0]]), np.array([[1, 5, 5, 2], [1, 4, 0, 0]])
        padding = {"source_mask": source != 0, "target_mask": target != 0, "ignore_index": 0}
        return call(model.loss, source, target, _WANTED, module=model, label_smoothing=0.1, **padding, **frozen(r))

    return build


def _language_model(**options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        config = models.LanguageModelConfig(7, max_length=6, n_layers=2, **_SMALL, **options)
        model = ordinary(models.LanguageModel(config), r)
        return call(model.loss, np.array([[1, 5, 5, 2], [1, 4, 0, 1]]), _WANTED, module=model, **frozen(r))

    return build


def _classifier(r: Random) -> Setup:
    model = ordinary(models.Classifier(models.ClassifierConfig(7, 3, n_layers=1, **_SMALL)), r)
    ids = np.array([[1, 5, 5], [2, 4, 0]])
    return call(model.loss, ids, np.array([2, 0]), ids != 0, module=model, label_smoothing=0.1, **frozen(r))


_UNTIED: dict[str, Any] = {"target_vocabulary": 8, "share_embeddings": False, "tie_output": False}
case("model", "Transformer with one table for source, target and output", _transformer())
case(
    "model", "Transformer in pre-norm order, three tables", _transformer(norm_order="pre", activation="gelu", **_UNTIED)
)
case("model", "Transformer checkpointed", _transformer(checkpoint=True, attention_dropout=0.2))
case("model", "LanguageModel", _language_model(attention_dropout=0.0))
case("model", "LanguageModel in post-norm order, checkpointed", _language_model(norm_order="post", checkpoint=True))
case("model", "Classifier", _classifier)
