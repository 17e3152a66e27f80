"""Value embeddings against PyTorch: outputs and every gradient, of the layer, of attention, and of a whole model."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minitransformer import fast, layers, ops
from minitransformer.ideas import grouped
from minitransformer.ideas.after.value_embeddings import ValueAttention, ValueEmbedding
from minitransformer.ideas.after.value_embeddings.model import ValueLanguageModelConfig

RNG = np.random.default_rng(5)
IDS = np.array([[1, 5, 5, 2, 0], [4, 4, 4, 1, 6], [3, 3, 2, 5, 3]])  # tokens that occur twice, or in several texts
REAL = np.array([[True] * 5, [False, True, True, True, True], [False, False, True, True, True]])
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(params=[ops, fast.ops], ids=["as written", "fast"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ops that all layers compute with."""
    monkeypatch.setattr(layers.Module, "ops", request.param)


def drawn(module: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The module with random parameters of ordinary size, and the same as tensors, by name."""
    module.to(dtype="float64")
    for _, parameter in module.parameters():
        parameter.value[...] = RNG.normal(0.0, 0.7, parameter.value.shape)
    return module, {name: torch.tensor(p.value, requires_grad=True) for name, p in module.parameters()}


def linear(w: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    y = x @ w[f"{name}.weight"]
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def values(w: dict[str, torch.Tensor], name: str, x: torch.Tensor, ids: np.ndarray, heads: int) -> torch.Tensor:
    """(B, T, G, d): nanochat's lines, with the factor 2."""
    v = linear(w, f"{name}projection", x).unflatten(-1, (heads, -1))
    embedded = F.embedding(torch.tensor(ids), w[f"{name}table.table"]).unflatten(-1, (heads, -1))
    channels = w[f"{name}gate.weight"].shape[0]
    return v + 2 * torch.sigmoid(linear(w, f"{name}gate", x[..., :channels]))[..., None] * embedded


def attention(w: dict[str, torch.Tensor], name: str, x: torch.Tensor, ids: Any, heads: Any, mask: Any) -> torch.Tensor:
    """heads: of queries and of keys."""
    q, k = (
        linear(w, f"{name}{part}", x).unflatten(-1, (n, -1)) for part, n in zip(("query", "key"), heads, strict=True)
    )
    if f"{name}value.weight" in w:
        v = linear(w, f"{name}value", x).unflatten(-1, (heads[1], -1))
    else:
        v = values(w, f"{name}value.", x, ids, heads[1])
    k, v = (each.repeat_interleave(heads[0] // heads[1], dim=2) for each in (k, v))
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, torch.tensor(mask))
    return linear(w, f"{name}output", mixed.transpose(1, 2).flatten(-2))


def agree(module: Any, w: dict[str, torch.Tensor], called: Any, wanted: torch.Tensor, x: torch.Tensor) -> None:
    """The output, the gradient of x and those of all parameters agree. called: (output, backward)."""
    y, backward = called
    np.testing.assert_allclose(y, wanted.detach().numpy(), **CLOSE)
    dy = RNG.normal(size=y.shape)
    dx = backward(dy)
    wanted.backward(torch.tensor(dy))
    np.testing.assert_allclose(dx, x.grad.numpy(), **CLOSE)
    for name, parameter in module.parameters():
        assert abs(parameter.grad).max() > 1e-6, name
        np.testing.assert_allclose(parameter.grad, w[name].grad.numpy(), **CLOSE, err_msg=name)


@pytest.mark.parametrize("n_channels", [3, 6])
def test_the_values(n_channels: int) -> None:
    layer, w = drawn(ValueEmbedding(layers.Linear(6, 8), 2, 7, n_channels))
    x = RNG.normal(size=(3, 5, 6))
    tensor = torch.tensor(x, requires_grad=True)
    agree(layer, w, layer(x, IDS), values(w, "", tensor, IDS, 2).flatten(-2), tensor)


@pytest.mark.parametrize(("n_heads", "n_key_heads"), [(4, 4), (4, 2), (3, 1)])
def test_attention_with_shared_heads(n_heads: int, n_key_heads: int) -> None:
    plain = grouped(6, n_heads, n_key_heads, 4, bias=False)
    layer, w = drawn(ValueAttention.like(plain, ValueEmbedding(plain.value, n_key_heads, 7, 5)))
    x, mask = RNG.normal(size=(3, 5, 6)), RNG.random((5, 5)) < 0.5
    mask |= np.eye(5, dtype=bool)
    tensor = torch.tensor(x, requires_grad=True)
    wanted = attention(w, "", tensor, IDS, (n_heads, n_key_heads), mask)
    agree(layer, w, layer(x, mask=mask, ids=IDS), wanted, tensor)


@pytest.mark.parametrize("real", [None, REAL], ids=["whole", "padded on the left"])
def test_a_whole_model(real: Any) -> None:
    config = ValueLanguageModelConfig(
        7, 6, 8, 2, 10, n_layers=4, n_channels=3, dropout=0.0, attention_dropout=0.0, tie_output=False
    )
    model, w = drawn(config.build())
    at = np.tile(np.arange(5), (3, 1)) if real is None else np.maximum(real.cumsum(axis=1) - 1, 0)
    seen = np.ones((3, 5), bool) if real is None else real
    mask = np.tril(np.ones((5, 5), bool)) & seen[:, None, :]
    mask = (mask | (np.eye(5, dtype=bool) & ~seen[:, :, None]))[:, None]  # else PyTorch makes rows of padding NaN

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (8,), w[f"{name}.gamma"], w[f"{name}.beta"], 1e-5)

    x = w["tokens.table"][IDS] + w["embed.positions.table"][at]
    for i in range(4):
        part = f"stack.layers.{i}.self_attention"
        x = x + attention(w, f"{part}.sublayer.", norm(f"{part}.norm", x), IDS, (2, 2), mask)
        part = f"stack.layers.{i}.feed_forward"
        inner = linear(w, f"{part}.sublayer.inner", norm(f"{part}.norm", x))
        x = x + linear(w, f"{part}.sublayer.output", F.gelu(inner, approximate="tanh"))
    logits = norm("stack.final_norm", x) @ w["output.table"].T
    wanted = np.where(seen, RNG.integers(7, size=(3, 5)), -100)
    loss, backward = model.loss(IDS, wanted, mask=real, positions=None if real is None else at)
    expected = F.cross_entropy(logits.flatten(0, 1), torch.tensor(wanted).flatten())
    np.testing.assert_allclose(loss, expected.detach().numpy(), **CLOSE)
    np.testing.assert_allclose(
        model(IDS, mask=real, positions=None if real is None else at)[0][seen], logits.detach().numpy()[seen], **CLOSE
    )
    backward()
    expected.backward()
    assert sum(name.endswith("value.table.table") for name in w) == 2
    for name, parameter in model.parameters():
        assert abs(parameter.grad).max() > 1e-6 or name.endswith("key.bias"), name
        np.testing.assert_allclose(parameter.grad, w[name].grad.numpy(), **CLOSE, err_msg=name)
