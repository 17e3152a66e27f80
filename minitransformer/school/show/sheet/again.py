"""Record a call once more, with other numbers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from ....check.verify.arguments import parameters_of
from ....core.layers import Parameter
from ..stepper.page_edits import entry_of, with_inputs
from ..stepper.steps import Steps, is_float

Numbers = Mapping[str, np.ndarray]


def given_numbers(recording: Steps) -> dict[str, np.ndarray]:
    """The numbers that can be changed, by name: inputs, the gradient of the output, and parameters."""
    bound = [*recording.steps[0].bound, *entry_of(recording).bound[:1]]
    inputs = {b.name: b.value.array for b in bound if is_float(b) and b.value.array is not None}
    return inputs | {name: np.array(parameter.value) for name, parameter in _parameters(recording)}


def again(recording: Steps, numbers: Numbers) -> Steps:
    """Record the same call with other numbers, by the names of `given_numbers`."""
    with _set_to(_parameters(recording), numbers):
        return with_inputs(recording, numbers)


def parameter_gradients(recording: Steps) -> dict[str, np.ndarray]:
    """What the backward pass adds to the gradient of each parameter."""
    assert isinstance(recording.again, functools.partial)
    f, *given = recording.again.args
    options = {k: x for k, x in recording.again.keywords.items() if k not in ("upstream", "parameters", "limit")}
    parameters = _parameters(recording)
    with _set_to(parameters, {}):
        f(*given, **options)[1](recording.again.keywords["upstream"].copy())
        return {name: np.array(parameter.grad) for name, parameter in parameters}


def _parameters(recording: Steps) -> list[tuple[str, Parameter]]:
    assert isinstance(recording.again, functools.partial)
    return parameters_of(recording.again.args[0], recording.again.keywords["parameters"])


@contextlib.contextmanager
def _set_to(parameters: list[tuple[str, Parameter]], numbers: Numbers) -> Iterator[None]:
    """Give parameters other values, and gradients of zero; afterwards, their own again."""
    kept = [(parameter, parameter.value, parameter.grad) for _, parameter in parameters]
    try:
        for name, parameter in parameters:
            parameter.value = np.array(numbers.get(name, parameter.value))
            parameter.grad = np.zeros_like(parameter.value)
        yield
    finally:
        for parameter, value, gradient in kept:
            parameter.value, parameter.grad = value, gradient
