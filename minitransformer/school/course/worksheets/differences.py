"""Compare the answers of a sheet with two things that are independent of the library: the printed formulas, and finite
differences of the forward formulas.

Every backward step is the derivative of L = sum(upstream ⊙ output) along some displacement of a forward value. The step
`dname` displaces each entry of `name`; the others (row sums, means) use the displacement that the step names.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .sheet import Sheet, Step, Values

_STEP = 1e-5
_TOLERANCE = 1e-6


def errors(sheet: Sheet) -> Iterator[tuple[str, str, float]]:
    """(step, "formula" or "difference", largest deviation) for every step; a "difference" only in the backward pass."""
    values: dict[str, np.ndarray] = {**sheet.given, **sheet.answers}
    for step in sheet.task.steps:
        answer = sheet.answers[step.name]
        yield step.name, "formula", _deviation(step.computed(values), answer)
        if step.backward:
            yield step.name, "difference", _deviation(_slope(sheet, step, values), answer)


def require_right(sheet: Sheet) -> None:
    """Raise RuntimeError if an answer deviates: a sheet with a wrong key must not be handed out."""
    for name, by, error in errors(sheet):
        if not error <= _TOLERANCE:
            raise RuntimeError(f"the answer to {name} of {sheet.label} deviates from its {by} by {error:.1e}")


def _slope(sheet: Sheet, step: Step, values: Values) -> np.ndarray:
    shape = sheet.answers[step.name].shape
    slope, value = np.zeros(shape), values[step.moved]
    for index in np.ndindex(shape):
        t = np.zeros(shape)
        t[index] = _STEP
        up, down = (_loss(sheet, step.moved, step.displaced(value, sign * t)) for sign in (1.0, -1.0))
        slope[index] = (up - down) / (2.0 * _STEP)
    return slope


def _loss(sheet: Sheet, name: str, value: np.ndarray) -> float:
    """L, if the value called `name` is replaced and everything that follows from it is recomputed by the formulas."""
    values = {**sheet.given, name: value}
    for step in sheet.forward_steps:
        if step.name != name:
            values[step.name] = step.computed(values)
    upstream = sheet.given.get("d" + sheet.task.output, np.array(1.0))  # without it, L is the output itself
    return float((upstream * values[sheet.task.output]).sum())


def _deviation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max()) if one.shape == other.shape else np.inf
