"""PyTorch's counterpart of each of our modules: the same parameters under other names, some stacked or transposed.

PyTorch has no sinusoidal positions, no tied output and no language model of its own, so the three models are put
together here from `torch.nn`, after the papers and not after our code.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from minitransformer import ideas, layers, models
from minitransformer.layers import Module, Parameter


class Pair(NamedTuple):
    """One of our parameters and where PyTorch keeps it: `view` shows that part of `theirs` in our layout."""

    name: str
    ours: Parameter
    theirs: Any
    view: Callable[[Any], Any]


@contextlib.contextmanager
def all_in_float64() -> Iterator[None]:
    """Hugging Face's norms, rotations and softmaxes ask for torch.float32 while they run: let it mean float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def t(array: np.ndarray) -> Any:
    """A copy of the array as a tensor."""
    return torch.from_numpy(np.array(array))


def blocked(mask: np.ndarray | None) -> Any:
    """Our mask, True where one may attend, as PyTorch's, True where one may not."""
    return None if mask is None else t(~mask)


def causal(length: int) -> np.ndarray:
    return np.array([[key <= query for key in range(length)] for query in range(length)])


def share_weights(ours: Module, theirs: Any, rng: np.random.Generator) -> list[Pair]:
    """Draw weights of ordinary size for our module, give PyTorch's the same, and return the pairs of parameters."""
    for name, parameter in ours.parameters():
        shape = parameter.value.shape
        parameter.value = rng.normal(1.0, 0.4, shape) if name.endswith("gamma") else rng.normal(0.0, 0.5, shape)
        parameter.grad = np.zeros(shape)
    return copy_weights(ours, theirs)


def copy_weights(ours: Module, theirs: Any) -> list[Pair]:
    """Give PyTorch's module our weights. Every parameter of either side must have its place on the other."""
    names = {id(parameter): name for name, parameter in ours.parameters()}
    pairs: dict[int, Pair] = {}
    for parameter, tensor, view in _places(ours, theirs):
        pairs.setdefault(id(parameter), Pair(names[id(parameter)], parameter, tensor, view))
    assert pairs.keys() == names.keys(), set(names.values()) - {pair.name for pair in pairs.values()}
    n_theirs = sum(tensor.numel() for tensor in theirs.parameters() if tensor.requires_grad)
    assert n_theirs == sum(parameter.value.size for _, parameter in ours.parameters())
    with torch.no_grad():
        for pair in pairs.values():
            pair.view(pair.theirs).copy_(t(pair.ours.value))
    return list(pairs.values())


def _same(tensor: Any) -> Any:
    return tensor


def _transposed(tensor: Any) -> Any:
    return tensor.T


def _projection(linear: layers.Linear, theirs: Any, place: int) -> Iterator[tuple[Parameter, Any, Callable]]:
    """Query, key or value projection: one of the three blocks of rows that in_proj_weight is stacked from."""
    width = theirs.embed_dim
    rows = slice(place * width, (place + 1) * width)
    yield linear.weight, theirs.in_proj_weight, lambda tensor: tensor[rows].T
    if linear.bias is not None:
        yield linear.bias, theirs.in_proj_bias, lambda tensor: tensor[rows]


def _recurrent(ours: ideas.Recurrent, theirs: Any, way: str) -> Iterator[tuple[Parameter, Any, Callable]]:
    """PyTorch has two biases that are added; ours has one, but for the GRU. The second of theirs is set to 0."""
    yield ours.input.weight, getattr(theirs, f"weight_ih_l0{way}"), _transposed
    yield ours.weight, getattr(theirs, f"weight_hh_l0{way}"), _transposed
    yield ours.input.bias, getattr(theirs, f"bias_ih_l0{way}"), _same
    second = getattr(theirs, f"bias_hh_l0{way}")
    if ours.bias is not None:
        yield ours.bias, second, _same
    else:
        nn.init.zeros_(second)
        second.requires_grad_(False)


def _places(ours: Any, theirs: Any) -> Iterator[tuple[Parameter, Any, Callable]]:
    """Every (our Parameter, PyTorch's tensor, view) of two modules; a shared parameter comes more than once."""
    match ours:
        case layers.Linear():
            yield ours.weight, theirs.weight, _transposed
            if ours.bias is not None:
                yield ours.bias, theirs.bias, _same
        case ideas.Recurrent():
            yield from _recurrent(ours, theirs, "")
        case ideas.Bidirectional():
            yield from _recurrent(ours.onward, theirs, "")
            yield from _recurrent(ours.back, theirs, "_reverse")
        case ideas.Convolution():
            yield ours.weight, theirs.weight, lambda tensor: tensor.permute(2, 1, 0)
            yield ours.bias, theirs.bias, _same
        case ideas.MixtureOfExperts():
            yield ours.router.weight, theirs.gate.weight, _transposed
            inner, n = theirs.experts.gate_up_proj, theirs.experts.intermediate_dim
            for i, expert in enumerate(ours.experts):
                assert expert.gate is not None
                yield expert.gate.weight, inner, lambda tensor, i=i: tensor[i, :n].T
                yield expert.inner.weight, inner, lambda tensor, i=i: tensor[i, n:].T
                yield expert.output.weight, theirs.experts.down_proj, lambda tensor, i=i: tensor[i].T
        case layers.LayerNorm():
            yield ours.gamma, theirs.weight, _same
            yield ours.beta, theirs.bias, _same
        case layers.RMSNorm():
            yield ours.gamma, theirs.weight, _same
        case layers.Embedding() | layers.LearnedPositions():
            yield ours.table, theirs.weight, _same
        case layers.MultiHeadAttention():
            for place, linear in enumerate([ours.query, ours.key, ours.value]):
                yield from _projection(linear, theirs, place)
            yield from _places(ours.output, theirs.out_proj)
        case layers.EncoderLayer() | layers.DecoderLayer():
            sublayers = [(ours.self_attention, theirs.self_attn)]
            if isinstance(ours, layers.DecoderLayer):
                sublayers.append((ours.cross_attention, theirs.multihead_attn))
            for number, (residual, attention) in enumerate(sublayers, start=1):
                yield from _places(residual.sublayer, attention)
                yield from _places(residual.norm, getattr(theirs, f"norm{number}"))
            yield from _places(ours.feed_forward.sublayer.inner, theirs.linear1)
            yield from _places(ours.feed_forward.sublayer.output, theirs.linear2)
            yield from _places(ours.feed_forward.norm, getattr(theirs, f"norm{len(sublayers) + 1}"))
        case layers.Recompute():
            yield from _places(ours.layer, theirs)
        case layers.Encoder() | layers.Decoder():
            for mine, other in zip(ours.layers, theirs.layers, strict=True):
                yield from _places(mine, other)
            if ours.final_norm is not None:
                yield from _places(ours.final_norm, theirs.norm)
        case models.Transformer():
            yield from _places(ours.embed_source.tokens, theirs.source)
            yield from _places(ours.embed_target.tokens, theirs.target)
            yield from _places(ours.output or ours.target_tokens, theirs.output)
            yield from _places(ours.encoder, theirs.encoder)
            yield from _places(ours.decoder, theirs.decoder)
        case models.LanguageModel():
            yield from _places(ours.tokens, theirs.tokens)
            yield from _places(ours.embed.positions, theirs.positions)
            yield from _places(ours.stack, theirs.stack)
        case models.Classifier():
            yield from _places(ours.embed.tokens, theirs.tokens)
            yield from _places(ours.encoder, theirs.encoder)
            yield from _places(ours.head, theirs.head)
        case _:  # a module without a counterpart in one piece: pairs of parts
            for mine, other in zip(ours.parts, theirs, strict=True):
                yield from _places(mine, other)


def encoder_stack(n_layers: int, final_norm: bool, *sizes: int, **options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(*sizes, dropout=0.0, batch_first=True, dtype=torch.float64, **options)
    norm = nn.LayerNorm(sizes[0], dtype=torch.float64) if final_norm else None
    return nn.TransformerEncoder(layer, n_layers, norm, enable_nested_tensor=False)


def decoder_stack(n_layers: int, final_norm: bool, *sizes: int, **options: Any) -> Any:
    layer = nn.TransformerDecoderLayer(*sizes, dropout=0.0, batch_first=True, dtype=torch.float64, **options)
    norm = nn.LayerNorm(sizes[0], dtype=torch.float64) if final_norm else None
    return nn.TransformerDecoder(layer, n_layers, norm)


def _embedding(size: int, width: int) -> Any:
    return nn.Embedding(size, width, dtype=torch.float64)


def _sinusoids(length: int, width: int) -> Any:
    """The formula of section 3.5, entry by entry."""
    table = torch.zeros(length, width, dtype=torch.float64)
    for position in range(length):
        for i in range(width // 2):
            angle = position / 10000 ** (2 * i / width)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


class TorchTransformer(nn.Module):
    """The paper's encoder-decoder. Dropout is left out; layers in pre-norm order end with a norm."""

    def __init__(self, config: models.TransformerConfig) -> None:
        super().__init__()
        self.width = config.d_model
        sizes = (config.d_model, config.n_heads, config.d_ff)
        pre = config.norm_order == "pre"
        options = {"activation": config.activation, "norm_first": pre}
        self.source = _embedding(config.source_vocabulary, self.width)
        self.target = self.source if config.share_embeddings else _embedding(config.target_vocabulary, self.width)
        self.output = self.target if config.tie_output else _embedding(config.target_vocabulary, self.width)
        self.encoder = encoder_stack(config.n_encoder_layers, pre, *sizes, **options)
        self.decoder = decoder_stack(config.n_decoder_layers, pre, *sizes, **options)

    def embed(self, table: Any, ids: Any) -> Any:
        return table(ids) * math.sqrt(self.width) + _sinusoids(ids.shape[1], self.width)

    def forward(self, source: Any, target: Any, source_padding: Any, target_padding: Any) -> Any:
        memory = self.encoder(self.embed(self.source, source), src_key_padding_mask=source_padding)
        hidden = self.decoder(
            self.embed(self.target, target),
            memory,
            tgt_mask=blocked(causal(target.shape[1])),
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return hidden @ self.output.weight.T


class TorchLanguageModel(nn.Module):
    """GPT-2: learned positions, causal layers, the token table again as output."""

    def __init__(self, config: models.LanguageModelConfig) -> None:
        super().__init__()
        pre = config.norm_order == "pre"
        self.tokens = _embedding(config.vocabulary, config.d_model)
        self.positions = _embedding(config.max_length, config.d_model)

        def gelu(x: Any) -> Any:
            return nn.functional.gelu(x, approximate="tanh")

        sizes = (config.d_model, config.n_heads, config.d_ff)
        self.stack = encoder_stack(config.n_layers, pre, *sizes, activation=gelu, norm_first=pre)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.stack(x, mask=blocked(causal(ids.shape[1]))) @ self.tokens.weight.T


class TorchClassifier(nn.Module):
    """An encoder whose outputs at the real tokens are averaged and mapped to classes."""

    def __init__(self, config: models.ClassifierConfig) -> None:
        super().__init__()
        self.width = config.d_model
        pre = config.norm_order == "pre"
        sizes = (config.d_model, config.n_heads, config.d_ff)
        self.tokens = _embedding(config.vocabulary, self.width)
        self.encoder = encoder_stack(config.n_layers, pre, *sizes, activation=config.activation, norm_first=pre)
        self.head = nn.Linear(self.width, config.n_classes, dtype=torch.float64)

    def forward(self, ids: Any, real: Any) -> Any:
        x = self.tokens(ids) * math.sqrt(self.width) + _sinusoids(ids.shape[1], self.width)
        hidden = self.encoder(x, src_key_padding_mask=~real)
        pooled = torch.stack([row[kept].mean(dim=0) for row, kept in zip(hidden, real, strict=True)])
        return self.head(pooled)
