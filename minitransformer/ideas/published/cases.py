"""The cases of published models for `minitransformer check`: each recipe with every option of its family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from ...check.verify.catalogue.caches import IDS, REAL, each_alone, padded, small, with_cache
from ...check.verify.catalogue.case import Random, Setup, call, case, frozen, layer, ordinary
from ...check.verify.catalogue.models import SMALL, language_model, transformer
from ...check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ...core import models
from ...core.arrays.backend import Array, Pullback
from ...core.layers import Module, Parameter
from .bart import BartConfig
from .families import FAMILIES, RECIPES
from .family import CLASSES
from .fields import Fields
from .gpt_neox import GptNeoxConfig
from .heads import ANSWERS, REPLACED, TOKENS, HeadConfig
from .image_text import ImageTextConfig
from .images import ImageEncoderConfig
from .llama import LlamaConfig
from .nanochat import BackwardPositions
from .position_tables import HalvesPositions, OffsetPositions
from .speech import SpeechConfig
from .t5 import T5Config
from .text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig

layer("OffsetPositions", lambda: OffsetPositions(5, 3, 2), (2, 4, 3), start=1)
_AT = np.array([[0, 0, 1], [2, 0, 4]])
layer("OffsetPositions of each sequence", lambda: OffsetPositions(5, 3, 2), (2, 3, 3), positions=_AT)
layer("HalvesPositions", lambda: HalvesPositions(4), (2, 3, 4), start=2)
layer_of_every_rank("OffsetPositions", lambda: OffsetPositions(5, 4, 2), (..., 3, 4))
layer("BackwardPositions", lambda: BackwardPositions(50.0), (2, 3, 5, 4), start=2)
layer_of_every_rank("BackwardPositions", lambda: BackwardPositions(50.0), (..., 3, 4))
layer_of_every_rank("HalvesPositions", lambda: HalvesPositions(4), (..., 3, 4))


_enter = partial(case, "model")


def _encoder_of_text(make: Callable[[Any], Any], **options: Any) -> Callable[[Random], Setup]:
    """Two texts with tokens of two types. Padding is on the right; where positions count real tokens, on the left."""

    def build(r: Random) -> Setup:
        sizes = SMALL | {"max_length": 6, "n_layers": 1, "dropout": 0.2}
        config = (TextClassifierConfig if make is models.Classifier else TextEncoderConfig)(7, **(sizes | options))
        model = ordinary(make(config), r)
        ids, types = np.array([[1, 5, 5, 2], [1, 4, 0, 0]]), np.array([[0, 0, 1, 1], [0, 1, 0, 0]])
        if config.count_real:
            ids = np.array([[1, 5, 5, 2], [0, 0, 1, 4]])
        texts = {"mask": ids != 0, "types": types if config.types else None}
        if isinstance(model, TextEncoder):
            return call(r, model, ids, **texts, rng=frozen)
        wanted = np.array([2, 0]) if make is models.Classifier else np.array([[-100, 3, 5, 2], [6] * 4])
        return call(r, model.loss, ids, wanted, module=model, **texts, rng=frozen)

    return build


def _made_of(x: Any) -> Any:
    """What a part is made of, apart from its numbers."""
    if isinstance(x, Module):
        return type(x), [(name, _made_of(each)) for name, each in vars(x).items()]
    return x.value.shape if isinstance(x, Parameter) else [*map(_made_of, x)] if isinstance(x, list) else repr(x)


def _decoder(config: Any) -> Callable[..., Any]:
    """Smaller sizes of a family's small model; where queries share heads of keys, all share one.

    Of layers that are made of the same, one shows all that two do.
    """
    width = config.d_head if getattr(config, "scaled_angles", None) else 2  # LongRoPE has a factor for each pair
    shared = {"n_key_heads": 1, "d_head": width} if isinstance(config, LlamaConfig) else {}
    heads = {"d_model": 8, "d_rotary": 2} if isinstance(config, GptNeoxConfig) else shared  # half of a head turns
    # Of memories: with 8, a draw has a vector near 0 before a norm, and large gradients.
    memories = {"d_key": 4} if hasattr(config, "d_key") else {}
    known = {field.name for field in fields(config)}

    def smaller(n: int, **sizes: Any) -> Any:
        wanted = {"vocabulary": n, **sizes, **heads, **memories}
        made = replace(config, **{name: size for name, size in wanted.items() if name in known})
        first, *others = map(_made_of, models.LanguageModel(made).stack.layers)
        return made if any(each != first for each in others) else replace(made, n_layers=1)

    return smaller


for _name, _recipe in RECIPES.items():
    if "max_length" in (field.name for field in fields(_recipe)):  # of a decoder alone
        _small = _decoder(FAMILIES[_name.replace("-", "_")].example()[0])
        _enter(f"LanguageModel as {_name} has it", language_model(_small))
        _enter(f"LanguageModel as {_name} has it, with a cache", with_cache(small(_small)))
        _enter(f"LanguageModel as {_name} has it, padded on the left", padded(small(_small)))
_enter(
    "Transformer with relative positions and scaled logits", transformer(T5Config, buckets=6, d_head=3, recompute=True)
)
_enter(
    "Transformer with learned positions and a logit bias",
    transformer(BartConfig, n_positions=5, position_offset=2, embedding_norm=True, logit_bias=True, recompute=True),
)
_enter("TextEncoder", _encoder_of_text(TextEncoder))


def _read_and_pooled(r: Random) -> Setup:
    model = ordinary(TextEncoder(TextEncoderConfig(7, dropout=0.0, max_length=6, n_layers=1, **SMALL)), r)
    return call(r, model.with_pooled, np.array([[1, 5, 5, 2], [1, 4, 0, 0]]), module=model)


_enter("TextEncoder and its pool", _read_and_pooled)
_enter("TextEncoder that counts the real tokens", _encoder_of_text(TextEncoder, count_real=True, types=0))
_enter("MaskedLanguageModel", _encoder_of_text(MaskedLanguageModel))
_enter(
    "MaskedLanguageModel of one layer used twice",
    _encoder_of_text(MaskedLanguageModel, width=3, shared=True, n_layers=2, activation="gelu_tanh"),
)


def _within_windows(r: Random) -> Setup:
    """The masked-language model of a family with windows, on a text with padding on the right."""
    model = ordinary(FAMILIES["modernbert"].build(*FAMILIES["modernbert"].example(), r), r)
    ids, wanted = np.array([[1, 5, 5, 2, 6], [1, 4, 0, 0, 0]]), np.array([[-100, 3, 5, 2, 1], [6, 6, -100, 2, 3]])
    return call(r, model.loss, ids, wanted, ids != 0, module=model)


_enter("MaskedLanguageModel as modernbert has it, within windows", _within_windows)


def _with_head(what: str, name: str, head: str, **changes: Any) -> None:
    """A head on one layer of a family's small model, on two texts, one of them padded on the left."""

    def build(r: Random) -> Setup:
        body = FAMILIES[name].ours(Fields(FAMILIES[name].small), head, {})
        known = {field.name for field in fields(body)} & {"n_layers", "n_encoder_layers", "n_decoder_layers"}
        body = replace(body, **dict.fromkeys(known, 1), **changes)
        model = ordinary(HeadConfig.of(body, head, {ANSWERS: 2, REPLACED: 1}.get(head, 3)).build(r), r)
        ids, wanted = np.array([[1, 5, 5, 2], [0, 0, 4, 1]]), np.array([[-100, 1, 0, 1], [-100, -100, 0, 1]])
        wanted = {ANSWERS: np.array([[1, 2], [2, -100]]), CLASSES: np.array([2, 0])}.get(head, wanted)
        return call(r, model.loss, ids, wanted, module=model, mask=ids != 0)

    _enter(what, build)


_with_head("TokenClassifier", "bert", TOKENS)
_with_head("TokenClassifier of a decoder", "gpt2", TOKENS)
_with_head("TokenClassifier of T5's encoder", "t5", TOKENS)
_with_head("AnswerFinder", "llama", ANSWERS)
_with_head("AnswerFinder of both sides", "t5", ANSWERS)
_with_head("Classifier of both sides", "mbart", CLASSES, end=5)
_with_head("AnswerFinder with a map before its head", "modernbert", ANSWERS)
_with_head("ReplacedTokenFinder", "electra", REPLACED)
_with_head("Classifier by the last real token", "gpt2", CLASSES)
_with_head("Classifier of the mean, with a map before its head", "modernbert", CLASSES, pooling="mean")
_with_head("Classifier by the first token, with a map before its head", "modernbert", CLASSES)
_enter("Classifier by the first token", _encoder_of_text(models.Classifier, n_classes=3))
_enter(
    "Classifier by the first token, with ReLU", _encoder_of_text(models.Classifier, n_classes=3, pooler="relu", types=0)
)
_enter("Classifier by the first token, with GELU", _encoder_of_text(models.Classifier, n_classes=3, pooler="gelu"))


def _text_encoder(r: Random) -> Setup:
    """With a mask, positions count the real tokens; without one they count from 0."""
    sizes: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6, "max_length": 6, "n_layers": 1, "types": 0}
    config = TextEncoderConfig(7, dropout=0.0, attention_dropout=0.0, count_real=True, position_offset=9, **sizes)
    model = ordinary(TextEncoder(config), r)

    def alone(ids: Array, mask: Array) -> Array:
        return each_alone(model, ids)

    return Setup(model, (IDS,), {"mask": REAL}, model, alone, False)


_enter("TextEncoder padded on the left", _text_encoder)


_IMAGES = ImageEncoderConfig(4, 7, 2, 3, 2, d_model=4, n_heads=2, d_ff=6, n_layers=1, dropout=0.2, norm_eps=1e-5)


def _image_encoder(r: Random) -> Setup:
    model: Any = ordinary(_IMAGES.build(), r)
    return call(r, model.with_pooled, (2, 2, 4, 7), module=model)


def _hidden_of_images(r: Random) -> Setup:
    return call(r, ordinary(_IMAGES.build(), r), (2, 2, 4, 7), rng=frozen)


def _image_classifier(r: Random) -> Setup:
    model: Any = ordinary(replace(_IMAGES, n_classes=3, bias=False).build(), r)
    return call(r, model.loss, (2, 2, 4, 7), np.array([2, 0]), module=model, rng=frozen)


def _image_text(r: Random) -> Setup:
    small = ImageTextConfig(7, 5, 2, 4, 2, 6, 1, image_size=4, patch_size=2, channels=2, d_shared=3)
    model = ordinary(replace(small, image_d_model=6, image_n_heads=3, image_d_ff=5, n_image_layers=1).build(), r)
    ids = np.array([[1, 5, 5, 2], [1, 2, 0, 0]])
    return call(r, model.loss, (2, 2, 4, 4), ids, module=model, mask=np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool))


def _speech(r: Random) -> Setup:
    model = ordinary(SpeechConfig(7, 3, 4, 5, 4, 2, 6, 1, 1, 5, 1).build(), r)
    target, wanted = np.array([[1, 5, 5], [1, 4, 0]]), np.array([[5, 5, 2], [4, 2, -100]])

    def written_down(features: Array, target: Array, wanted: Array) -> tuple[Array, Pullback]:
        memory, encode_backward = model.encode(features)
        logits, decode_backward = model.decode(target, memory)
        loss, loss_backward = model.ops.cross_entropy(logits, wanted, -100)
        return loss, lambda dloss=1.0: encode_backward(decode_backward(loss_backward(dloss)))

    return call(r, written_down, (2, 3, 6), target, wanted, module=model)


_enter("ImageEncoder", _image_encoder)
_enter("ImageEncoder without the pool, with dropout", _hidden_of_images)
_enter("ImageClassifier", _image_classifier)
_enter("ImageTextModel", _image_text)
_enter("SpeechModel", _speech)
