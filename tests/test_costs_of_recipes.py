"""What every recipe and every later part costs: counted from sizes, against what runs, and what its pullback keeps."""

import dataclasses
import fnmatch

import numpy as np
import pytest
from test_info import CONFIGS, real

from minitransformer import ideas, saved
from minitransformer.core.arrays.backend import to_device
from minitransformer.core.arrays.strict import StrictArray
from minitransformer.ideas.after.alibi_models import AlibiLanguageModelConfig, AlibiTransformerConfig
from minitransformer.ideas.after.clamped_experts import ClampedExperts
from minitransformer.ideas.after.routing import SharedExperts, SigmoidRouting
from minitransformer.ideas.after.value_embeddings.model import ValueLanguageModelConfig
from minitransformer.ideas.before.convolutional import ConvolutionalConfig
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslatorConfig
from minitransformer.ideas.published.bart import BartConfig
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.ideas.published.t5 import T5Config
from minitransformer.ideas.published.text_encoder import TextClassifierConfig, TextEncoderConfig
from minitransformer.layers import MultiHeadAttention
from minitransformer.models import Classifier, EncoderDecoder
from minitransformer.run.cost import describe

B, T = 3, 8
SIZES = {"d_model": 12, "n_heads": 6, "d_ff": 20}
SHARED = {"max_length": 16, "n_layers": 2, "n_key_heads": 2, "d_head": 4}
SIDES = {"n_encoder_layers": 2, "n_decoder_layers": 3}
TEXT = TextEncoderConfig(11, max_length=16, n_layers=2, **SIZES)
ALBERT = TextEncoderConfig(11, max_length=16, n_layers=3, width=6, shared=True, activation="gelu_tanh", **SIZES)
ROBERTA = TextEncoderConfig(11, max_length=16, n_layers=2, types=1, pooler=None, position_offset=2, **SIZES)
DISTILBERT = TextEncoderConfig(11, max_length=16, n_layers=2, types=0, pooler=None, tie_output=False, **SIZES)
RNG = np.random.default_rng


def classifier(config, pooler="tanh", dropout=0.1):
    sizes = dataclasses.asdict(config) | {"pooler": pooler, "dropout": dropout}
    return TextClassifierConfig(**sizes, n_classes=3).build(RNG(0))


RECIPES = {
    **{name: lambda config=config: real(config) for name, config in CONFIGS.items()},
    **{name: lambda name=name: FAMILIES[name].build(*FAMILIES[name].example(), RNG(0)) for name in FAMILIES},
    "mistral, biases": lambda: LlamaConfig(11, **SIZES, **SHARED, window=3, tie_output=True, bias=True).build(RNG(0)),
    "llama, dropout, recomputed": lambda: LlamaConfig(
        11, **SIZES, **SHARED, dropout=0.1, attention_dropout=0.2, recompute=True
    ).build(RNG(0)),
    "t5 1.1": lambda: T5Config(
        11, 11, **SIZES, **SIDES, d_head=3, gated=True, activation="gelu_tanh", tie_output=False, scale_logits=False
    ).build(RNG(0)),
    "pegasus": lambda: BartConfig(11, 11, **SIZES, **SIDES, positions="halves", norm_order="pre").build(RNG(0)),
    "alibi": lambda: AlibiLanguageModelConfig(11, max_length=16, n_layers=2, **SIZES).build(RNG(0)),
    "alibi translator": lambda: AlibiTransformerConfig(11, 11, **SIZES, **SIDES).build(RNG(0)),
    "value embeddings": lambda: ValueLanguageModelConfig(11, max_length=16, n_layers=3, n_channels=5, **SIZES).build(
        RNG(0)
    ),
    "convolutional": lambda: ConvolutionalConfig(11, 11, **SIZES, **SIDES).build(RNG(0)),
    "lstm": lambda: RecurrentTranslatorConfig(11, 11, d_model=12, attention="none").build(RNG(0)),
    "lstm, attention": lambda: RecurrentTranslatorConfig(11, 11, d_model=12).build(RNG(0)),
    "gru, additive": lambda: RecurrentTranslatorConfig(11, 11, 12, cell="gru", attention="additive").build(RNG(0)),
    "rnn": lambda: RecurrentTranslatorConfig(11, 11, d_model=12, cell="rnn", dropout=0.0).build(RNG(0)),
    "bert, classes": lambda: classifier(TEXT),
    "roberta, classes": lambda: classifier(ROBERTA),
    "distilbert, classes": lambda: classifier(DISTILBERT, "relu"),
    "distilbert, classes, no dropout": lambda: classifier(DISTILBERT, "relu", 0.0),
    "bert, classes, no dropout": lambda: classifier(TEXT, dropout=0.0),
    "bert, classes of the mean": lambda: classifier(TEXT, None),
}
PARTS = {
    "local": lambda: MultiHeadAttention(12, 3, rng=RNG(0), mix=ideas.Local(3)),
    "local, dropout": lambda: MultiHeadAttention(12, 3, rng=RNG(0), mix=ideas.Local(2, dropout=0.1)),
    "window around a sink": lambda: MultiHeadAttention(12, 3, rng=RNG(0), mix=ideas.Window(3, ideas.Sink(3))),
    "capped, normed queries and keys": lambda: ideas.grouped(
        12, 6, 2, 4, rng=RNG(0), mix=ideas.SoftCapped(5.0, dropout=0.1), turn=ideas.qk_norm(4, rotary_base=100.0)
    ),
    "linear": lambda: ideas.LinearAttention(12, 3, rng=RNG(0), block=3),
    "linear, one block": lambda: ideas.LinearAttention(12, 3, rng=RNG(0)),
    "latent": lambda: ideas.LatentAttention(12, 3, d_head=4, d_latent=5, d_rotary=2, rng=RNG(0)),
    "latent, narrow queries": lambda: ideas.LatentAttention(
        12, 3, 4, 5, 2, rng=RNG(0), d_value=3, d_query=7, bias=True
    ),
    "convolution": lambda: ideas.Convolution(12, 12, 3, rng=RNG(0)),
    "experts": lambda: ideas.MixtureOfExperts(12, 20, 4, 2, rng=RNG(0)),
    "experts, not gated": lambda: ideas.MixtureOfExperts(12, 20, 4, 3, "gelu", gated=False, rng=RNG(0)),
    "experts, shared and routed": lambda: SharedExperts(
        ideas.GatedFeedForward(12, 8, bias=False, rng=RNG(0)),
        ideas.MixtureOfExperts(12, 20, 6, rng=RNG(0), route=SigmoidRouting(6, 2, 3, 2)),
    ),
    "clamped experts": lambda: ClampedExperts(12, 20, 4, 2, rng=RNG(0)),
    "gated, gelu": lambda: ideas.GatedFeedForward(12, 20, "gelu", rng=RNG(0)),
    "gated, relu": lambda: ideas.GatedFeedForward(12, 20, "relu", rng=RNG(0)),
    "gated, silu": lambda: ideas.GatedFeedForward(12, 20, rng=RNG(0)),
    **{cell: lambda cell=cell: ideas.Recurrent(12, 10, cell, rng=RNG(0)) for cell in ("rnn", "lstm", "gru")},
    "both ways": lambda: ideas.Bidirectional(12, 10, rng=RNG(0)),
}


def run(model, device="numpy"):
    """The pullback of a model's loss in training, or of a part."""
    model.to(device)
    rng = RNG(1)

    def ids(size, *shape):
        return to_device(rng.integers(1, size, size=shape), device)

    if not hasattr(model, "costs"):
        x = to_device(rng.normal(size=(B, T, 12)).astype(np.float32), device)
        takes_rng = isinstance(model, MultiHeadAttention)
        return model(x, rng=rng)[1] if takes_rng else model(x)[1]
    n = 3 if isinstance(model, EncoderDecoder) else 2
    inputs = [ids(7, B, T) for _ in range(n)]
    if isinstance(model, Classifier):
        inputs[1] = ids(3, B)
    return model.loss(*inputs, rng=rng)[1]


def counted(model):
    if hasattr(model, "costs"):
        info = describe(model, B, T)
        return info.flops, sum(part.kept for part in info.parts)
    cost = model.cost(B, T)
    return cost.flops, cost.kept


each = pytest.mark.parametrize("make", [*RECIPES.values(), *PARTS.values()], ids=[*RECIPES, *PARTS])


@pytest.mark.parametrize("make", RECIPES.values(), ids=RECIPES)
def test_every_parameter_is_counted_once(make) -> None:
    model = make()
    info, sizes = describe(model, B, T), {name: p.value.size for name, p in model.parameters()}
    assert info.parameters == sum(sizes.values())
    for part in info.parts if getattr(model, "config", None) in CONFIGS.values() else ():
        assert part.parameters == sum(sizes[name] for name in fnmatch.filter(sizes, f"{part.name}.*")), part.name
    if hasattr(model.config, "build"):
        assert describe(model.config, B, T).as_dict() == info.as_dict()
    assert str(info.parameters) in str(info).replace(",", "")


@pytest.mark.few(22)
@each
def test_flops_are_those_of_the_products_that_run(make, monkeypatch) -> None:
    found = []
    product = StrictArray.__matmul__

    def counting(a, b):
        c = product(a, b)
        found.append(2 * c.size * a.shape[-1])
        return c

    monkeypatch.setattr(StrictArray, "__matmul__", counting)
    model = make()
    pullback = run(model, "strict")
    assert counted(model)[0] == sum(found) > 0
    if getattr(model, "config", None) in CONFIGS.values():
        pullback()
        assert sum(found) == describe(model, B, T).training_flops


@pytest.mark.few(22)
@each
def test_kept_numbers_are_those_that_the_pullback_holds(make) -> None:
    """Exactly, but for lone numbers and the sines and cosines of a rotation, (T, 2) or (T, 1) for all sequences."""
    model = make()
    left_out = {(), (T, 1), (T, 2)}
    rows = [row for row in saved(run(model)).rows if not row.parameter and row.shape not in left_out]
    held = sum(row.nbytes for row in rows if row.dtype.startswith("float"))
    assert 4 * counted(model)[1] == held
    if getattr(model, "config", None) in CONFIGS.values():
        assert describe(model, B, T).memory["activations"] == held
        others = sum(row.nbytes for row in rows if not row.dtype.startswith("float"))
        assert others <= B * T * (64 + 4 * 20)  # ids, masks, and ReLU's boolean for each unit of at most four layers
