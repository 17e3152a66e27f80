"""The exercise on patches."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    channels, p, q, rows, columns = draw.sizes(5, 2, 6)
    rest = 0 if draw.ones else 1
    pixels = draw.normal(channels, rows * p + rest, columns * q + rest)
    return pixels, p, q, draw.gradient(rows * columns, q * p * channels)


@exercise(_backward)
def patches_backward(pixels: Array, p: int, q: int, dy: Array) -> Array:
    """Patches, backward.

    An image was cut into rows × columns tiles of p × q pixels, row by row: y[i · columns + j] is tile (i, j). Its
    numbers lie in this order: for each column b of the tile, for each row a, for each channel c, the number
    pixels[c, i · p + a, j · q + b]. What fills no whole tile was left out.
    Given dy, return the gradient of the pixels.

    pixels, dpixels: (C, H, W); p, q: numbers; dy: (rows · columns, q · p · C).

    Hint: Give dy five axes, one for each index in the order above, and bring them into the order of the pixels:
    channel; tile row, row in the tile; tile column, column in the tile. What gradient has a pixel that is in no tile?
    """
    channels, height, width = pixels.shape
    rows, columns = height // p, width // q
    dtiles = dy.reshape(rows, columns, q, p, channels)
    dwhole = dtiles.transpose(4, 0, 3, 1, 2).reshape(channels, rows * p, columns * q)
    dpixels = np.zeros(pixels.shape)
    dpixels[:, : rows * p, : columns * q] = dwhole
    return dpixels
