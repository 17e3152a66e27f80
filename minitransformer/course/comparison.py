"""When two numbers count as equal."""

from __future__ import annotations

import numpy as np

# How far an answer may be from the reference, relative to its largest entry: rounding, and nothing that is a mistake.
# To be named, a mistake must come closer still, so that chance resemblance does not count. By bytes of a number.
RIGHT = {4: 5e-4, 8: 1e-7}
ALIKE = {4: 5e-4, 8: 1e-9}


def near(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
    """Where two arrays differ by no more than the tolerance, or are both the same infinity, or both NaN."""
    with np.errstate(invalid="ignore"):
        return (a == b) | (abs(a - b) <= tolerance) | ((a != a) & (b != b))


def of_one_kind(got: np.ndarray, right: np.ndarray) -> bool:
    """Whether both hold booleans, or both floating-point numbers, and those of `got` are float32 at least."""
    return got.dtype.kind == right.dtype.kind and (got.dtype.kind == "b" or got.dtype.itemsize >= 4)


def differing(got: np.ndarray, right: np.ndarray, tolerances: dict[int, float]) -> np.ndarray:
    """Where two arrays of one shape and kind differ by more than rounding."""
    if right.dtype.kind != "f":
        return got != right
    largest = float(abs(right[np.isfinite(right)]).max(initial=0.0))
    return ~near(got, right, tolerances[min(got.dtype.itemsize, 8)] * (largest or 1.0))


def close(got: np.ndarray | str, right: np.ndarray, tolerances: dict[int, float]) -> bool:
    """Whether there is an array, and it equals the right one in shape, in kind and, up to rounding, in value."""
    if isinstance(got, str) or got.shape != right.shape or not of_one_kind(got, right):
        return False
    return not differing(got, right, tolerances).any()
