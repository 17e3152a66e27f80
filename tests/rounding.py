"""Exact arithmetic that knows how far rounding may lead away from it: running error analysis.

Wilkinson 1986, "Error analysis revisited". A `Rounded` holds the exact numbers and, for each, how many units u of the
floating-point format the computed one may be off. Each operation adds what the errors of its operands become, by the
derivative, and one unit of its own result. What is of second order is covered by a tenth at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

SECOND_ORDER = 1.1
FUNCTION = 4.0  # units that a library's exp or tanh may be off
_exp, _log, _tanh = (np.frompyfunc(getattr(mpmath, name), 1, 1) for name in ("exp", "log", "tanh"))


class Rounded:
    """Exact numbers, and the units that the computed ones may be off."""

    def __init__(self, value: Any, units: Any = 0.0) -> None:
        self.value, self.units = value, units + 0 * value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def moved(self, move: Callable[[Any], Any]) -> Rounded:
        """The numbers in other places."""
        return Rounded(move(self.value), move(self.units))

    def __add__(self, other: Any) -> Rounded:
        other = of(other)
        value = self.value + other.value
        return Rounded(value, self.units + other.units + abs(self.value) + abs(other.value))

    def __neg__(self) -> Rounded:
        return Rounded(-self.value, self.units)

    def __sub__(self, other: Any) -> Rounded:
        return self + -of(other)

    def __rsub__(self, other: Any) -> Rounded:
        return of(other) - self

    def __mul__(self, other: Any) -> Rounded:
        other = of(other)
        value = self.value * other.value
        return Rounded(value, abs(self.value) * other.units + abs(other.value) * self.units + abs(value))

    def __matmul__(self, other: Rounded) -> Rounded:
        a, b, n = abs(self.value), abs(other.value), self.shape[-1] + 1.0
        return Rounded(self.value @ other.value, a @ other.units + self.units @ b + n * (a @ b))

    def __getitem__(self, key: Any) -> Rounded:
        return self.moved(lambda x: x[key])

    @property
    def T(self) -> Rounded:
        """The last two axes are swapped."""
        return self.moved(lambda x: x.swapaxes(-1, -2))

    @property
    def rows(self) -> Rounded:
        """All leading axes as one."""
        return self.reshape(-1, self.shape[-1])

    def reshape(self, *shape: Any) -> Rounded:
        return self.moved(lambda x: x.reshape(*shape))

    def where(self, mask: Any) -> Rounded:
        """0 where the mask is False."""
        return self.moved(lambda x: np.where(mask, x, 0 * x))

    def sum(self, **options: Any) -> Rounded:
        value = self.value.sum(**options)
        n = np.size(self.value) // np.size(value)
        return Rounded(value, self.units.sum(**options) + n * abs(self.value).sum(**options))

    def summed_to(self, shape: tuple[int, ...]) -> Rounded:
        """The gradient of what was broadcast from this shape."""
        found = self.sum(axis=tuple(range(len(self.shape) - len(shape)))) if len(shape) < len(self.shape) else self
        wide = tuple(i for i, n in enumerate(shape) if n == 1 < found.shape[i])
        return found.sum(axis=wide, keepdims=True) if wide else found


def of(x: Any) -> Rounded:
    return x if isinstance(x, Rounded) else Rounded(x)


def constant(x: float, units: float = 1.0) -> Rounded:
    """A number that is rounded to the format, or takes a few operations."""
    return Rounded(mpmath.mpf(x), units * abs(mpmath.mpf(x)))


def join(parts: list[Rounded], axis: int = -1, how: Callable[..., Any] = np.concatenate) -> Rounded:
    """Side by side."""
    return Rounded(*(how([getattr(p, name) for p in parts], axis=axis) for name in ("value", "units")))


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


def below_largest(x: Rounded, seen: Any = True) -> Rounded:
    """How far each number is below the largest of its row that is seen, which a softmax does not feel."""
    largest = np.where(seen, x.value, -mpmath.inf).max(axis=-1, keepdims=True)
    distance = x.value - np.where(largest == -mpmath.inf, 0 * largest.clip(0), largest)
    return Rounded(distance, x.units + abs(distance))


def softmax(x: Rounded, seen: Any = True) -> Rounded:
    """Over the last axis, of the entries that are seen."""
    return shares(below_largest(x, seen), seen)[0]


def shares(distance: Rounded, seen: Any = True) -> tuple[Rounded, Rounded]:
    """exp(distance) as shares of their sum, and the logarithms of these. An error of a distance changes the exponential
    by that, relatively. Where nothing is seen the shares are 0."""
    e = np.where(seen, _exp(distance.value), 0 * distance.value)
    total = e.sum(axis=-1, keepdims=True)
    total = total + (total == 0)
    y, n = e / total, e.shape[-1]
    of_total = (y * distance.units).sum(axis=-1, keepdims=True) + FUNCTION + n
    log_y = distance.value - _log(total)
    units = distance.units + of_total + FUNCTION * abs(_log(total)) + abs(log_y)
    return Rounded(y, y * (distance.units + of_total + FUNCTION + 4.0)), Rounded(log_y, units)


def inverse(x: Rounded) -> Rounded:
    """1 / x, and 0 where x is 0."""
    y = np.where(x.value == 0, 0, 1 / (x.value + (x.value == 0)))
    return Rounded(y, x.units * y * y + abs(y))


def elu_plus_one(x: Rounded) -> tuple[Rounded, Rounded]:
    """x + 1 for x > 0, else exp(x); and its slope, 1 or exp(x)."""
    y = np.where(x.value > 0, x.value + 1, _exp(np.minimum(x.value, 0 * x.value)))
    slope = np.where(x.value > 0, 0 * y + 1, y)
    return Rounded(y, x.units * slope + FUNCTION * y), Rounded(slope, x.units * slope + FUNCTION * slope)
