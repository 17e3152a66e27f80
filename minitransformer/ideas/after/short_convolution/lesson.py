"""The exercise on the short convolution."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, length, width = draw.sizes(3, 2, 7)
    kernel = 1 if draw.ones else draw.integer(2, 4)
    return draw.normal(batch, length, width), draw.normal(kernel, width), draw.gradient(batch, length, width)


@exercise(_backward)
def short_convolution_backward(x: Array, weight: Array, dy: Array) -> tuple[Array, Array]:
    """Short convolution, backward.

    Each channel c has a filter of K weights: y_tc = sum_j weight_jc · x_{t-(K-1)+j, c}, where j = 0, ..., K - 1, and an
    x before the start is 0. Given dy, return the gradients of x and of weight.

    x, dx, dy: (B, T, D); weight, dweight: (K, D). K may be larger than T.

    Hint: Put K - 1 zeros in front of x; then output t reads the places t, ..., t + K - 1. Which outputs use place i?
    """
    reach, length = weight.shape[0] - 1, x.shape[1]
    seen = np.concatenate([np.zeros((x.shape[0], reach, x.shape[2])), x], axis=1)
    dseen, dweight = np.zeros_like(seen), np.zeros_like(weight)
    for j in range(reach + 1):
        dseen[:, j : j + length] += weight[j] * dy
        dweight[j] = (dy * seen[:, j : j + length]).sum(axis=(0, 1))
    dx = dseen[:, reach:]
    return dx, dweight
