"""A window on both sides: against rows computed one by one, and its mistakes."""

import numpy as np

from minitransformer.ideas.after.both_sides import BothSides
from minitransformer.ops import attention

Q, K, V = np.random.default_rng(3).normal(size=(3, 6, 4))


def test_each_query_sees_its_neighbours_that_are_real():
    real = np.array([True, True, False, True, True, True])
    found = BothSides(2)(Q, K, V, real)[0]
    for i in range(6):
        seen = [j for j in range(6) if abs(i - j) <= 2 and real[j]]
        np.testing.assert_allclose(found[i : i + 1], attention(Q[i : i + 1], K[seen], V[seen])[0], rtol=1e-12)


def test_alone_at_radius_0():
    np.testing.assert_allclose(BothSides(0)(Q, K, V)[0], V, rtol=1e-12)
