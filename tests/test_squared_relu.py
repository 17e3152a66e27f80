"""The square of a ReLU: against its formula, and its mistakes."""

import numpy as np
from value_checks import CLOSE, rejects

from minitransformer.ideas.after.squared_relu import squared_relu


@rejects("squared-relu-not-cut")
def numbers_below_zero_give_zero():
    y, backward = squared_relu(np.array([-3.0, -0.5, 0.0, 0.5, 3.0]))
    np.testing.assert_allclose(y, [0.0, 0.0, 0.0, 0.25, 9.0], **CLOSE)
    np.testing.assert_allclose(backward(np.full(5, 10.0)), [0.0, 0.0, 0.0, 10.0, 60.0], **CLOSE)


def test_values():
    numbers_below_zero_give_zero()
    y, backward = squared_relu(np.array([0.5, -2.0], np.float16))
    assert y.dtype == backward(y).dtype == np.float16
