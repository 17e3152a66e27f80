"""A weight as the loops of decoding take it, packed or not."""

from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published.packed import PackedWeight
from ...ideas.published.packing import numbers_in

KINDS = {"Q8_0": 0, "Q4_0": 1, "Q4_1": 2, "Q5_0": 3, "Q4_K": 4, "Q6_K": 5, "BF16": 6, "F32": 7}  # of packed rows
PLAIN = -1  # a matrix that is not stored as packed rows
_NO_NUMBERS, _NO_ROWS = np.empty((0, 0), np.float32), np.empty((0, 0), np.uint8)
_NO_ROWS.flags.writeable = False  # as packed rows are: the loops are compiled for these


def form_of(weight: Any) -> tuple[int, Array, Array] | None:
    """A matrix W as the loops take it; None if they cannot. weight: an array, or a PackedWeight of rows of Wᵀ.

    Returns how the rows of Wᵀ are packed, W, and these rows: one of the two arrays is empty.
    """
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
