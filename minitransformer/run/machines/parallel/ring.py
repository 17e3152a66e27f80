"""Rings: collectives made of send and receive alone, which count the bytes that they send.

The ranks stand in a circle, and each sends only to the next one. To sum arrays, each is cut into n stretches. In every
step a rank passes one stretch on, adds its own numbers to the one that arrives, and passes that on in the next step:

                    rank 0 sends    rank 1 sends    rank 2 sends          of three, each cut in s_0 s_1 s_2
    step 0          s_2             s_0             s_1
    step 1          s_1             s_2             s_0                   each a sum of two

After n - 1 steps rank r has the whole sum of s_r: reduce-scatter. In n - 1 more steps the finished stretches go around
unchanged: all-gather. Both together are the all-reduce. In each half a rank sends (n - 1)/n of the array, so 2(n - 1)/n
of it in all: less than twice the array for any number of ranks. No algorithm sends less (Patarasuk and Yuan 2009,
"Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.arrays.backend import Array, array_module
from .group import Group, lengths


class Ring(Group):
    """The ranks of another group, with rings in place of its collectives. sent: the bytes that this rank has sent."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size, self._group = group.rank, group.size, group
        self._left, self._right = (group.rank - 1) % group.size, (group.rank + 1) % group.size
        self.sent = 0

    def broadcast(self, x: Array, root: int) -> Array:
        """See Group. The array goes around once."""
        y = x.copy() if self.rank == root else self.receive(x, self._left)
        if self._right != root:
            self.send(y, self._right)
        return y

    def sum(self, x: Array) -> Array:
        flat = x.ravel()
        parts = lengths(flat.size, self.size)
        return self.gather(self.scatter_sum(flat, parts), parts).reshape(x.shape)

    def gather(self, x: Array, lengths: Sequence[int]) -> Array:
        parts = {self.rank: x}
        for step in range(self.size - 1):
            self.send(parts[(self.rank - step) % self.size], self._right)
            arriving = (self.rank - step - 1) % self.size
            like = array_module(x).empty((lengths[arriving], *x.shape[1:]), x.dtype)
            parts[arriving] = self.receive(like, self._left)
        return array_module(x).concatenate([parts[rank] for rank in range(self.size)])

    def scatter_sum(self, x: Array, lengths: Sequence[int]) -> Array:
        ends = np.cumsum(lengths).tolist()
        parts = [x[end - length : end].copy() for end, length in zip(ends, lengths, strict=True)]
        for step in range(self.size - 1):
            self.send(parts[(self.rank - step - 1) % self.size], self._right)
            arriving = (self.rank - step - 2) % self.size
            parts[arriving] += self.receive(parts[arriving], self._left)
        return parts[self.rank]

    def send(self, x: Array, to: int) -> None:
        self.sent += x.nbytes
        self._group.send(x, to)

    def receive(self, like: Array, source: int) -> Array:
        return self._group.receive(like, source)

    def split(self, part: int) -> Ring:
        """See Group. The new ring keeps its own count of bytes."""
        return Ring(self._group.split(part))
