"""At least one case for every model: its loss as a function of ids, so that every parameter has a gradient to check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....core import models
from .case import Random, Setup, call, case, frozen, ordinary

_WANTED = np.array([[5, 5, 2, 3], [4, 3, 0, 0]])
_enter = partial(case, "model")
SMALL: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6}


def translator(make: Callable[[], models.EncoderDecoder], **options: Any) -> Callable[[Random], Setup]:
    """Two sentences of each language, the second of them padded."""

    def build(r: Random) -> Setup:
        model = ordinary(make(), r)
        source, target = np.array([[1, 3, 1], [2, 6, 0]]), np.array([[1, 5, 5, 2], [1, 4, 0, 0]])
        padding = {"source_mask": source != 0, "target_mask": target != 0, "ignore_index": 0}
        return call(r, model.loss, source, target, _WANTED, module=model, **options, **padding, rng=frozen)

    return build


def transformer(kind: Callable[..., Any] = models.TransformerConfig, target: int = 7, **options: Any) -> Any:
    """The loss of a small Transformer. kind: the class of its config; target: the size of its vocabulary."""
    sizes = SMALL | {"n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.2} | options
    return translator(lambda: models.Transformer(kind(7, target, **sizes)), label_smoothing=0.1)


def language_model(kind: Callable[..., Any] = models.LanguageModelConfig, **options: Any) -> Callable[[Random], Setup]:
    """The loss of a small language model. kind: the class of its config."""

    def build(r: Random) -> Setup:
        config = kind(7, max_length=6, n_layers=2, **SMALL, **options)
        model = ordinary(models.LanguageModel(config), r)
        return call(r, model.loss, np.array([[1, 5, 5, 2], [1, 4, 0, 1]]), _WANTED, module=model, rng=frozen)

    return build


def _classifier(r: Random) -> Setup:
    model = ordinary(models.Classifier(models.ClassifierConfig(7, 3, n_layers=1, **SMALL)), r)
    ids = np.array([[1, 5, 5], [2, 4, 0]])
    return call(r, model.loss, ids, np.array([2, 0]), ids != 0, module=model, label_smoothing=0.1, rng=frozen)


_UNTIED: dict[str, Any] = {"target": 8, "share_embeddings": False, "tie_output": False}
_enter("Transformer with one table for source, target and output", transformer(n_decoder_layers=1))
_enter(
    "Transformer in pre-norm order, three tables",
    transformer(norm_order="pre", activation="gelu", n_decoder_layers=1, **_UNTIED),
)
_enter("Transformer recomputed", transformer(recompute=True, attention_dropout=0.2))
_enter("LanguageModel", language_model(attention_dropout=0.0))
_enter("LanguageModel in post-norm order, recomputed", language_model(norm_order="post", recompute=True))
_enter("Classifier", _classifier)
