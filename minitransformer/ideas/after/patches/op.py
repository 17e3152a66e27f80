"""Patches of an image. Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words", section 3.1.

A Transformer reads a sequence of vectors, and an image is a grid of pixels. So the image is cut into tiles of p × q
pixels, and the numbers of a tile, side by side, are one vector. Tile (i, j) has

    row i·columns + j of y:   pixels_{c, i·p + a, j·q + b}, for each column b, each row a of it, each channel c

so C channels of H × W pixels become N = ⌊H/p⌋ · ⌊W/q⌋ vectors of q·p·C numbers. Pixels beyond the last whole tile are
left out. The matrix that comes next mixes all numbers of a tile, so it does not matter which of them stands where.

Cutting copies numbers and computes nothing: it is a linear map whose matrix holds zeros and ones, one 1 in each row.
The transposed matrix puts each number back where it came from, and gives 0 to pixels that no tile has:

    dpixels_{c, i·p + a, j·q + b}   from row i·columns + j of dy, at the same place
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op


@op("pixels: (..., C, H, W); y: (..., N, n); p, q > 0")
def patches(pixels: Array, p: int, q: int) -> tuple[Array, Pullback]:
    """Cut an image into tiles of p × q pixels, row by row. n: the numbers of a tile, q·p·C.

    Raises ValueError for a tile that is larger than the image. backward(dy) returns dpixels.
    """
    *leading, channels, height, width = shape = pixels.shape
    rows, columns = height // p, width // q
    if not rows * columns:
        raise ValueError(f"patches: a tile must fit into the image of {height} × {width} pixels, got {p} × {q}")
    n = len(leading)
    # (channels, rows, p, columns, q) to (rows, columns, q, p, channels)
    there = [*range(n), n + 1, n + 3, n + 4, n + 2, n]
    back = [*range(n), n + 4, n, n + 3, n + 1, n + 2]
    whole = pixels[..., : rows * p, : columns * q]

    grid = whole.reshape(*leading, channels, rows, p, columns, q)
    tiles = grid.transpose(there)
    y = tiles.reshape(*leading, rows * columns, q * p * channels)

    def backward(dy: Array) -> Array:
        dtiles = dy.reshape(*leading, rows, columns, q, p, channels)
        dgrid = dtiles.transpose(back)
        dwhole = dgrid.reshape(*leading, channels, rows * p, columns * q)
        dpixels = array_module(dy).zeros(shape, dy.dtype)
        dpixels[..., : rows * p, : columns * q] = dwhole
        return dpixels

    return y, backward
