"""The quick GELU: against its formula, beside GELU, and its mistakes."""

import math

import numpy as np

from minitransformer import ops
from minitransformer.ideas.after.quick_gelu import quick_gelu


def test_the_values_are_those_of_the_formula():
    x = np.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(quick_gelu(x)[0], [a / (1.0 + math.exp(-1.702 * a)) for a in x], rtol=1e-13)
    assert 0.01 < abs(quick_gelu(x)[0] - ops.gelu(x)[0]).max() < 0.0204


def test_huge_numbers():
    y, backward = quick_gelu(np.array([-1e30, 0.0, 1e30]))
    np.testing.assert_array_equal(y, [0.0, 0.0, 1e30])
    np.testing.assert_array_equal(backward(np.ones(3)), [0.0, 0.5, 1.0])
