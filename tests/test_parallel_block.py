"""Attention and feed-forward network side by side: against the formula written out, and their mistakes."""

import numpy as np

from minitransformer.ideas.after.parallel_block import ParallelLayer
from minitransformer.layers import FeedForward, LayerNorm, MultiHeadAttention, Residual


def test_the_values_are_those_of_the_formula():
    rng = np.random.default_rng(3)
    norms = [LayerNorm(4).to(dtype="float64") for _ in range(2)]
    attention = MultiHeadAttention(4, 2, rng=rng).to(dtype="float64")
    network = FeedForward(4, 5, rng=rng).to(dtype="float64")
    layer = ParallelLayer.of(Residual(attention, norms[0], "pre"), Residual(network, norms[1], "pre"))
    x = rng.normal(size=(2, 3, 4))
    expected = x + attention(norms[0](x)[0], causal=True)[0] + network(norms[1](x)[0])[0]
    np.testing.assert_allclose(layer(x, causal=True)[0], expected, rtol=1e-12)
