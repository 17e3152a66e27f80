"""Norms with less in them: against the formula written out, and their mistakes."""

import numpy as np

from minitransformer import layers
from minitransformer.ideas.after.norm_without_bias import LayerNormWithoutBias, NoNorm

X = np.random.default_rng(3).normal(size=(2, 3, 4))


def test_the_values_are_those_of_the_formula():
    norm = LayerNormWithoutBias(4, 1e-3).to(dtype="float64")
    norm.gamma.value[...] = [0.5, -0.5, 2.0, 1.0]
    mean = X.mean(axis=-1, keepdims=True)
    expected = [0.5, -0.5, 2.0, 1.0] * (X - mean) / np.sqrt(((X - mean) ** 2).mean(axis=-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(norm(X)[0], expected, rtol=1e-12)
    assert [name for name, _ in norm.parameters()] == ["gamma"]


def test_no_norm_in_a_residual_connection():
    inner = layers.FeedForward(4, 5, rng=np.random.default_rng(0)).to(dtype="float64")
    residual = layers.Residual(inner, NoNorm(4), "pre")
    np.testing.assert_allclose(residual(X)[0], X + inner(X)[0], rtol=1e-13)
    assert len(list(residual.parameters())) == len(list(inner.parameters()))
