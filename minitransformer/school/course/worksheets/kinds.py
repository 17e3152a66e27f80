"""The function that makes a sheet of any kind, and compares its answers with two things that are independent of the
library: the printed formulas, and finite differences of the forward formulas.

Every backward step is the derivative of L = sum(upstream ⊙ output) along some displacement of a forward value. The step
`dname` displaces each entry of `name`; the others (row sums, means) use the displacement that the step names.
"""

from collections.abc import Iterator

import numpy as np

from . import later_kinds, layer_kinds, softmax_kinds  # noqa: F401  they fill KINDS
from .numbers import Draw
from .sheet import KINDS, Sheet, Step, Values

_STEP = 1e-5
_TOLERANCE = 1e-6


def make(kind: str, seed: int = 0, size: int = 3, student: str = "") -> Sheet:
    """The worksheet of this kind. The same arguments give the same sheet, on every machine.

    size: of the matrices; most have axes of size - 1, size and size + 1. student: each student gets a different sheet.
    Raises ValueError for an unknown kind or size, and RuntimeError if an answer fails its check.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no worksheet {kind!r}; there are {', '.join(KINDS)}")
    sizes = KINDS[kind].sizes
    if size not in sizes:
        raise ValueError(f"{kind}: size must be from {sizes[0]} to {sizes[-1]}, got {size}")
    draw = Draw(f"{kind}/{seed}/{size}/{student}")
    while True:
        sheet = Sheet(kind, seed, size, student, KINDS[kind].make(draw, size))
        if all(np.abs(answer).max() < 100 for answer in sheet.answers.values()):  # two digits
            require_right(sheet)
            return sheet


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
