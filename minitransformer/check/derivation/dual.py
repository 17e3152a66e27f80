"""Derivatives without rounding: a fraction and how fast it changes (Clifford 1873, dual numbers)."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np


@functools.total_ordering
class Dual:
    """value + slope ε, where ε² = 0; both are fractions."""

    def __init__(self, value: Fraction, slope: Fraction) -> None:
        self.value, self.slope = value, slope

    def __add__(self, other: Any) -> Dual:
        return Dual(self.value + _value(other), self.slope + _slope(other))

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __sub__(self, other: Any) -> Dual:
        return self + -other

    def __rsub__(self, other: Any) -> Dual:
        return -self + other

    def __mul__(self, other: Any) -> Dual:
        return Dual(self.value * _value(other), self.slope * _value(other) + self.value * _slope(other))

    def __truediv__(self, other: Any) -> Dual:
        below = _value(other)
        return Dual(self.value / below, (self.slope - self.value / below * _slope(other)) / below)

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual(other, Fraction(0)) / self

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: Any) -> bool:
        return bool(self.value == _value(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _value(other))

    __hash__ = None  # type: ignore[assignment]


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Dual) else number


def _slope(number: Any) -> Any:
    return number.slope if isinstance(number, Dual) else Fraction(0)


def moving(slopes: Any) -> Any:
    """Zeros that change as fast as these fractions say."""
    return np.vectorize(lambda slope: Dual(Fraction(0), Fraction(slope)), otypes=[object])(slopes)


def slopes_of(array: Any) -> Any:
    """How fast each entry changes."""
    return np.vectorize(_slope, otypes=[object])(array)
