"""How far right answers and wrong ones lie apart in the checker of the course, and that every argument counts.

An argument that were the same in all trials could be hard-coded, so the first test shows that each varies as well.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

from minitransformer.course import EXERCISES, Exercise, Result, check, collect, judge

each_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))


def verdict(exercise: Exercise, f: Callable[..., Any], seed: int) -> Result:
    """Right or wrong; looking for the mistake would take most of the time."""
    return judge(exercise, collect(exercise, f, seed), seed, explain=False)


def singles(x: Any) -> Any:
    """In float32, with what is in a dictionary."""
    if isinstance(x, dict):
        return {key: singles(value) for key, value in x.items()}
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


def with_signature(f: Any, exercise: Exercise) -> None:
    f.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in exercise.arguments]
    )


def outputs(f: Callable[..., Any], inputs: tuple[Any, ...]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        returned = f(*copy.deepcopy(inputs))
    return [np.asarray(x) for x in (returned if isinstance(returned, tuple | list) else (returned,))]


SEEDS = pytest.mark.parametrize("seeds", [[0], pytest.param([1, 2, 3, 4], marks=pytest.mark.slow)], ids=["1", "4 more"])


@each_exercise
@SEEDS
def test_an_answer_that_hard_codes_an_argument_is_wrong(exercise: Exercise, seeds: list[int]) -> None:
    for seed in seeds:
        first = exercise.trials(seed)[0]
        for i, name in enumerate(exercise.arguments):

            def f(*inputs: Any, i: int = i, value: Any = first[i]) -> Any:
                return exercise.reference(*inputs[:i], copy.deepcopy(value), *inputs[i + 1 :])

            with_signature(f, exercise)
            assert not verdict(exercise, f, seed).right, f"{name} may be hard-coded"


@pytest.mark.few(6)
@each_exercise
def test_a_right_answer_in_float32_passes_and_so_does_what_it_promotes_to(exercise: Exercise) -> None:
    def promoted(*inputs: Any) -> Any:
        return exercise.reference(*map(singles, inputs))

    def rounded(*inputs: Any) -> Any:
        found = tuple(map(singles, outputs(promoted, inputs)))
        return found if len(found) > 1 else found[0]

    for f in (promoted, rounded):
        with_signature(f, exercise)
        for seed in range(5):
            result = verdict(exercise, f, seed)
            assert result.right, str(result)


# Wrong answers that were once accepted, and others that are almost right.


def log_of_softmax(logits: Any, targets: Any) -> Any:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return -np.log(p[np.arange(len(p)), targets]).mean()


def gelu_by_tanh(x: Any, dy: Any) -> Any:
    inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(2.0 / np.pi) * (1.0 + 3.0 * 0.044715 * x * x)
    return dy * (0.5 * (1.0 + np.tanh(inner)) + 0.5 * x * (1.0 - np.tanh(inner) ** 2) * slope)


adam = EXERCISES["adam_step"].reference
local_mask = EXERCISES["local_mask"].reference


@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "f"), [
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, b1, 1.0 - e, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, b1, b2, 1.0 - b2)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, 0.8, 0.95, 0.05)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, 0.1, b1, b2, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, max(t, 2), rate, b1, b2, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, min(t, 5), rate, b1, b2, e)),
    ("cross_entropy_forward", log_of_softmax),
    *(("local_mask", lambda t, radius, cap=cap: local_mask(t, min(radius, cap))) for cap in range(7)),
    ("local_mask", lambda t, radius: local_mask(t, radius or 1)),
    ("gelu_backward", gelu_by_tanh),
    ("gelu_backward", lambda x, dy: dy * (0.5 * (1.0 + erf(x / 1.4)) + x * np.exp(-0.5 * x * x) * 0.399)),
    ("relu_backward", lambda x, dy: dy * (x >= 0)),
    ("dropout_forward", lambda x, rate, u: x * (u > rate) / (1.0 - rate)),
    ("layer_norm_forward", lambda x, g, b, eps: EXERCISES["layer_norm_forward"].reference(x, g, b, 0.1)),
    ("softmax_backward", lambda y, dy: (y * (dy - (dy * y).sum(-1, keepdims=True))).clip(-5.0, 5.0)),
])  # fmt: skip
def test_a_wrong_answer_that_is_almost_right_is_rejected(name: str, f: Callable[..., Any]) -> None:
    with_signature(f, EXERCISES[name])
    for seed in range(5):
        assert not verdict(EXERCISES[name], f, seed).right, f"seed {seed}"


def test_a_logarithm_of_softmax_is_named() -> None:
    assert check("cross_entropy_forward", log_of_softmax).mistake == "log-of-softmax"
