"""What a part needs to fit into one of the sockets of multi-head attention: a module with these methods.

project · split · [turn q and k] · mix q, k, v · merge · project
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..arrays.backend import Array, Pullback, Rng
from .part_cost import Cost


@runtime_checkable
class Map(Protocol):
    """Projects to queries, to keys or to values, or projects the merged heads; as Linear does."""

    @property
    def d_in(self) -> int:
        """The width of x."""

    @property
    def d_out(self) -> int:
        """The width of y."""

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. x: (..., d_in); y: (..., d_out)."""

    def cost(self, batch: int, length: int) -> Cost:
        """What a call with batch sequences of length tokens costs. The input is counted by the attention."""

    def part(self, rows: slice = ..., columns: slice = ...) -> Map:
        """A copy that reads only these numbers of x, or gives only these of y."""


@runtime_checkable
class Mix(Protocol):
    """Mixes the values of each head; as ScaledDotProduct does. Parts may hold parts, such as a window another mix.

    A mix with a method `new_cache()` makes the cache of its layer, a KeyValueCache.
    """

    @property
    def scale(self) -> float | None:
        """The factor of the scores; None for 1/√d_k."""

    @property
    def alike(self) -> bool:
        """Whether every head is mixed in the same way, so that processes may share the heads."""

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool, rng: Rng | None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv).

        q: (..., H, T_q, d_k); k: (..., H, T_k, d_k); v: (..., H, T_k, d_v); heads: (..., H, T_q, d_v). mask: boolean,
        broadcasts to (..., H, T_q, T_k). rng: of the dropout, if there is any.
        """

    def cost(self, batch: int, length: int, n_heads: int, d_k: int, d_v: int) -> Cost:
        """What a call with batch sequences of length tokens costs."""

    def head(self, i: int) -> Mix:
        """The part that mixes head i alone."""


@runtime_checkable
class Turn(Protocol):
    """Turns the queries, or the keys, before they meet: as RotaryPositions in ideas/after/rotary.py does."""

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward); backward(dturned) returns dheads. heads, turned: (..., H, T, d_k).

        The tokens are at start, start + 1, ..., or, if given, at `positions`: integers (..., T).
        """

    def cost(self, batch: int, length: int) -> Cost:
        """What a call with batch heads of length tokens costs."""


def fitting(name: str, socket: Any, *parts: Any) -> tuple[Any, ...]:
    """The parts, each of which must fit the socket or be None."""
    for part in parts:
        if part is not None and not isinstance(part, socket):
            raise TypeError(
                f"MultiHeadAttention: {name} must be a {socket.__name__} (core/layers/sockets.py), got {part}"
            )
    return parts


def fitting_maps(n_heads: int, *maps: Any) -> tuple[Any, ...]:
    """The maps of queries, keys, values and the merged heads, in which each head must have the same width."""
    query, key, value, output = fitting("each map", Map, *maps)
    d_k, d_v = query.d_out // n_heads, output.d_in // n_heads
    n_key_heads = key.d_out // max(1, d_k)
    widths = query.d_out, key.d_out, value.d_out, output.d_in
    if widths != (n_heads * d_k, n_key_heads * d_k, n_key_heads * d_v, n_heads * d_v):
        raise ValueError(f"MultiHeadAttention: maps of {n_heads} heads must give each an equal width, got {widths}")
    return maps
