"""Differential attention: against the formulas written out, and its mistakes."""

import math

import numpy as np
import pytest
from value_checks import CLOSE, rejects

from minitransformer import layers, ops
from minitransformer.ideas.after.differential import Differential, difference_factor, differential_attention

RNG = np.random.default_rng(3)
Q, K, V, FACTOR = RNG.normal(size=(2, 3, 8)), RNG.normal(size=(2, 5, 8)), RNG.normal(size=(2, 5, 6)), np.array(0.6)


def written_out(q, k, v, factor, allowed, scale):
    """Score by score, without matrix products."""
    output = np.zeros((*q.shape[:-1], v.shape[-1]))
    d = q.shape[-1] // 2
    for b, i in np.ndindex(q.shape[:2]):
        seen = [j for j in range(k.shape[1]) if allowed[i, j]]
        for sign, half in ((1.0, slice(0, d)), (-float(factor), slice(d, None))):
            powers = [math.exp(scale * sum(q[b, i, half] * k[b, j, half])) for j in seen]
            for j, power in zip(seen, powers, strict=True):
                output[b, i] += sign * power / sum(powers) * v[b, j]
    return output


def test_the_values_are_those_of_the_formula():
    every = np.ones((3, 5), bool)
    found = differential_attention(Q, K, V, FACTOR)[0]
    np.testing.assert_allclose(found, written_out(Q, K, V, FACTOR, every, 0.5), rtol=1e-12)
    allowed = RNG.random((3, 5)) < 0.5
    allowed[1] = False
    found = differential_attention(Q, K, V, FACTOR, allowed, True, 0.7)[0]
    back = np.tri(3, 5, 2, dtype=bool)
    np.testing.assert_allclose(found, written_out(Q, K, V, FACTOR, allowed & back, 0.7), rtol=1e-12, atol=1e-15)


def test_a_factor_of_zero_is_the_first_attention():
    found = differential_attention(Q, K, V, np.array(0.0))[0]
    np.testing.assert_allclose(found, ops.attention(Q[..., :4], K[..., :4], V)[0], rtol=1e-12)


def test_the_factor():
    a, b, c, d = RNG.normal(size=(4, 3))
    found, backward = difference_factor(a, b, c, d, 0.3)
    more, less = (math.exp(sum(x * y)) for x, y in ((a, b), (c, d)))
    assert found.shape == () and abs(float(found) - (more - less + 0.3)) < 1e-14
    np.testing.assert_allclose(backward(np.array(2.0))[2], -2.0 * less * d, rtol=1e-13)


def test_heads_are_normalised_and_made_smaller():
    mix = Differential(8, layer=2, rng=np.random.default_rng(0)).to(dtype="float64")
    heads = mix(Q[:, None], K[:, None], V[:, None].repeat(2, axis=-1)[..., :8])[0]
    size = 1.0 - (0.8 - 0.6 * math.exp(-0.6))
    np.testing.assert_allclose((heads**2).mean(axis=-1), size**2, rtol=1e-3)  # ε of the norm takes a little


def test_heads_alone_add_up():
    attention = layers.MultiHeadAttention(8, 2, bias=False, mix=Differential(4), rng=np.random.default_rng(0))
    attention, x = attention.to(dtype="float64"), RNG.normal(size=(2, 5, 8))
    np.testing.assert_allclose(sum(attention.head(i)(x)[0] for i in range(2)), attention(x)[0], rtol=1e-12)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="Differential: d_head must be even"):
        Differential(3)
    with pytest.raises(ValueError, match="differential_attention: the axis T_k must be the same"):
        differential_attention(Q, K, V[:, 1:], FACTOR)


@rejects("differential-scaled-by-both")
def scores_are_divided_by_the_root_of_one_half():
    every = np.ones((3, 5), bool)
    found = differential_attention(Q, K, V, FACTOR)[0]
    np.testing.assert_allclose(found, written_out(Q, K, V, FACTOR, every, 0.5), **CLOSE)
