"""The exercise on a contrastive loss."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    n, d = draw.sizes(2, 3, 7)
    return draw.normal(n, d), draw.normal(n, d), draw.uniform(0.5, 2.5), draw.uniform(0.5, 2.0)


@exercise(_backward)
def contrastive_loss_backward(x: Array, z: Array, log_scale: float, dloss: float) -> tuple[Array, Array, float]:
    """A contrastive loss, backward.

    Row i of x is a picture, row i of z its text. Each row is divided by its length, which makes u of x and v of z.
    Then scores = e^log_scale u vᵀ. The loss is the mean of two cross-entropies, each a mean over the batch: in row i
    of the scores the right answer is column i, and in column i it is row i. Given dloss, return the
    gradients of x, z and log_scale.

    x, dx, z, dz: (N, D); log_scale, dlog_scale, dloss: numbers.

    Hint: dscores has a softmax of the rows, one of the columns, and on the diagonal what a right answer takes away; how
    often? The logarithm of the scale is learned, so what is the slope of the scores in it? At last, a row of u cannot
    become longer: which part of du is lost on the way to dx, and what is the rest divided by?
    """
    n = len(x)
    x_length, z_length = (np.linalg.norm(each, axis=1, keepdims=True) for each in (x, z))
    u, v = x / x_length, z / z_length
    scale = np.exp(log_scale)
    cosines = u @ v.T
    exponentials = np.exp(scale * (cosines - 1.0))
    rows = exponentials / exponentials.sum(axis=1, keepdims=True)
    columns = exponentials / exponentials.sum(axis=0, keepdims=True)
    dscores = dloss * (rows + columns - 2.0 * np.eye(n)) / (2.0 * n)
    dlog_scale = (dscores * scale * cosines).sum()
    du = scale * dscores @ v
    dv = scale * dscores.T @ u
    dx = (du - u * (du * u).sum(axis=1, keepdims=True)) / x_length
    dz = (dv - v * (dv * v).sum(axis=1, keepdims=True)) / z_length
    return dx, dz, dlog_scale
