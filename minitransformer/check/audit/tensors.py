"""Our ops as functions of PyTorch's tensors. PyTorch's autograd calls our backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .suite import numbered


def names() -> dict[str, Any]:
    """What else the description of a suite may use."""
    import torch

    torch.set_num_threads(1)
    return {"torch": torch}


def adapted(op: Callable[..., Any]) -> Callable[..., Any]:
    """The op as a function of tensors. Floating-point tensors given by position are differentiable."""

    @functools.wraps(op)
    def call(*inputs: Any, **options: Any) -> Any:
        places = [i for i, x in enumerate(inputs) if _is_float(x)]
        named = {key: _array(x) for key, x in options.items()}

        def of_arrays(*arrays: np.ndarray) -> Any:
            given = [_array(x) for x in inputs]
            for i, x in zip(places, arrays, strict=True):
                given[i] = x
            return op(*given, **named)

        return _function().apply(of_arrays, *(inputs[i] for i in places))

    return call


def results(function: Callable[..., Any], inputs: tuple[Any, ...], seed: int | None) -> dict[str, np.ndarray]:
    """The outputs of a function of tensors, by name; with a seed also its gradients for a random upstream gradient."""
    import torch

    given = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in inputs]
    floats = [x.requires_grad_() for x in given if _is_float(x)]
    returned = function(*given)
    outputs = [x for x in (returned if isinstance(returned, tuple) else (returned,)) if isinstance(x, torch.Tensor)]
    gradients: Any = ()
    differentiable = [x for x in outputs if x.requires_grad and seed is not None]
    if differentiable and floats:
        rng = np.random.default_rng((seed or 0, 1))
        upstream = [torch.from_numpy(np.array(rng.normal(size=x.shape))).to(x.dtype) for x in differentiable]
        gradients = torch.autograd.grad(differentiable, floats, upstream, allow_unused=True)
    return numbered([_array(x) for x in outputs], gradients)


@functools.cache
def _function() -> Any:
    """An autograd.Function: its first argument is a function of arrays, the others are its differentiable tensors."""
    import torch

    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: Callable[..., Any], *tensors: Any) -> Any:
            y, ctx.pullback = call(*(np.array(_array(x)) for x in tensors))
            return torch.from_numpy(np.array(y))

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:  # type: ignore[override, unused-ignore]
            gradients = ctx.pullback(np.array(_array(dy)))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            return (None, *(torch.from_numpy(np.array(dx)) for dx in gradients))

    return Op


def _is_float(x: Any) -> bool:
    return hasattr(x, "is_floating_point") and x.is_floating_point()


def _array(x: Any) -> Any:
    return x.detach().numpy() if hasattr(x, "detach") else x
