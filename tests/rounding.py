"""Exact arithmetic that knows how far rounding may lead away from it: running error analysis.

Wilkinson 1986, "Error analysis revisited". A `Rounded` holds the exact numbers and, for each, how many units u of the
floating-point format the computed one may be off. Each operation adds what the errors of its operands become, by the
derivative, and one unit of its own result. What is of second order is covered by a factor of 2 at the end.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

FUNCTION = 4.0  # units that a library's exp or tanh may be off
_exp, _tanh = (np.frompyfunc(getattr(mpmath, name), 1, 1) for name in ("exp", "tanh"))


class Rounded:
    """Exact numbers, and the units that the computed ones may be off."""

    def __init__(self, value: Any, units: Any = 0.0) -> None:
        self.value, self.units = value, units + 0 * value

    def __add__(self, other: Any) -> Rounded:
        other = of(other)
        value = self.value + other.value
        return Rounded(value, self.units + other.units + abs(self.value) + abs(other.value))

    def __sub__(self, other: Any) -> Rounded:
        other = of(other)
        return self + Rounded(-other.value, other.units)

    def __rsub__(self, other: Any) -> Rounded:
        return of(other) - self

    def __mul__(self, other: Any) -> Rounded:
        other = of(other)
        value = self.value * other.value
        return Rounded(value, abs(self.value) * other.units + abs(other.value) * self.units + abs(value))

    def __matmul__(self, other: Rounded) -> Rounded:
        a, b, n = abs(self.value), abs(other.value), self.value.shape[-1] + 1.0
        return Rounded(self.value @ other.value, a @ other.units + self.units @ b + n * (a @ b))

    def __getitem__(self, key: Any) -> Rounded:
        return Rounded(self.value[key], self.units[key])

    @property
    def T(self) -> Rounded:
        return Rounded(self.value.T, self.units.T)

    def sum(self, **options: Any) -> Rounded:
        n = self.value.size
        return Rounded(self.value.sum(**options), self.units.sum(**options) + n * abs(self.value).sum(**options))

    def bound(self) -> tuple[Any, Any, float]:
        return self.value, self.units, 2.0


def of(x: Any) -> Rounded:
    return x if isinstance(x, Rounded) else Rounded(x)


def join(parts: list[Rounded]) -> Rounded:
    """Side by side."""
    return Rounded(*(np.concatenate([getattr(p, name) for p in parts], axis=-1) for name in ("value", "units")))


def exp(x: Rounded) -> Rounded:
    y = _exp(x.value)
    return Rounded(y, (x.units + FUNCTION) * y)


def tanh(x: Rounded) -> Rounded:
    y = _tanh(x.value)
    return Rounded(y, x.units + FUNCTION * abs(y))


def logistic(x: Rounded) -> Rounded:
    """Its slope is at most 1/4."""
    y = 1 / (1 + _exp(-x.value))
    return Rounded(y, x.units / 4 + (FUNCTION + 3.0) * y)


def softmax(x: Rounded, seen: Any = True) -> Rounded:
    """Over the last axis, of the entries that are seen. An error of a score changes the weights by that, relatively."""
    distance = x.value - np.where(seen, x.value, -mpmath.inf).max(axis=-1, keepdims=True)
    e = np.where(seen, _exp(distance), 0 * distance)
    y = e / e.sum(axis=-1, keepdims=True)
    off = x.units + np.where(seen, abs(distance), 0 * distance)
    worst = np.where(seen, off, 0 * off).max(axis=-1, keepdims=True)
    return Rounded(y, y * (2 * worst + 2 * FUNCTION + x.value.shape[-1] + 4.0))


def inverse(x: Rounded) -> Rounded:
    """1 / x of numbers that are not 0."""
    y = 1 / x.value
    return Rounded(y, x.units * y * y + abs(y))


def elu_plus_one(x: Rounded) -> tuple[Rounded, Rounded]:
    """x + 1 for x > 0, else exp(x); and its slope, 1 or exp(x)."""
    y = np.where(x.value > 0, x.value + 1, _exp(np.minimum(x.value, 0 * x.value)))
    slope = np.where(x.value > 0, 0 * y + 1, y)
    return Rounded(y, x.units * slope + FUNCTION * y), Rounded(slope, x.units * slope + FUNCTION * slope)
