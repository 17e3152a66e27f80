"""Check a model that is too large to check as a whole: every parameter, and the inside of one layer.

Each parameter is displaced along random directions while the model runs from its input to its loss. The intermediates
are those of one layer, with the inputs and the upstream gradient that it has in the model: `verify.gradients` checks
the layer alone. Nothing in the other layers is recorded, so a check needs the memory of the weights, of their gradients
and of a few copies of the largest one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, to_numpy
from ...core.layers import Module
from ..trace.inside import layer_inside, upstream_of
from ..trace.values import host_copy
from .arguments import parameter_probe
from .differences import Differences
from .gradients import Progress, gradients
from .report import Report, Row


def model_gradients(
    model: Module,
    run: Callable[[], tuple[Array, Pullback]],
    layers: list[Any],
    i: int,
    place: int,
    seed: int = 0,
    directions: int = 2,
    progress: Progress = iter,
) -> Report:
    """The check of every parameter of `model`, which `run` runs, and of everything in layer i of `layers`.

    The model must be in float64. Afterwards its gradients are those of one run. place: the number of the layer in the
    names of its rows; for the other settings see `verify.gradients`. Raises ValueError for a model in another dtype, or
    whose output is not finite.
    """
    parameters = list(model.parameters())
    narrow = [key for key, parameter in parameters if str(parameter.value.dtype) != "float64"]
    if narrow:
        raise ValueError(f'model_gradients: {narrow[0]} must be float64; call model.to(dtype="float64") first')
    model.zero_grad()
    y, backward = run()
    upstream = upstream_of(y, seed)
    output = host_copy(y)
    if not np.isfinite(output).all():
        raise ValueError("model_gradients: the output is not finite, so there is nothing to differentiate")
    backward(upstream)
    rng = np.random.default_rng((seed, 2))
    how: dict[str, Any] = {"entrywise": 0, "directions": directions, "entries_at_kinks": False}
    differences = Differences(output, host_copy(upstream), rng, atol=None, rtol=1e-6, step=1e-5, **how)

    def row(key: str) -> Row:
        parameter = dict(parameters)[key]
        value, gradient = to_numpy(parameter.value), to_numpy(parameter.grad)
        return differences.row(key, "parameter", value, gradient, parameter_probe(parameter, run))

    rows = [row(key) for key in progress([key for key, _ in parameters])]
    part = layer_inside(model, layers, i, run, seed)
    how |= {"upstream": part.upstream, "seed": seed, "progress": progress}
    inside = gradients(part.module, *part.inputs, **how, **part.options)
    in_layer = [dataclasses.replace(each, name=f"layer {place}: {each.name}") for each in inside.rows]
    return Report(type(model).__name__, (*rows, *in_layer))
