"""Initial values that nobody reads: for a model whose parameters are replaced before it computes anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class Unread(np.random.Generator):
    """Draws zeros that take no memory, in place of random numbers.

    at_most: how many numbers may be drawn; more raise ValueError, before a model of hostile sizes takes memory.
    """

    def __init__(self, at_most: float | None = None) -> None:
        super().__init__(np.random.PCG64(0))
        self.left = at_most

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Zeros that all share one number in memory."""
        if self.left is not None:
            self.left -= math.prod((size,) if isinstance(size, int) else size)
            if self.left < 0:
                raise ValueError("these sizes ask for more numbers than the file holds")
        return np.broadcast_to(np.float32(0.0), size)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """As normal."""
        return self.normal(low, high, size)
