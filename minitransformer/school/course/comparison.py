"""A student's answers beside the right ones, and when two numbers count as equal."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from .collecting import Answer, described
from .exercise import Exercise

Trials = list[tuple[Any, ...]]
Values = list[list[np.ndarray]]  # for each output, an array for each trial

# How far an answer may be from the reference, relative to the magnitude of the output (`scales`). On the inputs of the
# trials float32 rounds by up to 4e-6, and every known mistake differs by more than 1e-2 in some trial.
TOLERANCE = 5e-5  # of an answer in float32
_OF_FLOAT64 = 1e-5  # some step before it may have been in float32


def near(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
    """Where two arrays differ by at most the tolerance, or are both the same infinity, or both NaN."""
    with np.errstate(invalid="ignore"):
        return (a == b) | (abs(a - b) <= tolerance) | ((a != a) & (b != b))


def of_one_kind(got: np.ndarray, right: np.ndarray) -> bool:
    """Whether both contain booleans, or both floating-point numbers, where those of `got` are at least float32."""
    return got.dtype.kind == right.dtype.kind and (got.dtype.kind == "b" or got.dtype.itemsize >= 4)


def scales(values: list[np.ndarray]) -> list[float]:
    """For each trial the magnitude of an output: its largest entry, or the median of these, whichever is larger.

    So an output that happens to be close to 0 in one trial does not need more digits than float32 has.
    """
    largest = [float(abs(x[np.isfinite(x)]).max(initial=0.0)) for x in values]
    usual = float(np.median(largest)) or max(largest) or 1.0
    return [max(one, usual) for one in largest]


def differing(got: np.ndarray, right: np.ndarray, scale: float) -> np.ndarray:
    """Where two arrays of one shape and kind differ by more than rounding."""
    if right.dtype.kind != "f":
        return got != right
    with np.errstate(over="ignore"):  # a wrong answer may be too large for float32
        narrow = got.dtype.itemsize < 8 or bool(near(got.astype(np.float32), got, 0.0).all())  # whatever its dtype is
    return ~near(got, right, (TOLERANCE if narrow else _OF_FLOAT64) * scale)


def close(got: np.ndarray | str, right: np.ndarray, scale: float) -> bool:
    """Whether `got` is an array that equals the right one in shape, in kind and, up to rounding, in value."""
    if isinstance(got, str) or got.shape != right.shape or not of_one_kind(got, right):
        return False
    return not differing(got, right, scale).any()


def unchanged(before: Any, after: Any) -> bool:
    """Whether an input is as it was, up to the rounding of an entry that was changed and restored."""
    if isinstance(before, dict):
        return (
            isinstance(after, dict)
            and before.keys() == after.keys()
            and all(unchanged(before[key], after[key]) for key in before)
        )
    if not isinstance(before, np.ndarray):
        return True
    if not isinstance(after, np.ndarray) or (before.shape, before.dtype) != (after.shape, after.dtype):
        return False
    return np.array_equal(before, after) if before.dtype.kind != "f" else bool(near(before, after, 1e-12).all())


class Compared:
    """A student's answers and the right ones, by output and trial."""

    def __init__(self, exercise: Exercise, trials: Trials, answers: list[Answer]) -> None:
        self.exercise = exercise
        self.last = len(trials) - 1  # in which the numbers are extreme
        self.trials = [tuple(map(_locked, trial)) for trial in trials]
        self.inputs = [described(exercise, trial) for trial in trials]  # in words
        self.got = [[answer.outputs[i] for answer in answers] for i in range(len(exercise.outputs))]
        self.expected = run(exercise.reference, trials)
        self.scales = [scales(values) for values in self.expected]

    def equals(self, i: int, values: list[np.ndarray]) -> bool:
        """Whether output i equals these values in all trials."""
        return all(map(close, self.got[i], values, self.scales[i]))

    def finite(self, i: int, trial: int) -> bool:
        """Whether output i is an array of finite numbers in this trial, of whatever shape."""
        got = self.got[i][trial]
        return not isinstance(got, str) and bool(np.isfinite(got).all())

    def comparable(self, i: int, trial: int) -> bool:
        """Whether output i is an array of finite numbers of the right shape in this trial."""
        got = self.got[i][trial]
        if isinstance(got, str) or got.shape != self.expected[i][trial].shape:
            return False
        return got.dtype.kind == "f" and bool(np.isfinite(got).all())

    def places(self, i: int) -> list[int]:
        """The trials in which output i is wrong."""
        rights = list(map(close, self.got[i], self.expected[i], self.scales[i]))
        return [trial for trial, right in enumerate(rights) if not right]

    def alike(self, i: int, trial: int, value: np.ndarray) -> bool:
        """Whether output i is this in one trial. Most values differ in the last entry already."""
        got, scale = self.got[i][trial], self.scales[i][trial]
        if isinstance(got, str) or got.shape != value.shape:
            return False
        with np.errstate(invalid="ignore"):  # both may be infinite
            if got.dtype.kind == "f" and got.size and abs(got.flat[-1] - value.flat[-1]) > 0.01 * scale:
                return False
        return close(got, value, scale)


def _locked(x: Any) -> Any:
    """The same input, whose arrays can no longer be changed: the solution with a mistake in it may try to."""
    if isinstance(x, dict):
        return {name: _locked(one) for name, one in x.items()}
    if isinstance(x, np.ndarray):
        x.flags.writeable = False
    return x


def run(f: Callable[..., Any], trials: Trials) -> Values:
    """What f returns in each trial."""
    values = []
    for inputs in trials:
        with np.errstate(all="ignore"):
            returned = f(*copy.deepcopy(inputs))
        values.append([np.asarray(x) for x in (returned if isinstance(returned, tuple) else (returned,))])
    return [list(output) for output in zip(*values, strict=True)]
