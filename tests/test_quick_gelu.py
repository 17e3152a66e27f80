"""The quick GELU: against its formula, beside GELU, and its mistakes."""

import math

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.ideas.after.quick_gelu import quick_gelu
from minitransformer.verify import CASES

OURS = [m for m in MISTAKES.values() if m.target.startswith("ideas.after.quick_gelu.")]


def test_the_values_are_those_of_the_formula():
    x = np.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(quick_gelu(x)[0], [a / (1.0 + math.exp(-1.702 * a)) for a in x], rtol=1e-13)
    assert 0.01 < abs(quick_gelu(x)[0] - ops.gelu(x)[0]).max() < 0.0204


def test_huge_numbers():
    y, backward = quick_gelu(np.array([-1e30, 0.0, 1e30]))
    np.testing.assert_array_equal(y, [0.0, 0.0, 1e30])
    np.testing.assert_array_equal(backward(np.ones(3)), [0.0, 0.5, 1.0])


@pytest.mark.few(1)
@pytest.mark.parametrize("mistake", OURS, ids=lambda mistake: mistake.name)
def test_each_mistake_shows_where_it_says(mistake):
    assert len(OURS) >= 3 and mistake.cases
    for case in mistake.cases:
        with mistake.applied():
            assert not CASES[case].run().ok, case
