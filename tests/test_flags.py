"""Every public parameter whose default is True or False refuses a string: in Python `"no"` is true."""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest
import tokenizers
from all_ops import FIRST, OPS, arguments_of
from tiers import in_one

from minitransformer import generation, ideas, layers, models, ops, training, verify
from minitransformer.ideas import published
from minitransformer.ideas.published import tokenizers as published_tokenizers
from minitransformer.ideas.published.families import RECIPES

ROOMS = ("ops", "layers", "models", "verify", "text", "training", "generation", "ideas", "ideas.published")
RESULTS = {"Row", "Case"}  # what the package writes for a caller to read


def everything() -> dict[str, Any]:
    """What the rooms export, with the methods of their classes, and the recipes of published families; by name."""
    rooms = [importlib.import_module(f"minitransformer.{room}") for room in ROOMS]
    things = [getattr(room, name) for room in rooms for name in room.__all__]
    for found in pkgutil.iter_modules(published.__path__):
        inside = vars(importlib.import_module(f"minitransformer.ideas.published.{found.name}")).values()
        things += [x for x in inside if inspect.isclass(x) and x.__name__.endswith("Config")]
    methods = [
        method
        for thing in things
        if inspect.isclass(thing)
        for name, method in inspect.getmembers(thing, inspect.isroutine)
        if name == "__call__" or not name.startswith("_")
    ]
    named = [x for x in (*things, *methods) if hasattr(x, "__qualname__")]
    return {f"{room_of(x)}.{x.__qualname__}": x for x in named}


def room_of(thing: Any) -> str:
    """The folder that defines it; for an idea from before or after the paper, ideas."""
    places = thing.__module__.split(".")
    return "ideas" if {"before", "after"} & {*places} else places[2] if len(places) > 2 else places[-1]


PUBLIC = everything()


def flags(thing: Any) -> list[str]:
    """The names of its parameters whose default is a bool."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if isinstance(p.default, bool)]


RNG = np.random.default_rng(0)
SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 8}
X, WIDE = RNG.normal(size=(2, 4, 6)), RNG.normal(size=(2, 4, 8)).astype(np.float32)
QKV = [RNG.normal(size=(1, 2, 4, 6))] * 3
IDS = np.array([[1, 2, 3]])


def config(kind, *sizes):
    """A call that builds the model of a configuration."""
    own = SIZES | ({"n_states": 2} if hasattr(kind, "n_states") else {})  # heads of a state space
    own = {name: size for name, size in own.items() if hasattr(kind, name)}  # not all have heads
    return lambda **flag: kind(*sizes, **own, **flag).build(RNG)


def needed(kind):
    """How many sizes a configuration needs."""
    return sum(field.default is dataclasses.MISSING for field in dataclasses.fields(kind))


def writer():
    return models.LanguageModelConfig(7, 4, n_layers=1, **SIZES).build(RNG)


def translator():
    return models.TransformerConfig(7, 7, n_encoder_layers=1, n_decoder_layers=1, **SIZES).build(RNG)


def read(prefix):
    prefix.read(IDS)
    return functools.partial(prefix.select, np.array([0]))


def tokenizer():
    return published_tokenizers.PublishedTokenizer(tokenizers.Tokenizer(tokenizers.models.BPE()), {})


# A call of each that lacks nothing but the flag.
CALLS = {
    **{
        f"{room_of(op)}.{name}": lambda op=op, name=name: functools.partial(op, **arguments_of(FIRST[name]))
        for name, op in OPS.items()
        if name in FIRST
    },
    "ops.sinusoidal_positions": lambda: functools.partial(ops.sinusoidal_positions, 2, 4),
    "layers.Decoder": lambda: functools.partial(layers.Decoder, 1, **SIZES),
    "layers.DecoderLayer": lambda: functools.partial(layers.DecoderLayer, 8, 2, 8),
    "layers.Encoder": lambda: functools.partial(layers.Encoder, 1, **SIZES),
    "layers.EncoderLayer": lambda: functools.partial(layers.EncoderLayer, 8, 2, 8),
    "layers.FeedForward": lambda: functools.partial(layers.FeedForward, 2, 3),
    "layers.Linear": lambda: functools.partial(layers.Linear, 2, 3),
    "layers.MultiHeadAttention": lambda: functools.partial(layers.MultiHeadAttention, 4, 2),
    "layers.MultiHeadAttention.__call__": lambda: functools.partial(layers.MultiHeadAttention(8, 2), WIDE),
    "layers.ScaledDotProduct.__call__": lambda: functools.partial(layers.ScaledDotProduct(), *QKV),
    "layers.SinusoidalPositions": lambda: functools.partial(layers.SinusoidalPositions, 4),
    "layers._Stack.of": lambda: functools.partial(layers.Encoder.of, [layers.EncoderLayer(8, 2, 8)]),
    "models.LanguageModel.__call__": lambda: functools.partial(writer(), IDS, cache=layers.Cache(1)),
    "verify.Report.assert_ok": lambda: verify.gradients(ops.relu, X).assert_ok,
    "verify.gradients": lambda: functools.partial(verify.gradients, ops.relu, X),
    "referee.check_gradients": lambda: functools.partial(verify.check_gradients, ops.relu, X),
    "training.AdamW": lambda: functools.partial(training.AdamW, list(layers.Linear(2, 3).parameters()), 0.1),
    "machines.TrainingSettings": lambda: training.TrainingSettings,
    "machines.Workers": lambda: functools.partial(training.Workers, layers.Linear(2, 3)),
    "generation.Continuation.select": lambda: read(generation.Continuation(writer())),
    "generation.Translation.select": lambda: read(generation.Translation(translator(), IDS)),
    "generation.beam_search": lambda: functools.partial(
        generation.beam_search, generation.Translation(translator(), IDS), [[1]], 2
    ),
    "generation.translate": lambda: functools.partial(
        generation.translate, translator(), IDS, None, start=1, end=2, max_length=3
    ),
    "ideas.Biased.__call__": lambda: functools.partial(ideas.Biased(ideas.LinearBias(2)), *QKV),
    "ideas.Convolution.__call__": lambda: functools.partial(ideas.Convolution(8, 8, 3), WIDE),
    "ideas.GatedFeedForward": lambda: functools.partial(ideas.GatedFeedForward, 2, 3),
    "ideas.Grouped.__call__": lambda: functools.partial(ideas.Grouped(layers.ScaledDotProduct()), *QKV),
    "ideas.AlibiLanguageModelConfig": lambda: config(PUBLIC["ideas.AlibiLanguageModelConfig"], 7),
    "ideas.LatentAttention": lambda: functools.partial(ideas.LatentAttention, 8, 2, 4, 2, 4),
    "ideas.LatentAttention.__call__": lambda: functools.partial(ideas.LatentAttention(8, 2, 4, 2, 4, 2), WIDE),
    "ideas.LinearAttention": lambda: functools.partial(ideas.LinearAttention, 8, 2),
    "ideas.Local.__call__": lambda: functools.partial(ideas.Local(2), *QKV),
    "ideas.MixtureOfExperts": lambda: functools.partial(ideas.MixtureOfExperts, 2, 3, 4),
    "ideas.Recurrent": lambda: functools.partial(ideas.Recurrent, 2, 3),
    "ideas.RelativeBias": lambda: functools.partial(ideas.RelativeBias, 2),
    "ideas.Sink.__call__": lambda: functools.partial(ideas.Sink(2).to(dtype="float64"), *QKV),
    "ideas.RotaryPositions": lambda: PUBLIC["ideas.RotaryPositions"],
    "ideas.SoftCapped.__call__": lambda: functools.partial(ideas.SoftCapped(5.0), *QKV),
    "ideas.Window.__call__": lambda: functools.partial(ideas.Window(2), *QKV),
    "ideas.grouped": lambda: functools.partial(ideas.grouped, 4, 2, 1),
    **{
        f"{room_of(kind)}.{kind.__name__}": lambda kind=kind: config(kind, *[7] * needed(kind))
        for kind in (*RECIPES.values(), *(getattr(models, name) for name in models.__all__ if name.endswith("Config")))
    },
    "published.DeepseekV2Config.turn": lambda: RECIPES["deepseek-v2"](7).turn,
    "published.ModernBertConfig": lambda: (
        lambda **flag: published.TextEncoder(PUBLIC["published.ModernBertConfig"](7, **SIZES, **flag))
    ),
    **{
        f"published.{name}": lambda name=name: config(PUBLIC[f"published.{name}"], 7, 7)
        for name in ("T5EncoderConfig", "T5ReaderConfig", "BartReaderConfig")
    },
    "published.TextEncoderConfig": lambda: (
        lambda **flag: published.TextEncoder(published.TextEncoderConfig(7, **SIZES, **flag))
    ),
    "published.TextClassifierConfig": lambda: config(functools.partial(published.TextClassifierConfig, n_classes=3), 7),
    "published.PublishedTokenizer": lambda: functools.partial(
        published_tokenizers.PublishedTokenizer, tokenizers.Tokenizer(tokenizers.models.BPE()), {}
    ),
    "text.Tokenizer.encode": lambda: functools.partial(tokenizer().encode, ""),
}


def all_flags():
    here = {name: flags(thing) for name, thing in PUBLIC.items() if thing.__qualname__ not in RESULTS}
    return [(name, flag) for name, found in here.items() for flag in found if name != "generation.Prefix.select"]


@in_one("name, flag", all_flags())
def test_a_flag_is_true_or_false(name, flag):
    call = CALLS[name]()
    with pytest.raises(TypeError, match=f"{flag} must be True or False, got 'no'"):
        call(**{flag: "no"})
