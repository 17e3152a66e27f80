"""Remarks on obvious features of a wrong output that no known mistake explains."""

from __future__ import annotations

import numpy as np

from .comparison import TOLERANCE, close, of_one_kind

Answers = list[np.ndarray | str]  # one for each trial


def remark(got: Answers, expected: list[np.ndarray], scales: list[float]) -> str:
    """A sentence on an output that is wrong in some trial, or "".

    It must hold in every trial: the output is transposed, always the same, or wrong by one factor or summand.
    """
    said = _transposed(got, expected, scales) or _constant(got) or _by_summand(got, expected, scales)
    factors = [] if said else [factor for factor, _, _ in _factors(got, expected, scales, [""] * len(got))]
    if not factors or not np.allclose(factors, factors[0], rtol=10.0 * TOLERANCE):
        return said
    if abs(factors[0] + 1.0) < 10.0 * TOLERANCE:
        return "It has the wrong sign but is otherwise right."
    if abs(factors[0]) < TOLERANCE:
        return "It is zero but for rounding, and must not be."
    return f"It is {factors[0]:.6g} times what it should be."


def changing_factor(got: Answers, expected: list[np.ndarray], scales: list[float], inputs: list[str]) -> str:
    """A sentence on an output that is wrong by a factor which is not the same for all inputs, or "".

    inputs: those of each trial, in words.
    """
    telling = [(factor, where) for factor, where, size in _factors(got, expected, scales, inputs) if size > 1]
    (least, here), (most, there) = min(telling, default=(0.0, "")), max(telling, default=(0.0, ""))
    if np.isclose(least, most):
        return ""
    return (
        "It is what it should be times a factor that depends on the inputs. "
        f"The factor is {least:.6g} for {here}, and {most:.6g} for {there}."
    )


def _transposed(got: list[np.ndarray | str], expected: list[np.ndarray], scales: list[float]) -> str:
    for one, right, scale in zip(got, expected, scales, strict=True):
        if isinstance(one, str) or one.ndim < 2 or not close(one.swapaxes(-1, -2), right, scale):
            return ""
    how = ".T" if expected[0].ndim == 2 else ".swapaxes(-1, -2)"
    return f"It is the transpose of what was expected: transpose it once more, with {how}."


def _constant(got: list[np.ndarray | str]) -> str:
    values = [x for one in got if isinstance(one, np.ndarray) and one.dtype.kind in "bf" for x in np.unique(one)]
    if len(set(values)) != 1 or any(isinstance(one, str) for one in got):
        return ""
    value: object = values[0].item()
    if isinstance(value, float):
        value = "zero" if value == 0.0 else f"{value:.6g}"
    return (
        f"It is {value} for all inputs." if all(np.ndim(one) == 0 for one in got) else f"All its entries are {value}."
    )


def _pairs(got: Answers, expected: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both as numbers, for each trial; nothing unless they can be compared in all."""
    pairs = []
    for one, right in zip(got, expected, strict=True):
        if isinstance(one, str) or one.shape != right.shape or not of_one_kind(one, right) or right.dtype.kind != "f":
            return []
        if not (np.isfinite(one).all() and np.isfinite(right).all()):
            return []
        pairs.append((one.astype(np.float64), right))
    return pairs


def _by_summand(got: Answers, expected: list[np.ndarray], scales: list[float]) -> str:
    pairs = _pairs(got, expected)
    summands = [float((one - right).mean()) for one, right in pairs]
    if not pairs or not all(close(x - summands[0], y, scale) for (x, y), scale in zip(pairs, scales, strict=True)):
        return ""
    everywhere = " everywhere" if any(right.size > 1 for right in expected) else ""
    return f"It is {abs(summands[0]):.6g} too {'large' if summands[0] > 0 else 'small'}{everywhere}."


def _factors(
    got: Answers, expected: list[np.ndarray], scales: list[float], inputs: list[str]
) -> list[tuple[float, str, int]]:
    """For each trial the factor by which it is off, the inputs and the number of entries; nothing if one is not.

    Of one entry a factor says nothing: any number is a multiple of any other. Of zeros neither.
    """
    factors = []
    for (one, right), scale, where in zip(_pairs(got, expected), scales, inputs, strict=False):
        norm = float((right * right).sum())
        factor = float((one * right).sum()) / norm if norm else 1.0
        if not close(one, factor * right, scale):
            return []
        if abs(right).max() > TOLERANCE * scale:
            factors.append((factor, where, right.size))
    return factors
