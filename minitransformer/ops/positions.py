"""Sinusoidal positions. Vaswani et al. 2017, section 3.5.

    PE[pos, 2i]     = sin(pos / base^(2i/D))
    PE[pos, 2i + 1] = cos(pos / base^(2i/D))

Sine and cosine of one frequency are adjacent. A step of k positions rotates each such pair by the angle
k / base^(2i/D), independently of the position: PE[pos + k] is a fixed linear map of PE[pos]. The table is a constant,
so it has no gradient.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, get_device
from ..arrays.boundary import check_integers, check_positive


def sinusoidal_positions(
    length: int,
    width: int,
    base: float = 10000.0,
    dtype: str = "float64",
    device: str | None = None,
    interleaved: bool = True,
) -> Array:
    """The table PE of shape (length, width). Raises ValueError for an odd width: sine and cosine come in pairs.

    interleaved=False puts all sines before all cosines, the same columns in another order, as Marian and Pegasus do.

    sinusoidal_positions(2, 4, base=100) is [[0, 1, 0, 1], [sin 1, cos 1, sin 0.1, cos 0.1]].
    """
    check_integers("sinusoidal_positions", length=length, width=width)
    check_positive("sinusoidal_positions", length=length, width=width, base=base)
    if width % 2:
        raise ValueError(f"sinusoidal_positions: width must be even (sine and cosine come in pairs), got {width}")
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"sinusoidal_positions: dtype must be a floating-point one, got {dtype}")
    frequencies = base ** (-np.arange(0, width, 2) / width)  # (D/2,)
    angles = np.arange(length)[:, None] * frequencies[None, :]  # (length, D/2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1 if interleaved else 1).reshape(length, width)
    return get_device(device).to_device(table.astype(dtype))
