"""A contrastive loss: against its formula written out, its mistakes."""

import math

import numpy as np
import pytest

from minitransformer.ideas.after.contrastive import contrastive_loss, scaled_cosines, unit_length

RNG = np.random.default_rng(3)
X, Z, S = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5)), np.array(0.7)


def cosine(a, b):
    return sum(a * b) / math.sqrt(sum(a * a) * sum(b * b))


def written_out(x, z, s):
    scores = [[math.exp(s) * cosine(a, b) for b in z] for a in x]
    n = len(x)
    rows = sum(math.log(sum(math.exp(y) for y in scores[i])) - scores[i][i] for i in range(n))
    columns = sum(math.log(sum(math.exp(scores[i][j]) for i in range(n))) - scores[j][j] for j in range(n))
    return scores, (rows + columns) / (2 * n)


def test_the_values_are_those_of_the_formula():
    scores, loss = written_out(X, Z, 0.7)
    np.testing.assert_allclose(scaled_cosines(X, Z, S)[0], scores, rtol=1e-12)
    np.testing.assert_allclose(contrastive_loss(X, Z, S)[0], loss, rtol=1e-12)


def test_lengths_do_not_matter_and_no_number_is_too_large():
    far = X * np.array([[1e200], [1e-200], [3.0], [1.0]])
    np.testing.assert_allclose(contrastive_loss(far, Z, S)[0], contrastive_loss(X, Z, S)[0], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(unit_length(far)[0], axis=-1), 1.0, rtol=1e-12)


def test_a_vector_of_zeros_has_no_direction_and_no_gradient():
    y, backward = unit_length(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(y, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(backward(np.ones((2, 2))), [[0.0, 0.0], [0.032, -0.024]], rtol=1e-12)


def test_a_loss_of_float16_is_float32():
    x, z = X.astype("float16"), Z.astype("float16")
    loss, backward = contrastive_loss(x, z, S.astype("float16"))
    assert loss.dtype == np.float32 and {each.dtype.name for each in backward()} == {"float16"}
    np.testing.assert_allclose(loss, contrastive_loss(X, Z, S)[0], rtol=3e-3)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="contrastive_loss: the axis N must be the same"):
        contrastive_loss(X, Z[1:], S)
