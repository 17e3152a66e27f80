"""A layer as it runs inside a model: its inputs there, and the gradient that comes back to it.

    part = layer_inside(model.stack.layers, 3, run)         run() returns the model's (output, backward)
    y, backward = part.module(*part.inputs, **part.options)
    dx = backward(part.upstream)

The model runs once, forward and backward, without being recorded. So recording or checking the layer needs only the
memory of one layer.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, array_module, device_of, to_device
from ...core.layers import Module


@dataclass(frozen=True, eq=False)
class Inside:
    """A module with the inputs and options it was called with, and the gradient of its output."""

    module: Any
    inputs: tuple[Array, ...]
    options: dict[str, Any]
    upstream: Array

    def alone(self) -> Inside:
        """The same without the axis of a batch of one sequence: (1, T, D) becomes (T, D)."""
        inputs = tuple(x[0] for x in self.inputs)
        options = {name: x[0] if hasattr(x, "shape") else x for name, x in self.options.items()}
        return Inside(self.module, inputs, options, self.upstream[0])


class _Listener(Module):
    """Passes everything on to a module, and keeps its inputs and the gradient of its output."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.heard: Inside | None = None

    def __call__(self, *inputs: Any, **options: Any) -> tuple[Array, Pullback]:
        y, module_backward = self.module(*inputs, **options)

        def backward(dy: Array) -> Any:
            given = {name: x for name, x in options.items() if x is not None}
            self.hear(Inside(self.module, inputs, given, dy))
            return module_backward(dy)

        return y, backward

    def hear(self, part: Inside) -> None:
        """Keep what came in and what came back."""
        self.heard = part

    def after(self, backward: Pullback, upstream: Array, model: Module) -> Inside:
        """What it has heard once backward has run, which leaves the gradients of the model as they are."""
        with _other_gradients(model):
            backward(upstream)
        if self.heard is None:
            raise ValueError("the model ran without this layer")
        return self.heard


def layer_inside(
    model: Module, layers: list[Any], i: int, run: Callable[[], tuple[Array, Pullback]], seed: int = 0
) -> Inside:
    """Layer i of the model's `layers`, as it runs in `run`.

    The gradient of run's output is 1 if that is a number, as a loss is; otherwise drawn from a generator with `seed`.
    The model and its gradients do not change. Raises ValueError where run does not use the layer.
    """
    listener = _Listener(layers[i])
    layers[i] = listener  # only at this place in the list: a shared layer is at several places
    try:
        y, backward = run()
    finally:
        layers[i] = listener.module
    return listener.after(backward, upstream_of(y, seed), model)


def attention_inside(layer: Inside, head: int) -> Inside:
    """One head of the self-attention of a layer, as it runs there; see MultiHeadAttention.head."""
    whole = copy.copy(layer.module)
    place = whole.self_attention = copy.copy(whole.self_attention)
    while hasattr(place.sublayer, "sublayer"):
        place.sublayer = copy.copy(place.sublayer)
        place = place.sublayer
    listener = _Listener(place.sublayer)
    place.sublayer = listener
    _, backward = whole(*layer.inputs, **layer.options)
    heard = listener.after(backward, layer.upstream, whole)
    return Inside(heard.module.head(head), heard.inputs, heard.options, heard.upstream)


def attention_of(layer: Any) -> Any:
    """What mixes the positions in a layer, without the parts around it, such as a second norm."""
    part = layer.self_attention.sublayer
    while hasattr(part, "sublayer"):
        part = part.sublayer
    return part


def upstream_of(y: Array, seed: int = 0) -> Array:
    """A gradient to start from: 1 for a number, otherwise drawn from a generator with `seed`. Dtype and device of y."""
    drawn = np.random.default_rng((seed, 1)).normal(size=y.shape) if y.shape else np.ones(())
    return to_device(drawn.astype(str(y.dtype)), device_of(y).name)


@contextlib.contextmanager
def _other_gradients(model: Module) -> Iterator[None]:
    """Let backward add to scratch arrays, not to .grad. Parameters of equal shape share one, since nothing reads it."""
    kept = [(parameter, parameter.grad) for _, parameter in model.parameters()]
    shared: dict[Any, Array] = {}
    try:
        for parameter, _ in kept:
            value = parameter.value
            key = (value.shape, str(value.dtype))
            parameter.grad = shared.setdefault(key, array_module(value).zeros_like(value))
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient
