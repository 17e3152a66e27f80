"""What the kernels share: which calls they take on, and how rows are cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

BLOCK = 1 << 15  # numbers: 128 KiB of float32, so that a few such arrays fit into a core's cache


def takes(*arrays: Any) -> bool:
    """Whether these are non-empty NumPy arrays, all float32 or all float64. Anything else is left to the textbook op."""
    return all(type(x) is np.ndarray and x.size for x in arrays) and {x.dtype.char for x in arrays} in ({"f"}, {"d"})


def blocks(n_rows: int, row_size: int, block: int = BLOCK) -> Iterator[slice]:
    """Slices that cut n_rows rows into blocks of about `block` numbers."""
    step = max(1, block // row_size)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))
