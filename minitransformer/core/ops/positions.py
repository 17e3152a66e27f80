"""Sinusoidal positions. Vaswani et al. 2017, section 3.5.

    PE[pos, 2i]     = sin(pos / base^(2i/D))
    PE[pos, 2i + 1] = cos(pos / base^(2i/D))

Sine and cosine of one frequency are adjacent. A step of k positions rotates each such pair by the angle
a = k / base^(2i/D), whatever the position, by the sums of angles:

    sin(x + a) =  cos(a) sin(x) + sin(a) cos(x)
    cos(x + a) = -sin(a) sin(x) + cos(a) cos(x)

So PE[pos + k] = PE[pos] S(k), with a matrix S(k) of D/2 rotations in blocks on its diagonal: a fixed linear map, and
S(j) S(k) = S(j + k). The table is a constant, so it has no gradient.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, get_device
from ..arrays.declared import declared


@declared("length > 0; width > 0; base > 0")
def sinusoidal_positions(
    length: int, width: int, base: float = 10000.0, dtype: str = "float64", device: str | None = None
) -> Array:
    """The table PE of shape (length, width). Raises ValueError for an odd width: sine and cosine come in pairs.

    sinusoidal_positions(2, 4, base=100) is [[0, 1, 0, 1], [sin 1, cos 1, sin 0.1, cos 0.1]].
    """
    if width % 2:
        raise ValueError(f"sinusoidal_positions: width must be even (sine and cosine come in pairs), got {width}")
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"sinusoidal_positions: dtype must be a floating-point one, got {dtype}")
    frequencies = base ** (-np.arange(0, width, 2) / width)  # (D/2,)
    angles = np.arange(length)[:, None] * frequencies[None, :]  # (length, D/2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)
    return get_device(device).to_device(table.astype(dtype))


@declared("width > 0; base > 0")
def shift_of_positions(k: int, width: int, base: float = 10000.0) -> np.ndarray:
    """S(k), (width, width), with sinusoidal_positions(...)[pos] @ S(k) = sinusoidal_positions(...)[pos + k].

    k: an integer, also below 0. Vaswani et al. 2017, section 3.5, which says that there is such a map.
    """
    if width % 2:
        raise ValueError(f"shift_of_positions: width must be even (sine and cosine come in pairs), got {width}")
    shift = np.zeros((width, width))
    for i in range(0, width, 2):
        angle = k * base ** (-i / width)
        cos, sin = np.cos(angle), np.sin(angle)
        shift[i : i + 2, i : i + 2] = [[cos, -sin], [sin, cos]]
    return shift
