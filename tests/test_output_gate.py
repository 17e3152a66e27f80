"""Attention with a gate on its output: against attention and a product written out, and its mistakes."""

import numpy as np
import pytest

from minitransformer.ideas.after.output_gate import (
    Columns,
    GatedAttention,
    OpenedFeedForward,
    Unchanged,
    gated_attention,
    sigmoid,
)
from minitransformer.layers import Linear, MultiHeadAttention

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 5, 6))


def test_sigmoid():
    y, backward = sigmoid(np.array([-800.0, 0.0, 1.0, 800.0]))
    np.testing.assert_allclose(y, [0.0, 0.5, np.e / (1.0 + np.e), 1.0], rtol=1e-15)
    np.testing.assert_allclose(backward(np.ones(4))[1:3], [0.25, np.e / (1.0 + np.e) ** 2], rtol=1e-14)


def test_two_maps_in_one_matrix_are_its_halves_head_by_head():
    whole = Linear(6, 24, rng=np.random.default_rng(0)).to(dtype="float64")
    whole.bias.value += RNG.normal(size=24)
    halves = (whole(X)[0].reshape(2, 5, 3, 2, 4)[..., half, :].reshape(2, 5, 12) for half in (0, 1))
    for half, expected in enumerate(halves):
        part = Columns(whole, 3, half)
        np.testing.assert_allclose(part(X)[0], expected, rtol=1e-12)
        np.testing.assert_allclose(part.part(columns=slice(4, 8))(X)[0], expected[..., 4:8], rtol=1e-12)
    with pytest.raises(ValueError, match="Columns: 24 columns are not two halves for each of 5 heads"):
        Columns(whole, 5, 0)


def test_an_open_gate_is_attention_and_a_half_open_one_is_half_of_it():
    gated = gated_attention(6, 4, 2, 3, rng=np.random.default_rng(0)).to(dtype="float64")
    whole = gated.gate.whole.weight.value.reshape(6, 4, 2, 3)
    whole[:, :, 1] = 0.0  # σ(0) is one half
    heads = gated.sublayer(X, causal=True)[0]
    np.testing.assert_allclose(gated(X, causal=True)[0], 0.5 * heads @ gated.last.weight.value, rtol=1e-12)


def test_one_number_opens_a_network():
    network = OpenedFeedForward(6, 5, rng=np.random.default_rng(0)).to(dtype="float64")
    share = 1.0 / (1.0 + np.exp(-X @ network.opening.weight.value))
    gate, inner = X @ network.gate.weight.value, X @ network.inner.weight.value
    expected = share * ((gate / (1.0 + np.exp(-gate)) * inner) @ network.output.weight.value)
    np.testing.assert_allclose(network(X)[0], expected, rtol=1e-12)


def test_widths_that_differ_are_refused():
    attention = MultiHeadAttention(6, 2)
    attention.output = Unchanged(6)
    with pytest.raises(ValueError, match=r"GatedAttention: heads, gate and the last map .* got \(6, 5, 6\)"):
        GatedAttention(attention, Linear(6, 5), Linear(6, 6))
