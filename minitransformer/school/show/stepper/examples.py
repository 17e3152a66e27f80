"""Small examples to step through: numbers that you can follow by hand, and different sizes, so that no two axes look
alike.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .... import ideas
from ....check.verify.catalogue.case import Random, Setup
from ....core import layers, models, ops
from ....core.arrays import rooms
from ....core.arrays.backend import Array, to_device
from ...course import worked_example
from .recording import Recording, step


@dataclass(frozen=True)
class Example:
    """A function with its arguments, made from a seed. upstream: the gradient of its output, unless it is random.
    tokens: the words behind the rows, if these are of a text.
    """

    title: str
    build: Callable[[Random], Setup]
    upstream: Array | None = None
    tokens: tuple[str, ...] = ()

    def record(self, seed: int = 0, device: str = "numpy", **options: Any) -> Recording:
        """Run the example on a device and return the recording of it. options: those of `step`."""
        setup = self.build(np.random.default_rng(seed)).on(device)  # `step` draws the upstream from (seed, 1)
        upstream = None if self.upstream is None else to_device(self.upstream, device)
        given: dict[str, Any] = {"upstream": upstream, "parameters": setup.module, "seed": seed}
        recording = step(setup.f, *setup.inputs, **given, **options, **setup.options)
        return dataclasses.replace(recording, about=self.title, tokens=self.tokens)


def _tenths(rng: Random, *shape: int) -> Array:
    """Numbers of one decimal around zero."""
    return rng.normal(size=shape).round(1)


def _setup(f: Callable[..., Any], *inputs: Any, module: layers.Module | None = None, **options: Any) -> Setup:
    return Setup(f, inputs, options, f if module is None and isinstance(f, layers.Module) else module)


def _filled(module: layers.Module, rng: Random) -> Any:
    """Give every parameter numbers of one decimal, with gains around 1."""
    for name, parameter in module.parameters():
        numbers = (rng.normal(size=parameter.value.shape) / 2.0).round(1)
        parameter.value = to_device(numbers + 1.0 if name.endswith("gamma") else numbers)
        parameter.grad = to_device(np.zeros_like(numbers))
    return module


def op(f: Callable[..., Any], *given: Any, **options: Any) -> Callable[[Random], Setup]:
    """A function of arrays of these shapes, and of what is no shape."""
    return lambda r: _setup(f, *(_tenths(r, *x) if isinstance(x, tuple) else x for x in given), **options)


def _layer(make: Callable[[], layers.Module], *shapes: tuple[int, ...], **options: Any) -> Callable[[Random], Setup]:
    """A layer that reads arrays of these shapes."""
    return lambda r: _setup(_filled(make(), r), *(_tenths(r, *shape) for shape in shapes), **options)


def _worked_example(rng: Random) -> Setup:
    example = worked_example.UNSCALED
    arrays = (example.x, example.w_q, example.w_k, example.w_v)
    return _setup(worked_example.self_attention, *arrays, scale=example.scale)


def _gpt(rng: Random) -> Setup:
    config = models.LanguageModelConfig(
        vocabulary=5, max_length=6, d_model=4, n_heads=2, d_ff=7, n_layers=1, dropout=0.0, attention_dropout=0.0
    )
    model = _filled(models.LanguageModel(config), rng)
    return _setup(model.loss, np.array([[1, 4, 1]]), np.array([[4, 1, 3]]), module=model)


EXAMPLES: dict[str, Example] = {
    "worked-example": Example(
        "Self-attention as introductions compute it, without a scale", _worked_example, worked_example.UNSCALED.doutput
    ),
    "softmax": Example("Softmax of two rows of scores", op(ops.softmax, (2, 3))),
    "attention": Example("Attention of 2 queries to 4 keys, d_k 3, d_v 5", op(ops.attention, (2, 3), (4, 3), (4, 5))),
    "multi-head": Example(
        "Multi-head self-attention: 4 tokens of width 6, 2 heads",
        _layer(lambda: layers.MultiHeadAttention(6, 2), (4, 6)),
    ),
    "layer-norm": Example(
        "LayerNorm of two rows of four",
        lambda r: _setup(ops.layer_norm, _tenths(r, 2, 4), (1.0 + r.normal(size=4) / 3.0).round(1), _tenths(r, 4)),
    ),
    "ffn": Example(
        "The feed-forward network: 2 tokens of width 3, 5 hidden units",
        _layer(lambda: layers.FeedForward(3, 5), (2, 3)),
    ),
    "encoder-layer": Example(
        "An encoder layer: 3 tokens of width 4, 2 heads, 5 hidden units",
        _layer(lambda: layers.EncoderLayer(4, 2, 5), (3, 4)),
    ),
    "decoder-layer": Example(
        "A decoder layer: 2 tokens of width 4 that read 3 of the encoder's, 2 heads, 5 hidden units",
        _layer(lambda: layers.DecoderLayer(4, 2, 5), (2, 4), (3, 4)),
    ),
    "cross-entropy": Example(
        "Cross-entropy of 2 positions over 4 tokens", op(ops.cross_entropy, (2, 4), np.array([2, 0]))
    ),
    "embedding": Example(
        "Looking up 4 ids, one of them twice, in a table of 5 rows", op(ops.embedding, np.array([1, 4, 1, 2]), (5, 3))
    ),
    "rnn": Example(
        "A plain recurrent cell: one step of 2 sequences, 3 units", op(ideas.rnn_cell, (2, 3), (2, 3), (3, 3))
    ),
    "lstm": Example("An LSTM cell: one step of one sequence, 2 units", op(ideas.lstm_cell, (8,), (4,), (2, 8))),
    "gru": Example("A GRU cell: one step of one sequence, 2 units", op(ideas.gru_cell, (6,), (2,), (2, 6), (6,))),
    "convolution": Example(
        "A convolution of 4 tokens of width 2, kernel 3, to width 3", op(ideas.convolution, (4, 2), (3, 2, 3), (3,))
    ),
    "additive-attention": Example(
        "Additive attention of 2 queries to 3 keys", op(ideas.additive_attention, (2, 3), (3, 3), (3, 2), (3,))
    ),
    "local-attention": Example(
        "Restricted attention of radius 2 over 5 tokens, in blocks",
        op(ideas.local_attention, (5, 2), (5, 2), (5, 3), 2),
    ),
    "alibi": Example(
        "Linear biases of 2 heads, for 2 queries at the end of 4 positions",
        lambda r: _setup(ideas.alibi, abs(_tenths(r, 2)), 2, 4),
    ),
    "flash-attention": Example(
        "Flash attention of 3 queries to 4 keys, in tiles of 2",
        op(ideas.flash_attention, (3, 2), (4, 2), (4, 3), tile=2),
    ),
    "sink-attention": Example(
        "Attention of 2 queries to 3 keys, one head, with a sink",
        op(ideas.sink_attention, (1, 2, 2), (1, 3, 2), (1, 3, 4), (1,)),
    ),
    "linear-attention": Example(
        "Linear attention over 4 tokens, as a recurrence", op(ideas.linear_attention, (4, 2), (4, 2), (4, 3), block=1)
    ),
    "latent-attention": Example(
        "Latent attention: 3 tokens of width 4, 2 heads of width 3, latents of 5 numbers",
        _layer(lambda: ideas.LatentAttention(4, 2, 3, 5, 2), (3, 4), causal=True),
    ),
    "grouped-attention": Example(
        "Grouped attention: two query heads share one key and value head. 3 tokens of width 8",
        _layer(lambda: ideas.grouped(8, 4, 2), (3, 8)),
    ),
    "qk-norm": Example(
        "QK norm: queries and keys are normalised, then rotated, before they meet. 3 tokens, 1 head",
        _layer(lambda: layers.MultiHeadAttention(4, 1, turn=ideas.qk_norm(4, rotary_base=10.0)), (3, 4), causal=True),
    ),
    "experts": Example(
        "Mixture of experts: each of 2 tokens goes to 2 of 4 experts, weighed by gates",
        lambda r: _setup(ideas.top_k_gates, (r.permutation(8).reshape(2, 4) - 4) / 5.0),  # equal logits: a jump
    ),
    "gpt": Example(
        "GPT reads “the dog the”, and says after each token how probable each of 5 is as the next. One layer, 2 heads",
        _gpt,
        tokens=("the", "dog", "the"),
    ),
}

# What else the examples are called, in papers and in code.
ALSO_CALLED = {
    "self-attention": "worked-example", "scaled-dot-product-attention": "attention", "cross-attention": "decoder-layer",
    "multi-head-attention": "multi-head", "multihead-attention": "multi-head", "feed-forward": "ffn", "mlp": "ffn",
    "encoder": "encoder-layer", "decoder": "decoder-layer", "transformer": "decoder-layer", "moe": "experts",
    "grouped-query-attention": "grouped-attention", "multi-head-latent-attention": "latent-attention",
}  # fmt: skip

rooms.load("example.py")  # ideas that plug in bring their own
