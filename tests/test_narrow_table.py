"""A narrow table of tokens: against the formulas written out, and its mistakes."""

import numpy as np

from minitransformer.ideas.after.narrow_table import ProjectedEmbedding, ThenProjected
from minitransformer.layers import LayerNorm

RNG = np.random.default_rng(3)


def test_vectors_and_logits_are_those_of_the_formulas():
    embed, ids = ProjectedEmbedding(5, 3, 4, RNG).to(dtype="float64"), np.array([[1, 4, 1]])
    table, projection = embed.table.value, embed.projection.weight.value
    np.testing.assert_allclose(embed(ids)[0], [[table[i] @ projection for i in (1, 4, 1)]], rtol=1e-12)
    x = RNG.normal(size=(1, 2, 3))
    np.testing.assert_allclose(embed.unembed(x)[0], x @ table.T, rtol=1e-12)


def test_the_end_of_a_stack():
    x, norm = RNG.normal(size=(2, 4)), LayerNorm(4).to(dtype="float64")
    for inside, normed in ((None, x), (norm, norm(x)[0])):
        end = ThenProjected(inside, 4, 3, RNG).to(dtype="float64")
        np.testing.assert_allclose(end(x)[0], normed @ end.projection.weight.value, rtol=1e-12)
