"""What a model costs, counted from its sizes alone: parameters, FLOPs and memory, part by part.

Nothing is built and nothing runs, so the model may have any size. For B sequences of T tokens (source and target
alike), D = d_model, F = d_ff, H heads, V tokens in the vocabulary, C classes:

                     parameters                FLOPs forward              numbers kept for backward
    table            V·D                       0                          0
    attention        4·D² + 4·D                8·B·T·D² + 4·B·T²·D        B·T·4·D + w·B·H·T² + its input B·T·D
    feed-forward     2·D·F + F + D             4·B·T·D·F                  a·B·T·F + its input B·T·D
    norm             2·D                       0                          B·T·(D + 1)
    dropout          0                         0                          as many as its input has
    logits           0, or V·D                 2·B·T·D·V                  its input B·T·D
    loss             0                         0                          2·B·T·V
    pooling, head    D·C + C                   2·B·D·C                    B·T + B·D

FLOPs count the matrix products, which take nearly all the time. A multiplication and an addition count as two, so the
product of (m, k) and (k, n) takes 2·m·k·n. Attention has four maps of D to D, 2·B·T·D² each, and two products with the
T × T scores, 2·B·T²·D each. A causal mask saves nothing: the hidden half is computed as well. Each product C = A·B
takes two products in backward, dA = dC·Bᵀ and dB = Aᵀ·dC. So a training step takes three times the forward pass, and
with checkpointing four times in the layers, which run forward once more.

Attention keeps q, k, v, the merged heads, and the weights (w = 1). With dropout w = 3: the weights, the kept weights,
and the factor. A ReLU keeps its output, a = 1; SiLU also the sigmoid and a copy of the output, a = 3; GELU its input,
output, cumulative and density, a = 4. With checkpointing a layer keeps only its input. Ids and masks, a few bytes for
each token, are left out. This is the memory in use between forward and backward. While a pass runs, it needs more for
the arrays it works on. The counts hold for the ops as written in ops/.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..arrays.boundary import check_sizes
from ..layers import SinusoidalPositions
from . import Classifier, ClassifierConfig, LanguageModel, LanguageModelConfig, Transformer, TransformerConfig
from .encoder_decoder import check_shared

Config: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig

_KEPT_BY_ACTIVATION = {"relu": 1, "silu": 3, "gelu": 4, "gelu_tanh": 4}
# Fields of what later models added, and the values besides the default with which the formulas hold.
UNCOUNTED: dict[str, tuple[Any, ...]] = {
    "norm": (),
    "norm_eps": (1e-5, 1e-6, 1e-12),
    "gated": (),
    "n_key_heads": (),
    "d_head": (),
    "qkv_bias": (),
    "rotary_base": (),
    "alibi": (),
    "window": (),
    "final_norm": (),
    "positions": ("halves",),
    "relative_buckets": (),
    "relative_distance": (),
    "n_positions": (),
    "position_offset": (),
    "scale_embedding": (False,),
    "embedding_norm": (),
    "scale_scores": (False,),
    "scale_logits": (False, True),
    "logit_bias": (),
    "mixing": (),
    "kernel": (),
}
_ATTENTION_FLOPS, _FEED_FORWARD_FLOPS = "8·B·T·D² + 4·B·T²·D", "4·B·T·D·F"


@dataclass(frozen=True)
class Part:
    """One part of a model, or all its equal copies together, such as the self-attentions of a stack.

    name: dotted, as in module.parameters(), with * for the number of a layer. output: its shape. parameters, flops (of
    a forward pass) and kept (the numbers that stay in memory for backward) count all copies. formula: for the FLOPs of
    one copy, "" if there are none.
    """

    name: str
    copies: int
    output: tuple[int, ...]
    parameters: int
    flops: int
    formula: str
    kept: int


@dataclass(frozen=True)
class Info:
    """The parts of a model, and their sums for a batch of `batch` sequences of `length` tokens in `dtype`."""

    config: Config
    batch: int
    length: int
    dtype: str
    parts: tuple[Part, ...]

    @property
    def model(self) -> str:
        """The name of the model's class."""
        return type(self.config).__name__.removesuffix("Config")

    @property
    def parameters(self) -> int:
        """The number of learned numbers."""
        return sum(part.parameters for part in self.parts)

    @property
    def flops(self) -> int:
        """FLOPs of a forward pass."""
        return sum(part.flops for part in self.parts)

    @property
    def training_flops(self) -> int:
        """FLOPs of a forward and a backward pass."""
        again = sum(part.flops for part in self.parts if ".layers." in part.name) if self.config.checkpoint else 0
        return 3 * self.flops + again

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of parameters, gradients, the state of Adam or AdamW (two numbers for each parameter), activations."""
        itemsize = np.dtype(self.dtype).itemsize
        parameters = self.parameters * itemsize
        kept = sum(part.kept for part in self.parts) * itemsize
        return {"parameters": parameters, "gradients": parameters, "optimizer": 2 * parameters, "activations": kept}

    def as_dict(self) -> dict[str, Any]:
        """All of this as JSON types."""
        return {
            "model": self.model,
            "config": dataclasses.asdict(self.config),
            "batch": self.batch,
            "length": self.length,
            "dtype": self.dtype,
            "parts": [dataclasses.asdict(part) | {"output": list(part.output)} for part in self.parts],
            "parameters": self.parameters,
            "flops": {"forward": self.flops, "training_step": self.training_flops},
            "memory": self.memory | {"total": sum(self.memory.values())},
        }

    def __str__(self) -> str:
        itemsize = np.dtype(self.dtype).itemsize
        lines = [("part", "output", "parameters", "FLOPs forward", "kept")]
        for part in self.parts:
            name = part.name + (f" × {part.copies}" if part.copies > 1 else "")
            shape = "(" + ", ".join(map(str, part.output)) + ")" if part.output else ""
            lines.append((name, shape, f"{part.parameters:,}", _short(part.flops), _short(part.kept * itemsize, "B")))
        memory = self.memory
        kept = _short(memory["activations"], "B")
        lines.append(("total", "", f"{self.parameters:,}", _short(self.flops), kept))
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        table = [
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        fields = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(self.config).items())
        formulas = {part.name.rpartition(".")[2]: part.formula for part in self.parts if part.formula}
        formula_lines = [f"    {name:<16}{formula}" for name, formula in formulas.items()]
        total = _short(sum(memory.values()), "B")
        return "\n".join(
            [
                *textwrap.wrap(f"{self.model}: {fields}", 100, subsequent_indent="    "),
                f"a batch of {self.batch} × {self.length} tokens in {self.dtype}",
                "",
                *table,
                "",
                f"a training step takes {_short(self.training_flops)} FLOPs, forward and backward",
                f"memory to train with AdamW: {total}, without the temporary arrays of a running operation",
                f"    parameters      {_short(memory['parameters'], 'B')}",
                f"    gradients       {_short(memory['gradients'], 'B')}",
                f"    optimiser       {_short(memory['optimizer'], 'B')}",
                f"    activations     {kept}, kept for backward",
                "FLOPs of the matrix products of one copy; D is d_model, F d_ff, V the vocabulary, C the classes:",
                *formula_lines,
            ]
        )


def describe(config: Config, batch: int = 1, length: int | None = None, dtype: str = "float32") -> Info:
    """Count what the model of a config costs, in training with its dropout, on B = batch sequences of T = length.

    length: 128 by default, or a language model's max_length if that is less. Raises ValueError for a config that the
    model would refuse, and TypeError for anything but a config.
    """
    if type(config) not in _KINDS:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise TypeError(f"describe: config must be one of {known}, got {type(config).__name__}")
    longest = config.max_length if isinstance(config, LanguageModelConfig) else None
    if length is None:
        length = 128 if longest is None else min(128, longest)
    check_sizes("describe", batch=batch, length=length)
    if longest is not None and length > longest:
        raise ValueError(f"describe: length must be at most max_length {longest}, got {length}")
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"describe: dtype must be a floating-point one, such as float32, got {dtype}")
    _check(config)
    parts = tuple(_KINDS[type(config)][1](config, batch, length))
    return Info(config, batch, length, np.dtype(dtype).name, parts)


def _check(config: Config) -> None:
    """Refuse what the model would refuse. Sizes are checked here; a model in miniature checks the rest."""
    where = type(config).__name__
    sizes = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.type == "int" and field.name not in UNCOUNTED
    }
    check_sizes(where, **sizes)
    for field in dataclasses.fields(config):
        if field.name in UNCOUNTED and getattr(config, field.name) not in (field.default, *UNCOUNTED[field.name]):
            raise ValueError(
                f"{where}: the formulas here do not count a model with {field.name} {getattr(config, field.name)!r}; "
                "build it, and add up the sizes of its parameters()"
            )
    if config.d_model % config.n_heads:
        raise ValueError(f"{where}: d_model {config.d_model} cannot be divided into {config.n_heads} equal heads")
    if not isinstance(config, LanguageModelConfig):
        SinusoidalPositions(config.d_model)
    if isinstance(config, TransformerConfig):
        check_shared(where, config)
    miniature = dataclasses.replace(config, **{name: 1 for name in sizes} | {"d_model": 2})  # type: ignore[arg-type]
    _KINDS[type(config)][0](miniature)


def _layers(config: Config, stack: str, copies: int, sublayers: tuple[str, ...], batch: int, length: int) -> list[Part]:
    """The sub-layers of a stack, each with its norm and its dropout, and the final norm of a pre-norm stack."""
    n, d, f = batch * length, config.d_model, config.d_ff
    bias = getattr(config, "bias", True)
    dropped = n * d if config.dropout else 0
    weights = (3 if config.attention_dropout else 1) * batch * config.n_heads * length**2
    active = _KEPT_BY_ACTIVATION[config.activation] * n * f
    around = n * d + n * (d + 1) + dropped  # the input, the norm, the dropout
    parts = []
    for i, name in enumerate(sublayers):
        if name == "feed_forward":
            parameters, flops, formula = 2 * d * f + (f + d) * bias, 4 * n * d * f, _FEED_FORWARD_FLOPS
            kept = active + around
        else:
            parameters, flops = 4 * d * d + 4 * d * bias, 8 * n * d * d + 4 * n * length * d
            formula, kept = _ATTENTION_FLOPS, 4 * n * d + weights + around
        if config.checkpoint:
            kept = n * d if i == 0 else 0
        parts.append(
            Part(
                f"{stack}.layers.*.{name}",
                copies,
                (batch, length, d),
                copies * (parameters + 2 * d),
                copies * flops,
                formula,
                copies * kept,
            )
        )
    if config.norm_order == "pre":
        parts.append(Part(f"{stack}.final_norm", 1, (batch, length, d), 2 * d, 0, "", n * (d + 1)))
    return parts


def _logits(name: str, parameters: int, d: int, vocabulary: int, batch: int, length: int) -> list[Part]:
    """Logits and loss. The loss keeps log p and the logits."""
    n, shape = batch * length, (batch, length, vocabulary)
    return [
        Part(name, 1, shape, parameters, 2 * n * d * vocabulary, "2·B·T·D·V", n * d),
        Part("loss", 1, (), 0, 0, "", 2 * n * vocabulary),
    ]


def _transformer(config: TransformerConfig, batch: int, length: int) -> list[Part]:
    n, d, shape = batch * length, config.d_model, (batch, length, config.d_model)
    dropped = n * d if config.dropout else 0
    source_table = 0 if config.share_embeddings else config.source_vocabulary * d
    target_table = config.target_vocabulary * d
    encoder, decoder = ("self_attention", "feed_forward"), ("self_attention", "cross_attention", "feed_forward")
    return [
        Part("target_tokens", 1, shape, target_table, 0, "", 0),
        Part("embed_source", 1, shape, source_table, 0, "", dropped),
        Part("embed_target", 1, shape, 0, 0, "", dropped),
        *_layers(config, "encoder", config.n_encoder_layers, encoder, batch, length),
        Part("memory", 1, shape, 0, 0, "", n * d),  # which every decoder layer reads
        *_layers(config, "decoder", config.n_decoder_layers, decoder, batch, length),
        *_logits("output", 0 if config.tie_output else target_table, d, config.target_vocabulary, batch, length),
    ]


def _language_model(config: LanguageModelConfig, batch: int, length: int) -> list[Part]:
    n, d, shape = batch * length, config.d_model, (batch, length, config.d_model)
    return [
        Part("tokens", 1, shape, config.vocabulary * d, 0, "", 0),
        Part("embed.positions", 1, shape, config.max_length * d, 0, "", n * d if config.dropout else 0),
        *_layers(config, "stack", config.n_layers, ("self_attention", "feed_forward"), batch, length),
        *_logits("logits", 0 if config.tie_output else config.vocabulary * d, d, config.vocabulary, batch, length),
    ]


def _classifier(config: ClassifierConfig, batch: int, length: int) -> list[Part]:
    n, d, classes = batch * length, config.d_model, config.n_classes
    shape = (batch, length, d)
    return [
        Part("embed.tokens", 1, shape, config.vocabulary * d, 0, "", n * d if config.dropout else 0),
        *_layers(config, "encoder", config.n_layers, ("self_attention", "feed_forward"), batch, length),
        Part("pooling", 1, (batch, d), 0, 0, "", n),
        Part("head", 1, (batch, classes), d * classes + classes, 2 * batch * d * classes, "2·B·D·C", batch * d),
        Part("loss", 1, (), 0, 0, "", 2 * batch * classes),
    ]


# The model that a config is for, and the function that counts its parts.
_KINDS: dict[type[Any], tuple[type[Any], Callable[[Any, int, int], list[Part]]]] = {
    TransformerConfig: (Transformer, _transformer),
    LanguageModelConfig: (LanguageModel, _language_model),
    ClassifierConfig: (Classifier, _classifier),
}


def _short(number: int, unit: str = "") -> str:
    """1234567 as "1.23 M": three digits are enough."""
    for size, prefix in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {prefix}{unit}"
    return f"{number} {unit}".rstrip()
