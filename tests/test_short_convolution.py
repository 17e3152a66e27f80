"""The short causal convolution: against the formula written out, in pieces, and its mistakes."""

import numpy as np
import pytest
from value_checks import CLOSE, rejects

from minitransformer.ideas.after.short_convolution import ShortConvolution, short_convolution

RNG = np.random.default_rng(3)
X, WEIGHT, BIAS, BEFORE = (RNG.normal(size=shape) for shape in ((2, 5, 3), (4, 3), (3,), (2, 3, 3)))


def written_out(x, weight, bias, before):
    """Number by number."""
    y = np.zeros_like(x)
    for b, t, c in np.ndindex(x.shape):
        text, at = [*before[b, :, c], *x[b, :, c]], t + len(before[b])
        y[b, t, c] = bias[c] + sum(w * text[at - back] for back, w in enumerate(weight[::-1, c]))
    return y


@rejects("short-looks-ahead")
def the_values_are_those_of_the_formula():
    found = short_convolution(X, WEIGHT, BIAS, BEFORE)[0]
    np.testing.assert_allclose(found, written_out(X, WEIGHT, BIAS, BEFORE), **CLOSE)


def test_nothing_stands_before_a_text():
    nothing = np.zeros((2, 3, 3))
    found = short_convolution(X, WEIGHT)[0]
    np.testing.assert_allclose(found, written_out(X, WEIGHT, np.zeros(3), nothing), rtol=1e-12)
    np.testing.assert_array_equal(found[:, :2], short_convolution(X[:, :2], WEIGHT)[0])  # no output looks ahead


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"short_convolution: before must have shape \(2, 3, 3\)"):
        short_convolution(X, WEIGHT, BIAS, BEFORE[:, 1:])
    with pytest.raises(ValueError, match="short_convolution: before needs a bias"):
        short_convolution(X, WEIGHT, before=BEFORE)
    with pytest.raises(ValueError, match="short_convolution: the axis D must be the same"):
        short_convolution(X, WEIGHT[:, 1:])
    with pytest.raises(ValueError, match="ShortConvolution: activation must be None or one of"):
        ShortConvolution(3, activation="swish")


@pytest.mark.parametrize("pieces", [[1, 1, 1, 1, 1], [2, 3], [4, 1]])
def test_pieces_with_a_cache_are_the_whole(pieces):
    layer = ShortConvolution(3, 4, activation="silu", rng=np.random.default_rng(0)).to(dtype="float64")
    cache, ends = layer.new_cache(), np.cumsum(pieces)
    found = [layer(X[:, end - n : end], cache)[0] for n, end in zip(pieces, ends, strict=True)]
    np.testing.assert_allclose(np.concatenate(found, axis=1), layer(X)[0], rtol=1e-13)
    assert cache.state.shape == (2, 3, 3) and cache.length == 5
