"""The exercise on a convolution with a stride."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, t, d_in, d_out = draw.sizes(4, 3, 8)
    kernel = 1 if draw.ones else 3
    stride = 1 if draw.ones else draw.integer(2, 3)
    outputs = -(-t // stride)
    x, weight = draw.normal(batch, t, d_in), draw.normal(kernel, d_in, d_out)
    return x, weight, stride, draw.gradient(batch, outputs, d_out)


@exercise(_backward)
def strided_convolution_backward(x: Array, weight: Array, stride: int, dy: Array) -> tuple[Array, Array, Array]:
    """A convolution with a stride, backward.

    Output t is a linear map of the k inputs around position stride · t:
    y_t = bias + Σ_j x[stride · t + j - (k - 1) / 2] weight_j, for j from 0 to k - 1. An x outside the sequence is 0.
    Given dy, return the gradients of x, weight and bias. k is odd.

    x, dx: (B, T, D_in); weight, dweight: (k, D_in, D_out); stride: a number; dy: (B, ⌈T / stride⌉, D_out);
    dbias: (D_out,).

    Hint: Go through the places j of a window. At place j the outputs read every stride-th input, from one that depends
    on j. So dy goes back to every stride-th input as well, and an input that was read several times adds up.
    """
    kernel, t = len(weight), x.shape[1]
    before = (kernel - 1) // 2
    padded = np.pad(x, ((0, 0), (before, before), (0, 0)))
    dpadded, dweight = np.zeros(padded.shape), np.zeros(weight.shape)
    for j in range(kernel):
        read = padded[:, j : j + t : stride]
        dweight[j] = np.einsum("bti,bto->io", read, dy)
        dpadded[:, j : j + t : stride] += dy @ weight[j].T
    dx = dpadded[:, before : before + t]
    dbias = dy.sum(axis=(0, 1))
    return dx, dweight, dbias
