"""A convolution with a stride: against sums written out, its mistakes, and what teaches it."""

import numpy as np
import pytest
from value_checks import CLOSE, rejects

from minitransformer import course, ideas, layers
from minitransformer.ideas.after.front_end import FrontEnd, StridedConvolution, strided_convolution

RNG = np.random.default_rng(3)
X, WEIGHT, BIAS = RNG.normal(size=(2, 8, 3)), RNG.normal(size=(5, 3, 4)), RNG.normal(size=4)


def written_out(x, weight, bias, stride):
    kernel, t = len(weight), x.shape[1]
    y = np.zeros((len(x), -(-t // stride), len(bias))) + bias
    for n in range(y.shape[1]):
        for j in range(kernel):
            at = stride * n + j - (kernel - 1) // 2
            if 0 <= at < t:
                y[:, n] += x[:, at] @ weight[j]
    return y


@pytest.mark.parametrize("stride", [1, 2, 3, 9])
def test_the_values_are_those_of_the_formula(stride):
    found = strided_convolution(X, WEIGHT, BIAS, stride)[0]
    np.testing.assert_allclose(found, written_out(X, WEIGHT, BIAS, stride), rtol=1e-12)


def test_without_a_stride_it_is_the_convolution():
    np.testing.assert_array_equal(strided_convolution(X, WEIGHT, BIAS)[0], ideas.convolution(X, WEIGHT, BIAS)[0])


def test_a_front_end_halves_the_frames():
    end = FrontEnd(3, 4, 8, layers.LearnedPositions(4, 4)).to(dtype="float64")
    features = RNG.normal(size=(2, 3, 7))
    assert end(features)[0].shape == (2, 4, 4)
    with pytest.raises(ValueError, match=r"with at most T = 8 frames, got shape \(2, 3, 9\)"):
        end(RNG.normal(size=(2, 3, 9)))
    with pytest.raises(ValueError, match="StridedConvolution: "):
        end(RNG.normal(size=(2, 4, 7)))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a centred window needs an odd kernel, got 4"):
        strided_convolution(X, WEIGHT[:4], BIAS)
    with pytest.raises(ValueError, match="stride must be"):
        StridedConvolution(3, 4, stride=0)


@rejects("strided-window-not-centred")
def a_window_is_around_its_position():
    found = strided_convolution(X, WEIGHT, BIAS, 2)[0]
    np.testing.assert_allclose(found, written_out(X, WEIGHT, BIAS, 2), **CLOSE)


def test_the_exercise_takes_what_the_op_does():
    def by_the_op(x, weight, stride, dy):
        return strided_convolution(x, weight, np.zeros(weight.shape[-1]), stride)[1](dy)

    assert course.check("strided_convolution_backward", by_the_op).right
