"""In the place of values and of gradients that nobody reads: they take no memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.backend import Array


class Unread(np.random.Generator):
    """Draws zeros that take no memory: for a model whose parameters are replaced before it computes anything.

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


class Discarded:
    """In the place of a gradient that nobody reads: what is added to it, or to a part of it, takes no memory."""

    def __iadd__(self, gradient: Array) -> Discarded:
        return self

    def __getitem__(self, part: Any) -> Discarded:
        return self

    def __setitem__(self, part: Any, gradient: Any) -> None:
        pass
