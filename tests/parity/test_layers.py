"""Layers and models, with every gradient of inputs and of parameters, against PyTorch in float64.

Weights have ordinary sizes, the upstream gradient is random, and lengths, widths and numbers of heads all differ. No
mask leaves a row empty here: PyTorch makes such a row NaN.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minitransformer import fast, ideas, layers, models, ops
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig

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

Agree = Callable[..., None]
Compare = Callable[..., list[Any]]


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


@pytest.fixture
def compare(agree: Agree) -> Compare:
    def compare(
        subject: str, ours: Any, theirs: Any, inputs: Any = (), f: Any = None, g: Any = None, pairs: Any = None
    ) -> list[Any]:
        """Give two modules the same weights, unless pairs of parameters are given, and run them, or f and g that call
        them, forward and backward from the same inputs, arrays or shapes, and upstream gradient. All must agree."""
        rng = np.random.default_rng(0)
        pairs = share_weights(ours, theirs, rng) if pairs is None else pairs
        inputs = [rng.normal(size=x) if isinstance(x, tuple) else x for x in inputs]
        leaves = [t(x).requires_grad_() for x in inputs]
        y, backward = (f or ours)(*inputs)
        expected = (g or theirs)(*leaves)
        agree(subject, "output", y, expected)
        dy = rng.normal(0.3, 1.0, size=expected.shape)
        gradients = backward(dy if dy.shape else float(dy))
        gradients = () if gradients is None else gradients if isinstance(gradients, tuple) else (gradients,)
        expected.backward(t(dy))
        for i, (gradient, leaf) in enumerate(zip(gradients, leaves, strict=True)):
            agree(subject, f"gradient of input {i}", gradient, leaf.grad)
        for pair in pairs:
            agree(subject, f"gradient of {pair.name}", pair.ours.grad, pair.view(pair.theirs.grad))
        return pairs

    return compare


@pytest.mark.parametrize("at_the_output", [False, True])
def test_embedding(at_the_output: bool, compare: Compare) -> None:
    """At both ends of a model, or at its input alone."""
    ours, theirs = layers.Embedding(6, 5), nn.Embedding(6, 5, dtype=torch.float64)
    ids = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])

    def tied() -> Any:
        vectors, embedding_backward = ours(ids)
        logits, unembed_backward = ours.unembed(vectors)
        return logits, lambda dlogits: embedding_backward(unembed_backward(dlogits))

    if at_the_output:
        compare("Embedding", ours, theirs, [], tied, lambda: theirs(t(ids)) @ theirs.weight.T)
    else:
        compare("Embedding", ours, theirs, [], lambda: ours(ids), lambda: theirs(t(ids)))


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gated_feed_forward(activation: str, compare: Compare) -> None:
    """Shazeer's formula written out; PyTorch has no such module."""
    ours = ideas.GatedFeedForward(4, 7, activation)
    theirs = nn.ModuleList([nn.Linear(a, b, dtype=torch.float64) for a, b in [(4, 7), (4, 7), (7, 4)]])
    ours.parts = [ours.gate, ours.inner, ours.output]
    gate, inner, output = theirs

    def gated(x: Any) -> Any:
        return output(getattr(F, activation)(gate(x)) * inner(x))

    compare("FeedForward, gated", ours, theirs, [(2, 3, 4)], g=gated)


ATTENTION_MASKS: dict[str, np.ndarray | None] = {
    "no mask": None,
    "key padding": X_REAL[:, None, :],
    "causal": causal(5),
    "causal and key padding": causal(5) & X_REAL[:, None, :],
}


@pytest.mark.parametrize("by_option", [True, False])
def test_self_attention_without_biases(by_option: bool, compare: Compare) -> None:
    """Layers, below, have the biases and the other masks."""
    ours = layers.MultiHeadAttention(12, 3, bias=False)
    theirs = nn.MultiheadAttention(12, 3, bias=False, **OPTIONS)

    def attend(x: Any) -> Any:
        masks = {"key_padding_mask": blocked(X_REAL), "attn_mask": blocked(causal(5))}
        return theirs(x, x, x, **masks, need_weights=False)[0]

    options = (
        {"mask": X_REAL[:, None, :], "causal": True}
        if by_option
        else {"mask": ATTENTION_MASKS["causal and key padding"]}
    )
    compare("MultiHeadAttention, self", ours, theirs, [X], functools.partial(ours, **options), attend)


CROSS_MASKS: dict[str, np.ndarray | None] = {
    "no mask": None,
    "key padding": MEMORY_REAL[:, None, :],
    "for each query": ATTEND,
    "for each sequence, head and query": np.stack([ATTEND, ATTEND[::-1], ATTEND] * 2).reshape(2, 3, 5, 7),
}


@pytest.mark.parametrize("mask", CROSS_MASKS)
def test_cross_attention(mask: str, compare: Compare) -> None:
    ours, theirs = layers.MultiHeadAttention(12, 3), nn.MultiheadAttention(12, 3, **OPTIONS)
    ours_mask = CROSS_MASKS[mask]

    def attend(x: Any, memory: Any) -> Any:
        if mask == "key padding":
            return theirs(x, memory, memory, key_padding_mask=blocked(MEMORY_REAL))[0]
        allowed = None if ours_mask is None else ours_mask.reshape(-1, 5, 7).squeeze()  # (B·H, T_q, T_k) or (T_q, T_k)
        return theirs(x, memory, memory, attn_mask=blocked(allowed))[0]

    f = functools.partial(ours, mask=ours_mask)
    compare("MultiHeadAttention, cross", ours, theirs, [X, MEMORY], f, attend)


ACTIVATIONS: dict[str, Any] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
}


@pytest.mark.parametrize("mask", ATTENTION_MASKS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_encoder_layer(norm_order: str, activation: str, mask: str, compare: Compare) -> None:
    ours = layers.EncoderLayer(*SIZES, norm_order=norm_order, activation=activation)
    theirs = nn.TransformerEncoderLayer(
        *SIZES, dropout=0.0, activation=ACTIVATIONS[activation], norm_first=norm_order == "pre", **OPTIONS
    )
    padding = blocked(X_REAL) if "padding" in mask else None
    allowed = blocked(causal(5)) if "causal" in mask else None
    f = functools.partial(ours, mask=ATTENTION_MASKS[mask])
    g = functools.partial(theirs, src_mask=allowed, src_key_padding_mask=padding)
    compare(f"EncoderLayer, {norm_order}-norm", ours, theirs, [X], f, g)


@pytest.mark.parametrize("masked", [False, True], ids=["causal", "causal, both padded, memory mask"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_decoder_layer(norm_order: str, activation: str, masked: bool, compare: Compare) -> None:
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
    f, g = functools.partial(ours, **our_masks), functools.partial(theirs, **their_masks)
    compare(f"DecoderLayer, {norm_order}-norm", ours, theirs, [X, MEMORY], f, g)


@pytest.mark.parametrize("recompute", [False, True], ids=["", "recomputed"])
@pytest.mark.parametrize("final_norm", [False, True], ids=["no last norm", "last norm"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("kind", [layers.Encoder, layers.Decoder])
def test_stack(kind: Any, norm_order: str, final_norm: bool, recompute: bool, compare: Compare) -> None:
    ours = kind(3, *SIZES, norm_order=norm_order, final_norm=final_norm, recompute=recompute)
    stack = encoder_stack if kind is layers.Encoder else decoder_stack
    theirs, subject = (
        stack(3, final_norm, *SIZES, norm_first=norm_order == "pre"),
        f"{kind.__name__}, {norm_order}-norm",
    )
    mask = X_REAL[:, None, :]
    if kind is layers.Encoder:
        g = functools.partial(theirs, mask=blocked(causal(5)), src_key_padding_mask=blocked(X_REAL))
        compare(subject, ours, theirs, [X], functools.partial(ours, mask=mask, causal=True), g)
        return
    of_targets = {"tgt_mask": blocked(causal(5)), "tgt_key_padding_mask": blocked(X_REAL)}
    g = functools.partial(theirs, **of_targets, memory_key_padding_mask=blocked(MEMORY_REAL))
    f = functools.partial(ours, mask=mask, memory_mask=MEMORY_REAL[:, None, :])
    compare(subject, ours, theirs, [X, MEMORY], f, g)


def randomly(ours: layers.Module) -> layers.Module:
    rng = np.random.default_rng(1)
    for _, parameter in ours.parameters():
        parameter.value = rng.normal(0.0, 0.5, parameter.value.shape)
        parameter.grad = np.zeros(parameter.value.shape)
    return ours


RECURRENT = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("both_ways", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("cell", RECURRENT)
def test_recurrent(cell: str, both_ways: bool, padded: bool, compare: Compare) -> None:
    """Padding: PyTorch's packed sequences, whose outputs at padding are 0 where ours hold the state; it is left out."""
    ours = ideas.Bidirectional(4, 6, cell) if both_ways else ideas.Recurrent(4, 3, cell)
    theirs = RECURRENT[cell](4, 3, bidirectional=both_ways, **OPTIONS)
    real = np.arange(5) < np.array([[5], [2], [3]]) if padded else np.ones((3, 5), bool)
    of_real = real[..., None].astype(float)

    def run(x: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, real.sum(axis=1), batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True, total_length=5)[0]

    def ours_without_padding(x: np.ndarray) -> Any:
        y, backward = ours(x, mask=real)
        return y * of_real, lambda dy: backward(dy * of_real)

    compare(f"Recurrent, {cell}", ours, theirs, [(3, 5, 4)], ours_without_padding, run)


def mixtral(monkeypatch: pytest.MonkeyPatch, n_experts: int, k: int) -> tuple[Any, Any]:
    """Hugging Face's block and its load-balancing loss. Both go through float32 by Tensor.float, which is taken out."""
    from transformers.models.mixtral import configuration_mixtral, modeling_mixtral

    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)
    config = configuration_mixtral.MixtralConfig(
        hidden_size=6, intermediate_size=5, num_local_experts=n_experts, num_experts_per_tok=k
    )
    config._experts_implementation = "eager"
    block = modeling_mixtral.MixtralSparseMoeBlock(config).to(torch.float64)
    return block, modeling_mixtral.load_balancing_loss_func


@pytest.mark.parametrize(("n_experts", "k"), [(4, 2), (3, 3), (9, 1)], ids=["2 of 4", "all", "some without a token"])
def test_mixture_of_experts(n_experts: int, k: int, compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output, and the loss of 8 tokens, whose shares of eighths are exact in float32."""
    block, balance_of = mixtral(monkeypatch, n_experts, k)
    ours = ideas.MixtureOfExperts(6, 5, n_experts, k)
    pairs = compare("MixtureOfExperts", ours, block, [(2, 4, 6)])
    ours.zero_grad()
    block.zero_grad()

    def loss(x: Any) -> Any:
        return balance_of((F.linear(x.reshape(-1, 6), block.gate.weight),), n_experts, k)

    router = [pair for pair in pairs if "router" in pair.name]
    compare("MixtureOfExperts, balance", ours, block, [(2, 4, 6)], ours.balance, loss, router)


@pytest.mark.parametrize("score", ["additive", "multiplicative"])
def test_alignment(score: str, agree: Agree, compare: Compare) -> None:
    """Luong's and Bahdanau's formulas written out; PyTorch has no such module."""
    ours = randomly(ideas.Alignment(6, score))
    tensors = {name: t(parameter.value).requires_grad_() for name, parameter in ours.parameters()}
    mask = t(ATTEND)

    def run(x: Any, memory: Any) -> Any:
        keys = memory @ tensors["key.weight"]
        if score == "additive":
            pairs = torch.tanh((x @ tensors["query.weight"]).unsqueeze(-2) + keys.unsqueeze(-3))
            scores = pairs @ tensors["w"]
        else:
            scores = torch.einsum("bqd,bkd->bqk", x, keys)
        context = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1) @ memory
        return torch.tanh(torch.cat([context, x], dim=-1) @ tensors["output.weight"])

    f = functools.partial(ours, mask=ATTEND)
    compare(f"Alignment, {score}", ours, None, [(2, 5, 6), (2, 7, 6)], f, run, [])
    for name, parameter in ours.parameters():
        agree(f"Alignment, {score}", f"gradient of {name}", parameter.grad, tensors[name].grad)


@pytest.mark.parametrize("causal_too", [False, True])
def test_convolution(causal_too: bool, compare: Compare) -> None:
    ours = ideas.Convolution(4, 6, kernel=3, dilation=2)
    theirs = nn.Conv1d(4, 6, 3, dilation=2, dtype=torch.float64)
    before = 4 if causal_too else 2
    real = t(X_REAL)[..., None]

    def run(x: Any) -> Any:
        return theirs(F.pad((x * real).transpose(1, 2), (before, 4 - before))).transpose(1, 2)

    compare("Convolution", ours, theirs, [(2, 5, 4)], lambda x: ours(x, X_REAL[:, None], causal_too), run)


@pytest.mark.parametrize("causal_too", [False, True])
def test_restricted_self_attention(causal_too: bool, compare: Compare) -> None:
    ours, theirs = layers.MultiHeadAttention(12, 3, mix=ideas.Local(2)), nn.MultiheadAttention(12, 3, **OPTIONS)
    near = np.array([[abs(i - j) <= 2 and not (causal_too and j > i) for j in range(5)] for i in range(5)])

    def attend(x: Any) -> Any:
        return theirs(x, x, x, key_padding_mask=blocked(X_REAL), attn_mask=blocked(near), need_weights=False)[0]

    f = functools.partial(ours, mask=X_REAL[:, None], causal=causal_too)
    compare("MultiHeadAttention, restricted", ours, theirs, [X], f, attend)


# ---------------------------------------------------------------------------------------------------------- models

SOURCE = np.array([[1, 3, 1, 6], [2, 6, 0, 0]])
TARGET = np.array([[1, 5, 5, 2, 4], [1, 4, 2, 0, 0]])
WANTED = np.array([[5, 5, 2, 4, 3], [4, 2, 3, 0, 0]])
SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 3, "d_ff": 20}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "one table": {"target_vocabulary": 7},
    "two tables, output tied": {"target_vocabulary": 8, "share_embeddings": False, "norm_order": "pre"},
    "three tables": {"target_vocabulary": 8, "share_embeddings": False, "tie_output": False, "activation": "gelu"},
    "own output, recomputed": {"target_vocabulary": 7, "tie_output": False, "norm_order": "pre", "recompute": True},
}


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("of", ["logits", "loss"])
def test_transformer(name: str, of: str, compare: Compare) -> None:
    """Every gradient from the logits, or from the loss with padding ignored and smoothed labels."""
    config = models.TransformerConfig(7, n_encoder_layers=2, n_decoder_layers=3, **SMALL, **TRANSFORMERS[name])
    ours, theirs = models.Transformer(config), TorchTransformer(config)
    padding = (SOURCE != 0, TARGET != 0)

    def torch_logits() -> Any:
        return theirs(t(SOURCE), t(TARGET), blocked(padding[0]), blocked(padding[1]))

    def torch_loss() -> Any:
        return F.cross_entropy(torch_logits().flatten(0, 1), t(WANTED).flatten(), ignore_index=0, label_smoothing=0.1)

    def our_loss() -> Any:
        return ours.loss(SOURCE, TARGET, WANTED, *padding, ignore_index=0, label_smoothing=0.1)

    if of == "logits":
        compare("Transformer", ours, theirs, [], lambda: ours(SOURCE, TARGET, *padding), torch_logits)
    else:
        compare("Transformer, loss", ours, theirs, [], our_loss, torch_loss)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_language_model(norm_order: str, compare: Compare) -> None:
    config = models.LanguageModelConfig(7, max_length=6, n_layers=2, norm_order=norm_order, **SMALL)
    ours, theirs = models.LanguageModel(config), TorchLanguageModel(config)
    compare("LanguageModel", ours, theirs, [], lambda: ours(TARGET), lambda: theirs(t(TARGET)))


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_classifier(norm_order: str, compare: Compare) -> None:
    config = models.ClassifierConfig(7, 3, n_layers=2, norm_order=norm_order, **SMALL)
    ours, theirs, real = models.Classifier(config), TorchClassifier(config), SOURCE != 0
    compare("Classifier", ours, theirs, [], lambda: ours(SOURCE, real), lambda: theirs(t(SOURCE), t(real)))


@pytest.mark.parametrize("attention", ["none", "multiplicative", "additive"])
def test_recurrent_translator(attention: str, agree: Agree, compare: Compare) -> None:
    """Loss and every gradient, against torch.nn's LSTM put together as the docstring says, with padded sources."""
    ours = randomly(RecurrentTranslator(RecurrentTranslatorConfig(7, 7, d_model=6, attention=attention)))
    both, one = nn.LSTM(6, 3, 2, bidirectional=True, **OPTIONS), nn.LSTM(6, 6, 2, **OPTIONS)
    theirs = {name: t(p.value).requires_grad_() for name, p in ours.parameters()}

    def lstm(module: Any, x: Any, start: Any, path: Callable[[int], list[str]]) -> Any:
        """Runs torch's own LSTM with our parameters."""
        weights = {}
        for layer in range(2):
            for way, prefix in zip(("", "_reverse"), path(layer), strict=False):
                weights[f"weight_ih_l{layer}{way}"] = theirs[f"{prefix}.input.weight"].T
                weights[f"weight_hh_l{layer}{way}"] = theirs[f"{prefix}.weight"].T
                weights[f"bias_ih_l{layer}{way}"] = theirs[f"{prefix}.input.bias"]
                weights[f"bias_hh_l{layer}{way}"] = torch.zeros_like(theirs[f"{prefix}.input.bias"])
        return torch.func.functional_call(module, weights, (x, *start))[0]

    def loss() -> Any:
        table, real = theirs["target_tokens.table"], SOURCE != 0
        source, target = (F.embedding(t(ids), table) * 6**0.5 for ids in (SOURCE, TARGET))
        packed = nn.utils.rnn.pack_padded_sequence(source, real.sum(axis=1), batch_first=True, enforce_sorted=False)
        read = lstm(both, packed, (), lambda i: [f"encoder.{i}.onward", f"encoder.{i}.back"])
        memory = nn.utils.rnn.pad_packed_sequence(read, batch_first=True)[0]
        drawn = [F.linear(memory[:, 0], theirs[f"starts.{i}.weight"].T, theirs[f"starts.{i}.bias"]) for i in (0, 1)]
        states = torch.stack([torch.tanh(each) for each in drawn])
        start = (states[..., :6].contiguous(), states[..., 6:].contiguous())
        x = lstm(one, target, (start,), lambda i: [f"decoder.{i}"])
        if attention != "none":
            keys = memory @ theirs["alignment.key.weight"]
            if attention == "additive":
                asked = (x @ theirs["alignment.query.weight"]).unsqueeze(2)
                scores = torch.tanh(asked + keys.unsqueeze(1)) @ theirs["alignment.w"]
            else:
                scores = x @ keys.transpose(1, 2)
            context = torch.softmax(scores.masked_fill(~t(real)[:, None], -torch.inf), dim=-1) @ memory
            x = torch.tanh(torch.cat([context, x], dim=-1) @ theirs["alignment.output.weight"])
        return F.cross_entropy((x @ table.T).flatten(0, 1), t(WANTED).flatten(), ignore_index=0)

    def our_loss() -> Any:
        return ours.loss(SOURCE, TARGET, WANTED, SOURCE != 0, TARGET != 0, ignore_index=0)

    compare("RecurrentTranslator", ours, None, [], our_loss, loss, [])
    for name, parameter in ours.parameters():
        agree("RecurrentTranslator", f"gradient of {name}", parameter.grad, theirs[name].grad)
