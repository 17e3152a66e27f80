"""At least one case for every model: its loss as a function of ids, so that every parameter has a gradient to check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import models
from .case import Random, Setup, call, case, frozen, ordinary

_WANTED = np.array([[5, 5, 2, 3], [4, 3, 0, 0]])
_enter = partial(case, "model")
_SMALL: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6}


def _translator(make: Callable[[], models.EncoderDecoder], **options: Any) -> Callable[[Random], Setup]:
    """Two sentences of each language, the second of them padded."""

    def build(r: Random) -> Setup:
        model = ordinary(make(), r)
        source, target = np.array([[1, 3, 1], [2, 6, 0]]), np.array([[1, 5, 5, 2], [1, 4, 0, 0]])
        padding = {"source_mask": source != 0, "target_mask": target != 0, "ignore_index": 0}
        return call(r, model.loss, source, target, _WANTED, module=model, **options, **padding, rng=frozen)

    return build


def _transformer(target_vocabulary: int = 7, **options: Any) -> Callable[[Random], Setup]:
    sizes = _SMALL | {"n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.2} | options
    return _translator(
        lambda: models.Transformer(models.TransformerConfig(7, target_vocabulary, **sizes)), label_smoothing=0.1
    )


def _recurrent_translator(**options: Any) -> Callable[[Random], Setup]:
    sizes = {"d_model": 4, "n_encoder_layers": 1, "dropout": 0.2} | options
    return _translator(lambda: models.RecurrentTranslator(models.RecurrentTranslatorConfig(7, 7, **sizes)))


def _encoder_of_text(make: Callable[[Any], Any], **options: Any) -> Callable[[Random], Setup]:
    """Two texts with tokens of two types. Padding is on the right, or on the left where positions count real tokens."""

    def build(r: Random) -> Setup:
        sizes = _SMALL | {"max_length": 6, "n_layers": 1, "dropout": 0.2}
        config = models.TextEncoderConfig(7, **(sizes | options))
        model = ordinary(make(config), r)
        ids, types = np.array([[1, 5, 5, 2], [1, 4, 0, 0]]), np.array([[0, 0, 1, 1], [0, 1, 0, 0]])
        if config.count_real:
            ids = np.array([[1, 5, 5, 2], [0, 0, 1, 4]])
        texts = {"mask": ids != 0, "types": types if config.types else None}
        if isinstance(model, models.TextEncoder):
            return call(r, model, ids, **texts, rng=frozen)
        wanted = np.array([2, 0]) if isinstance(model, models.TextClassifier) else np.array([[-100, 3, 5, 2], [6] * 4])
        return call(r, model.loss, ids, wanted, module=model, **texts, rng=frozen)

    return build


def _classifier_of(activation: str) -> Callable[[Any], Any]:
    return lambda config: models.TextClassifier(config, 3, activation)


def _language_model(**options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        config = models.LanguageModelConfig(7, max_length=6, n_layers=2, **_SMALL, **options)
        model = ordinary(models.LanguageModel(config), r)
        return call(r, model.loss, np.array([[1, 5, 5, 2], [1, 4, 0, 1]]), _WANTED, module=model, rng=frozen)

    return build


def _classifier(r: Random) -> Setup:
    model = ordinary(models.Classifier(models.ClassifierConfig(7, 3, n_layers=1, **_SMALL)), r)
    ids = np.array([[1, 5, 5], [2, 4, 0]])
    return call(r, model.loss, ids, np.array([2, 0]), ids != 0, module=model, label_smoothing=0.1, rng=frozen)


_T5: dict[str, Any] = {"scale_logits": True, "scale_embedding": False, "scale_scores": False, "norm_order": "pre"}
_UNTIED: dict[str, Any] = {"target_vocabulary": 8, "share_embeddings": False, "tie_output": False}
_enter("Transformer with one table for source, target and output", _transformer())
_enter("Transformer in pre-norm order, three tables", _transformer(norm_order="pre", activation="gelu", **_UNTIED))
_enter("Transformer checkpointed", _transformer(checkpoint=True, attention_dropout=0.2))
_enter("LanguageModel", _language_model(attention_dropout=0.0))
_enter("LanguageModel in post-norm order, checkpointed", _language_model(norm_order="post", checkpoint=True))
_enter(
    "LanguageModel with shared key heads and rotation",
    _language_model(
        n_key_heads=1,
        rotary_base=50.0,
        window=3,
        norm="rms_norm",
        gated=True,
        bias=False,
        tie_output=False,
        checkpoint=True,
    ),
)
_enter(
    "Transformer with relative positions and scaled logits",
    _transformer(
        positions="relative", relative_buckets=6, norm="rms_norm", bias=False, d_head=3, checkpoint=True, **_T5
    ),
)
_enter("Transformer with linear biases", _transformer(positions="alibi"))
_enter("LanguageModel with linear biases", _language_model(alibi=True))
_enter(
    "Transformer with learned positions and a logit bias",
    _transformer(
        positions="learned", n_positions=5, position_offset=2, embedding_norm=True, logit_bias=True, checkpoint=True
    ),
)
_enter("TextEncoder", _encoder_of_text(models.TextEncoder))
_enter("TextEncoder that counts the real tokens", _encoder_of_text(models.TextEncoder, count_real=True, types=0))
_enter("MaskedLanguageModel", _encoder_of_text(models.MaskedLanguageModel))
_enter(
    "MaskedLanguageModel of one layer used twice",
    _encoder_of_text(models.MaskedLanguageModel, width=3, shared=True, n_layers=2, activation="gelu_tanh"),
)
_enter("TextClassifier", _encoder_of_text(_classifier_of("tanh")))
_enter("TextClassifier without a pooler", _encoder_of_text(_classifier_of("relu"), pooler=False, types=0))
_enter("Classifier", _classifier)


def _small_recurrent_translator(r: Random) -> Setup:
    """Two tokens and plain cells: so few intermediates that each can be checked."""
    config = models.RecurrentTranslatorConfig(5, 5, d_model=2, n_encoder_layers=1, cell="rnn", dropout=0.2)
    model = ordinary(models.RecurrentTranslator(config), r)
    return call(r, model.loss, np.array([[1, 3]]), np.array([[1, 4]]), np.array([[4, 2]]), module=model, rng=frozen)


_enter("RecurrentTranslator", _small_recurrent_translator)
_enter("RecurrentTranslator of LSTM cells", _recurrent_translator(), along_directions=True)
_enter("RecurrentTranslator without attention", _recurrent_translator(attention="none"), along_directions=True)
_enter(
    "RecurrentTranslator with additive attention",
    _recurrent_translator(attention="additive", cell="gru"),
    along_directions=True,
)
_enter("Transformer of convolutions", _transformer(mixing="convolution", kernel=3, norm_order="pre"), True)
