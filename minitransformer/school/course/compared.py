"""A student's answers beside the right ones: everything that is asked of them to judge and to explain them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from .collecting import Answer
from .comparison import close, scales
from .exercise import Exercise

Trials = list[tuple[Any, ...]]
Values = list[list[np.ndarray]]  # for each output, an array for each trial


class Compared:
    """A student's answers and the right ones, by output and trial."""

    def __init__(self, exercise: Exercise, trials: Trials, answers: list[Answer]) -> None:
        self.exercise = exercise
        self.last = len(trials) - 1  # in which the numbers are extreme
        self.trials = [tuple(map(_locked, trial)) for trial in trials]
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
