"""Record a call once more, with other numbers."""

import functools

import numpy as np

from ....check.trace.values import host_copy
from ....check.verify.arguments import parameters_of
from ....core.arrays.backend import array_module
from ....core.layers import Parameter
from ..stepper.page_edits import inputs_of, with_inputs
from ..stepper.recording import Numbers, parameters_set
from ..stepper.steps import Steps


def given_numbers(recording: Steps) -> dict[str, np.ndarray]:
    """The numbers that can be changed, by name: inputs, the gradient of the output, and parameters."""
    return inputs_of(recording) | {name: host_copy(parameter.value) for name, parameter in _parameters(recording)}


def again(recording: Steps, numbers: Numbers) -> Steps:
    """Record the same call with other numbers, by the names of `given_numbers`."""
    with parameters_set(_parameters(recording), numbers):
        return with_inputs(recording, numbers)


def parameter_gradients(recording: Steps) -> dict[str, np.ndarray]:
    """What the backward pass adds to the gradient of each parameter."""
    assert isinstance(recording.again, functools.partial)
    f, *given = recording.again.args
    options = {k: x for k, x in recording.again.keywords.items() if k not in ("upstream", "parameters", "limit")}
    parameters = _parameters(recording)
    with parameters_set(parameters):
        for _, parameter in parameters:
            parameter.grad = array_module(parameter.value).zeros_like(parameter.value)
        f(*given, **options)[1](recording.again.keywords["upstream"].copy())
        return {name: host_copy(parameter.grad) for name, parameter in parameters}


def _parameters(recording: Steps) -> list[tuple[str, Parameter]]:
    assert isinstance(recording.again, functools.partial)
    return parameters_of(recording.again.args[0], recording.again.keywords["parameters"])
