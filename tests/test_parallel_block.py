"""Attention and feed-forward network side by side: against the formula written out, and their mistakes."""

import numpy as np
import pytest

from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.ideas.after.parallel_block import ParallelLayer
from minitransformer.layers import FeedForward, LayerNorm, MultiHeadAttention, Residual
from minitransformer.verify import CASES

OURS = [mistake for mistake in MISTAKES.values() if mistake.target.startswith("ideas.after.parallel_block.")]


def test_the_values_are_those_of_the_formula():
    rng = np.random.default_rng(3)
    norms = [LayerNorm(4).to(dtype="float64") for _ in range(2)]
    attention = MultiHeadAttention(4, 2, rng=rng).to(dtype="float64")
    network = FeedForward(4, 5, rng=rng).to(dtype="float64")
    layer = ParallelLayer.of(Residual(attention, norms[0], "pre"), Residual(network, norms[1], "pre"))
    x = rng.normal(size=(2, 3, 4))
    expected = x + attention(norms[0](x)[0], causal=True)[0] + network(norms[1](x)[0])[0]
    np.testing.assert_allclose(layer(x, causal=True)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("mistake", OURS, ids=lambda mistake: mistake.name)
def test_each_mistake_shows_where_it_says(mistake):
    for case in mistake.cases:
        with mistake.applied():
            assert not CASES[case].run().ok, case


def test_the_mistakes_were_found():
    assert len(OURS) == 3
