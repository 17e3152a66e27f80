"""Norms with less in them: against the formula written out, and their mistakes."""

import numpy as np
import pytest

from minitransformer import layers
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.ideas.after.norm_without_bias import LayerNormWithoutBias, NoNorm
from minitransformer.verify import CASES

X = np.random.default_rng(3).normal(size=(2, 3, 4))
OURS = [mistake for mistake in MISTAKES.values() if mistake.target.startswith("ideas.after.norm_without_bias.")]


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


@pytest.mark.parametrize("mistake", OURS, ids=lambda mistake: mistake.name)
def test_each_mistake_shows_where_it_says(mistake):
    for case in mistake.cases:
        with mistake.applied():
            assert not CASES[case].run().ok, case


def test_the_mistakes_were_found():
    assert len(OURS) == 5
