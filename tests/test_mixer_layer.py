"""A layer without a feed-forward network: against its formula, and its mistakes."""

import numpy as np
import pytest

from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.ideas.after.mixer_layer import MixerLayer
from minitransformer.layers import LayerNorm, MultiHeadAttention, Residual
from minitransformer.verify import CASES

OURS = [mistake for mistake in MISTAKES.values() if mistake.target.startswith("ideas.after.mixer_layer.")]


def test_the_values_are_those_of_the_formula():
    rng = np.random.default_rng(3)
    norm, attention = (part.to(dtype="float64") for part in (LayerNorm(4), MultiHeadAttention(4, 2, rng=rng)))
    x = rng.normal(size=(2, 3, 4))
    expected = x + attention(norm(x)[0], causal=True)[0]
    np.testing.assert_allclose(MixerLayer.of(Residual(attention, norm, "pre"))(x, causal=True)[0], expected, rtol=1e-12)


@pytest.mark.slow
def test_each_mistake_shows_where_it_says():
    assert len(OURS) == 2
    for mistake in OURS:
        with mistake.applied():
            assert not CASES[mistake.cases[0]].run().ok, mistake.name


def test_it_has_one_sublayer():
    part = Residual(MultiHeadAttention(4, 2), LayerNorm(4))
    with pytest.raises(ValueError, match="too many values"):
        MixerLayer.of(part, part)
