"""What a part costs, counted from its sizes: each part counts itself in a method `cost`, what holds parts adds up.

For B sequences of T tokens. FLOPs are those of the matrix products of a forward pass, 2·m·k·n for (m, k) times (k, n).
`minitransformer.cost` makes the table of a whole model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Cost:
    """flops: of the matrix products of a forward pass; kept: the numbers that stay in memory for backward.

    A part counts the inputs that it keeps. So an output is counted by the parts that read it.
    """

    flops: int = 0
    kept: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.kept + other.kept)


# What a model yields for its parts: a name as in `parameters()`, with * for the number of a layer; the shape of the
# output; and the cost of one copy.
Costs: TypeAlias = Iterator[tuple[str, tuple[int, ...], Cost]]
