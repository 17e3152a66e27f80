"""Our ops put together as another library has them, forward and backward: reshaped, with heads, through time.

Each function returns (y, backward) as an op does, so that `verify.gradients` checks the whole.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitransformer import ideas, ops

Step = Callable[[Any], tuple[Any, Callable[[Any], Any]]]


class OutOfScope(Exception):
    """Something for which this library has no op; the message says why."""


def chain(*steps: Step) -> Step:
    """One step after the other."""

    def run(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        pullbacks = []
        for step in steps:
            x, pullback = step(x)
            pullbacks.append(pullback)

        def backward(dy: Any) -> Any:
            for pullback in reversed(pullbacks):
                dy = pullback(dy)
            return dy

        return x, backward

    return run


def reshaped(*shape: int) -> Step:
    return lambda x: (x.reshape(shape), lambda dy: dy.reshape(x.shape))


def axis_moved(source: int, target: int) -> Step:
    return lambda x: (np.moveaxis(x, source, target), lambda dy: np.moveaxis(dy, target, source))


def after(before: Any, axis: int) -> Step:
    """Put x behind an array without a gradient, such as a cache of keys."""
    n = before.shape[axis]

    def step(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        joined = np.concatenate([before.astype(x.dtype), x], axis=axis)
        return joined, lambda dy: np.split(dy, [n], axis=axis)[1]

    return step


def with_each(f: Callable[..., Any], steps: list[Step], end: Step | None = None) -> Callable[..., Any]:
    """f of inputs that went through one step each; its output goes through `end`."""

    def run(*inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        prepared = [step(x) for step, x in zip(steps, inputs, strict=True)]
        y, f_backward = f(*(x for x, _ in prepared))
        result, end_backward = (y, lambda dy: dy) if end is None else end(y)

        def backward(dy: Any) -> Any:
            gradients = f_backward(end_backward(dy))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            back = tuple(pullback(dx) for (_, pullback), dx in zip(prepared, gradients, strict=True))
            return back if len(back) > 1 else back[0]

        return result, backward

    return run


def same(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    return x, lambda dy: dy


def unrolled(cell: Callable[..., Any], start: Any, backwards: bool = False) -> Callable[..., Any]:
    """A cell through time: f(x, w_x, b_x, *of the cell) -> states. x: (T, B, in); states: (T, B, S)."""

    def run(x: Any, weight: Any, bias: Any, *own: Any) -> tuple[Any, Callable[[Any], Any]]:
        order = range(len(x))[:: -1 if backwards else 1]
        inputs, inputs_backward = ops.linear(x, weight, bias)
        state, states, pullbacks = start.astype(x.dtype), [None] * len(x), [None] * len(x)
        for t in order:
            state, pullbacks[t] = cell(inputs[t], state, *own)
            states[t] = state

        def backward(dstates: Any) -> tuple[Any, ...]:
            dinputs, dstate = np.zeros_like(inputs), np.zeros_like(start, dtype=x.dtype)
            down = [np.zeros_like(w) for w in own]
            for t in order[::-1]:
                dinputs[t], dstate, *dws = pullbacks[t](dstate + dstates[t])
                down = [sum_ + dw for sum_, dw in zip(down, dws, strict=True)]
            return (*inputs_backward(dinputs), *down)

        return np.stack(states), backward

    return run


def final_memory(inputs: list[Any], scale: float) -> Any:
    """What gated_delta's memory holds at the end: read with unit queries at positions that change nothing."""
    q, k, v, decay, beta, state = inputs
    d = k.shape[-1]
    idle = np.zeros((*k.shape[:-2], d, d), k.dtype)
    longer = [np.concatenate(pair, axis=-2) for pair in ((q, idle + np.eye(d, dtype=k.dtype)), (k, idle))]
    longer.append(np.concatenate([v, np.zeros((*v.shape[:-2], d, v.shape[-1]), v.dtype)], axis=-2))
    longer.append(np.concatenate([np.broadcast_to(decay, k.shape), idle], axis=-2))
    longer.append(np.concatenate([beta, idle[..., 0]], axis=-1))
    return ideas.gated_delta(*longer, state, scale=scale)[0][..., -d:, :] / scale


def scale_of(width: int, scale: float | None) -> float:
    return 1.0 / math.sqrt(width) if not scale else float(scale)
