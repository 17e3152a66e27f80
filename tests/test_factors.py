"""Constant factors on updates and logits: their formulas, and their mistakes."""

import numpy as np
import pytest

from minitransformer import layers
from minitransformer.ideas.after.factors import ScaledOutput, ScaledUpdate

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 4))


def test_the_formulas():
    update = ScaledUpdate(layers.FeedForward(4, 7), layers.RMSNorm(4), 0.3).to(dtype="float64")
    expected = X + 0.3 * update.sublayer(update.norm(X)[0])[0]
    np.testing.assert_allclose(update(X)[0], expected, rtol=1e-14)
    table = layers.Embedding(5, 4).to(dtype="float64")
    np.testing.assert_allclose(ScaledOutput(table, 8.0).unembed(X)[0], X @ table.table.value.T / 8.0, rtol=1e-13)
    with pytest.raises(ValueError, match="ScaledOutput: divisor must be"):
        ScaledOutput(table, 0.0)
