"""Layers and models, with every gradient of inputs and of parameters, against PyTorch in float64.

Weights have ordinary sizes, the upstream gradient is random, and lengths, widths and numbers of heads all differ. No
mask leaves a row empty here: PyTorch makes such a row NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minitransformer import fast, layers, models, ops

from .counterparts import (
    TorchClassifier,
    TorchLanguageModel,
    TorchTransformer,
    blocked,
    causal,
    decoder_stack,
    encoder_stack,
    share_weights,
    t,
)

pytestmark = pytest.mark.parity

Agree = Callable[..., None]


@pytest.fixture(params=[ops, fast.ops], ids=["as written", "fast"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ops that all layers compute with."""
    monkeypatch.setattr(layers.Module, "ops", request.param)


SIZES = (12, 3, 20)  # d_model, n_heads, d_ff
X, MEMORY = (2, 5, 12), (2, 7, 12)
X_REAL = np.arange(5) < np.array([[5], [3]])  # (B, T)
MEMORY_REAL = np.arange(7) < np.array([[4], [7]])
ATTEND = np.array([[1, 0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0, 1], [1] * 7, [1] + [0] * 6, [1, 1, 0, 0, 1, 0, 0]], bool)
OPTIONS: dict[str, Any] = {"batch_first": True, "dtype": torch.float64}


def compare(
    agree: Agree,
    subject: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    pairs: list[Any],
    inputs: list[np.ndarray],
    rng: np.random.Generator,
) -> None:
    """Run both forward and backward from the same inputs and upstream gradient, and compare whatever comes out."""
    leaves = [t(x).requires_grad_() for x in inputs]
    y, backward = ours(*inputs)
    expected = theirs(*leaves)
    agree(subject, "output", y, expected)

    dy = rng.normal(0.3, 1.0, size=expected.shape)
    gradients = backward(dy if dy.shape else float(dy))
    gradients = () if gradients is None else gradients if isinstance(gradients, tuple) else (gradients,)
    expected.backward(t(dy))
    for i, (gradient, leaf) in enumerate(zip(gradients, leaves, strict=True)):
        agree(subject, f"gradient of input {i}", gradient, leaf.grad)
    for pair in pairs:
        agree(subject, f"gradient of {pair.name}", pair.ours.grad, pair.view(pair.theirs.grad))


def test_linear(agree: Agree) -> None:
    rng = np.random.default_rng(0)
    for bias in (True, False):
        ours, theirs = layers.Linear(4, 6, bias), nn.Linear(4, 6, bias, dtype=torch.float64)
        compare(agree, "Linear", ours, theirs, share_weights(ours, theirs, rng), [rng.normal(size=(2, 3, 4))], rng)


def test_norms(agree: Agree) -> None:
    rng = np.random.default_rng(0)
    for eps in (1e-6, 0.1):
        for ours, theirs in [
            (layers.LayerNorm(5, eps), nn.LayerNorm(5, eps, dtype=torch.float64)),
            (layers.RMSNorm(5, eps), nn.RMSNorm(5, eps, dtype=torch.float64)),
        ]:
            pairs = share_weights(ours, theirs, rng)
            compare(agree, type(ours).__name__, ours, theirs, pairs, [rng.normal(size=(2, 3, 5))], rng)


def test_embedding(agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = layers.Embedding(6, 5), nn.Embedding(6, 5, dtype=torch.float64)
    ids = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])
    pairs = share_weights(ours, theirs, rng)
    compare(agree, "Embedding", lambda: ours(ids), lambda: theirs(t(ids)), pairs, [], rng)


def test_embedding_tied_to_the_output(agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = layers.Embedding(6, 5), nn.Embedding(6, 5, dtype=torch.float64)
    ids = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])

    def tied() -> Any:
        vectors, embedding_backward = ours(ids)
        logits, unembed_backward = ours.unembed(vectors)
        return logits, lambda dlogits: embedding_backward(unembed_backward(dlogits))

    pairs = share_weights(ours, theirs, rng)
    compare(agree, "Embedding", tied, lambda: theirs(t(ids)) @ theirs.weight.T, pairs, [], rng)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gated_feed_forward(activation: str, agree: Agree) -> None:
    """Shazeer's formula written out; PyTorch has no such module."""
    rng = np.random.default_rng(0)
    ours = layers.FeedForward(4, 7, activation, gated=True)
    theirs = nn.ModuleList([nn.Linear(a, b, dtype=torch.float64) for a, b in [(4, 7), (4, 7), (7, 4)]])
    ours.parts = [ours.gate, ours.inner, ours.output]
    gate, inner, output = theirs

    def gated(x: Any) -> Any:
        return output(getattr(F, activation)(gate(x)) * inner(x))

    pairs = share_weights(ours, theirs, rng)
    compare(agree, "FeedForward, gated", ours, gated, pairs, [rng.normal(size=(2, 3, 4))], rng)


ATTENTION_MASKS: dict[str, np.ndarray | None] = {
    "no mask": None,
    "key padding": X_REAL[:, None, :],
    "causal": causal(5),
    "causal and key padding": causal(5) & X_REAL[:, None, :],
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", ATTENTION_MASKS)
def test_self_attention(mask: str, bias: bool, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = layers.MultiHeadAttention(12, 3, bias=bias)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, **OPTIONS)
    padded = X_REAL if "padding" in mask else None
    looks_back = "causal" in mask

    def attend(x: Any) -> Any:
        allowed = blocked(causal(5)) if looks_back else None
        return theirs(x, x, x, key_padding_mask=blocked(padded), attn_mask=allowed, need_weights=False)[0]

    def ours_by_option(x: np.ndarray) -> Any:
        return ours(x, mask=None if padded is None else padded[:, None, :], causal=looks_back)

    def ours_by_mask(x: np.ndarray) -> Any:
        return ours(x, mask=ATTENTION_MASKS[mask])

    for attention in (ours_by_option, ours_by_mask):
        pairs = share_weights(ours, theirs, rng)
        compare(agree, "MultiHeadAttention, self", attention, attend, pairs, [rng.normal(size=X)], rng)
        theirs.zero_grad()


CROSS_MASKS: dict[str, np.ndarray | None] = {
    "no mask": None,
    "key padding": MEMORY_REAL[:, None, :],
    "for each query": ATTEND,
    "for each sequence, head and query": np.stack([ATTEND, ATTEND[::-1], ATTEND] * 2).reshape(2, 3, 5, 7),
}


@pytest.mark.parametrize("mask", CROSS_MASKS)
def test_cross_attention(mask: str, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = layers.MultiHeadAttention(12, 3), nn.MultiheadAttention(12, 3, **OPTIONS)
    ours_mask = CROSS_MASKS[mask]

    def attend(x: Any, memory: Any) -> Any:
        if mask == "key padding":
            return theirs(x, memory, memory, key_padding_mask=blocked(MEMORY_REAL))[0]
        allowed = None if ours_mask is None else ours_mask.reshape(-1, 5, 7).squeeze()  # (B·H, T_q, T_k) or (T_q, T_k)
        return theirs(x, memory, memory, attn_mask=blocked(allowed))[0]

    pairs = share_weights(ours, theirs, rng)
    inputs = [rng.normal(size=X), rng.normal(size=MEMORY)]
    compare(agree, "MultiHeadAttention, cross", lambda x, m: ours(x, m, mask=ours_mask), attend, pairs, inputs, rng)


def test_attention_without_a_batch(agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = layers.MultiHeadAttention(12, 3), nn.MultiheadAttention(12, 3, **OPTIONS)
    pairs = share_weights(ours, theirs, rng)
    inputs = [rng.normal(size=(5, 12)), rng.normal(size=(7, 12))]
    compare(agree, "MultiHeadAttention, cross", ours, lambda x, m: theirs(x, m, m)[0], pairs, inputs, rng)


@pytest.mark.parametrize("mask", ATTENTION_MASKS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_encoder_layer(norm_order: str, activation: str, mask: str, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = layers.EncoderLayer(*SIZES, norm_order=norm_order, activation=activation)
    theirs = nn.TransformerEncoderLayer(
        *SIZES, dropout=0.0, activation=activation, norm_first=norm_order == "pre", **OPTIONS
    )
    padding = blocked(X_REAL) if "padding" in mask else None
    allowed = blocked(causal(5)) if "causal" in mask else None
    compare(
        agree,
        f"EncoderLayer, {norm_order}-norm",
        lambda x: ours(x, mask=ATTENTION_MASKS[mask]),
        lambda x: theirs(x, src_mask=allowed, src_key_padding_mask=padding),
        share_weights(ours, theirs, rng),
        [rng.normal(size=X)],
        rng,
    )


@pytest.mark.parametrize("masked", [False, True], ids=["causal", "causal, both padded, memory mask"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_decoder_layer(norm_order: str, activation: str, masked: bool, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = layers.DecoderLayer(*SIZES, norm_order=norm_order, activation=activation)
    theirs = nn.TransformerDecoderLayer(
        *SIZES, dropout=0.0, activation=activation, norm_first=norm_order == "pre", **OPTIONS
    )
    attend = ATTEND & MEMORY_REAL[:, None, :]
    assert attend.any(axis=-1).all()
    our_masks = {"mask": X_REAL[:, None, :], "memory_mask": attend} if masked else {}
    their_masks = {"tgt_mask": blocked(causal(5))}
    if masked:
        their_masks |= {
            "tgt_key_padding_mask": blocked(X_REAL),
            "memory_key_padding_mask": blocked(MEMORY_REAL),
            "memory_mask": blocked(ATTEND),
        }
    compare(
        agree,
        f"DecoderLayer, {norm_order}-norm",
        lambda x, memory: ours(x, memory, **our_masks),
        lambda x, memory: theirs(x, memory, **their_masks),
        share_weights(ours, theirs, rng),
        [rng.normal(size=X), rng.normal(size=MEMORY)],
        rng,
    )


@pytest.mark.parametrize("checkpoint", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("final_norm", [False, True], ids=["no last norm", "last norm"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_encoder(norm_order: str, final_norm: bool, checkpoint: bool, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = layers.Encoder(3, *SIZES, norm_order=norm_order, final_norm=final_norm, checkpoint=checkpoint)
    theirs = encoder_stack(3, final_norm, *SIZES, norm_first=norm_order == "pre")
    compare(
        agree,
        f"Encoder, {norm_order}-norm",
        lambda x: ours(x, mask=X_REAL[:, None, :], causal=True),
        lambda x: theirs(x, mask=blocked(causal(5)), src_key_padding_mask=blocked(X_REAL)),
        share_weights(ours, theirs, rng),
        [rng.normal(size=X)],
        rng,
    )


@pytest.mark.parametrize("checkpoint", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("final_norm", [False, True], ids=["no last norm", "last norm"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_decoder(norm_order: str, final_norm: bool, checkpoint: bool, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = layers.Decoder(3, *SIZES, norm_order=norm_order, final_norm=final_norm, checkpoint=checkpoint)
    theirs = decoder_stack(3, final_norm, *SIZES, norm_first=norm_order == "pre")
    compare(
        agree,
        f"Decoder, {norm_order}-norm",
        lambda x, memory: ours(x, memory, mask=X_REAL[:, None, :], memory_mask=MEMORY_REAL[:, None, :]),
        lambda x, memory: theirs(
            x,
            memory,
            tgt_mask=blocked(causal(5)),
            tgt_key_padding_mask=blocked(X_REAL),
            memory_key_padding_mask=blocked(MEMORY_REAL),
        ),
        share_weights(ours, theirs, rng),
        [rng.normal(size=X), rng.normal(size=MEMORY)],
        rng,
    )


class EncoderDecoder(layers.Module):
    """What nn.Transformer is: an encoder and a decoder, each with a last norm, from vectors to vectors."""

    def __init__(self, norm_order: str, activation: str) -> None:
        options: dict[str, Any] = {"norm_order": norm_order, "activation": activation, "final_norm": True}
        self.parts = [layers.Encoder(2, *SIZES, **options), layers.Decoder(3, *SIZES, **options)]

    def __call__(self, source: np.ndarray, target: np.ndarray) -> Any:
        encoder, decoder = self.parts
        source_mask = MEMORY_REAL[:, None, :]
        memory, encoder_backward = encoder(source, mask=source_mask)
        y, decoder_backward = decoder(target, memory, mask=X_REAL[:, None, :], memory_mask=source_mask)

        def backward(dy: np.ndarray) -> Any:
            dtarget, dmemory = decoder_backward(dy)
            return encoder_backward(dmemory), dtarget

        return y, backward


# PyTorch says that it will not use nested tensors, which it would not in training anyway.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_full_nn_transformer(norm_order: str, activation: str, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    ours = EncoderDecoder(norm_order, activation)
    width, n_heads, d_ff = SIZES
    theirs = nn.Transformer(width, n_heads, 2, 3, d_ff, 0.0, activation, norm_first=norm_order == "pre", **OPTIONS)

    class Parts:
        """nn.Transformer as the pair of stacks that it holds."""

        def __iter__(self) -> Any:
            return iter((theirs.encoder, theirs.decoder))

        def parameters(self) -> Any:
            return theirs.parameters()

    def run(source: Any, target: Any) -> Any:
        return theirs(
            source,
            target,
            tgt_mask=blocked(causal(5)),
            src_key_padding_mask=blocked(MEMORY_REAL),
            tgt_key_padding_mask=blocked(X_REAL),
            memory_key_padding_mask=blocked(MEMORY_REAL),
        )

    inputs = [rng.normal(size=MEMORY), rng.normal(size=X)]
    compare(agree, f"nn.Transformer, {norm_order}-norm", ours, run, share_weights(ours, Parts(), rng), inputs, rng)


# ---------------------------------------------------------------------------------------------------------- models

SOURCE = np.array([[1, 3, 1, 6], [2, 6, 0, 0]])
TARGET = np.array([[1, 5, 5, 2, 4], [1, 4, 2, 0, 0]])
WANTED = np.array([[5, 5, 2, 4, 3], [4, 2, 3, 0, 0]])
SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 3, "d_ff": 20}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "one table": {"target_vocabulary": 7},
    "two tables, output tied": {"target_vocabulary": 8, "share_embeddings": False, "norm_order": "pre"},
    "three tables": {"target_vocabulary": 8, "share_embeddings": False, "tie_output": False, "activation": "gelu"},
    "own output, checkpointed": {"target_vocabulary": 7, "tie_output": False, "norm_order": "pre", "checkpoint": True},
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformer(name: str, agree: Agree) -> None:
    """Logits and every gradient; then the loss with padding ignored and smoothed labels."""
    rng = np.random.default_rng(0)
    config = models.TransformerConfig(7, n_encoder_layers=2, n_decoder_layers=3, **SMALL, **TRANSFORMERS[name])
    ours, theirs = models.Transformer(config), TorchTransformer(config)
    padding = (SOURCE != 0, TARGET != 0)

    def torch_logits() -> Any:
        return theirs(t(SOURCE), t(TARGET), blocked(padding[0]), blocked(padding[1]))

    def torch_loss() -> Any:
        return F.cross_entropy(torch_logits().flatten(0, 1), t(WANTED).flatten(), ignore_index=0, label_smoothing=0.1)

    pairs = share_weights(ours, theirs, rng)
    compare(agree, "Transformer", lambda: ours(SOURCE, TARGET, *padding), torch_logits, pairs, [], rng)
    ours.zero_grad()
    theirs.zero_grad()
    compare(
        agree,
        "Transformer, loss",
        lambda: ours.loss(SOURCE, TARGET, WANTED, *padding, ignore_index=0, label_smoothing=0.1),
        torch_loss,
        pairs,
        [],
        rng,
    )


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_language_model(norm_order: str, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    config = models.LanguageModelConfig(7, max_length=6, n_layers=2, norm_order=norm_order, **SMALL)
    ours, theirs = models.LanguageModel(config), TorchLanguageModel(config)
    pairs = share_weights(ours, theirs, rng)
    compare(agree, "LanguageModel", lambda: ours(TARGET), lambda: theirs(t(TARGET)), pairs, [], rng)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_classifier(norm_order: str, agree: Agree) -> None:
    rng = np.random.default_rng(0)
    config = models.ClassifierConfig(7, 3, n_layers=2, norm_order=norm_order, **SMALL)
    ours, theirs = models.Classifier(config), TorchClassifier(config)
    real = SOURCE != 0
    pairs = share_weights(ours, theirs, rng)
    compare(agree, "Classifier", lambda: ours(SOURCE, real), lambda: theirs(t(SOURCE), t(real)), pairs, [], rng)
