"""A weight as the loops of decoding take it, packed or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published.packed import PackedWeight
from ...ideas.published.packing import numbers_in

_NO_NUMBERS, _NO_ROWS = np.empty((0, 0), np.float32), np.empty((0, 0), np.uint8)
_NO_ROWS.flags.writeable = False  # as packed rows are: the loops are compiled for these


def form_of(weight: Any) -> tuple[int, Array, Array] | None:
    """A matrix W as the loops take it; None if they cannot. weight: an array, or a PackedWeight of rows of Wᵀ.

    Returns how the rows of Wᵀ are packed, W, and these rows: one of the two arrays is empty.
    """
    from .packed_loops import KINDS, PLAIN  # needs Numba

    if isinstance(weight, PackedWeight):
        fits = weight.kind in KINDS and weight.rows.flags.c_contiguous
        fits = fits and numbers_in(weight.rows, weight.kind) >= weight.width
        return (KINDS[weight.kind], _NO_NUMBERS, weight.rows) if fits else None
    if type(weight) is not np.ndarray or weight.dtype != np.float32 or weight.ndim != 2:
        return None
    if weight.flags.carray:
        return PLAIN, weight, _NO_ROWS
    if weight.T.flags.carray:
        rows = weight.T.view(np.uint8)
        rows.flags.writeable = False
        return KINDS["F32"], _NO_NUMBERS, rows
    return None
