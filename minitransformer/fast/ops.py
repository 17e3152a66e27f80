"""The ops in their fast forms: names, arguments and results are those of `minitransformer.ops`.

A fast form, called a kernel, has the signature of its op. It returns None for a call that it was not made for,
including wrong input. Then the textbook op runs, so every error message comes from the op. The arrays decide: there is
one kernel for NumPy's and another for CuPy's. An op without a kernel is the textbook op itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .. import ops as textbook
from ..arrays.boundary import op
from ..ops import (
    dropout,
    embedding,
    gated,
    learned_positions,
    low_rank_linear,
    mean_pool,
    merge_heads,
    relative_bias,
    relu,
    repeat_heads,
    rms_norm,
    rotary,
    silu,
    sinusoidal_positions,
    softmax,
    split_heads,
    tanh,
)
from . import activations, cuda, normalization
from . import attention as attention_kernel
from . import cross_entropy as cross_entropy_kernel
from . import linear as linear_kernel

__all__ = [
    "attention",
    "cross_entropy",
    "dropout",
    "embedding",
    "gated",
    "gelu",
    "layer_norm",
    "learned_positions",
    "linear",
    "low_rank_linear",
    "mean_pool",
    "merge_heads",
    "relative_bias",
    "relu",
    "repeat_heads",
    "rms_norm",
    "rotary",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "tanh",
]


def _fast(name: str, on_numpy: ModuleType, on_cupy: ModuleType | None) -> Any:
    """The op of this name, with its kernel from one of two modules."""
    slow = getattr(textbook, name)
    unchecked = slow.__wrapped__
    numpy_kernel: Callable[..., Any] = getattr(on_numpy, name)
    cupy_kernel: Callable[..., Any] | None = getattr(on_cupy, name, None)

    @functools.wraps(unchecked)
    def forward(*args: Any, **options: Any) -> Any:
        kind = type(args[0]) if args else None
        kernel = numpy_kernel if kind is np.ndarray else cupy_kernel if kind and kind.__module__ == "cupy" else None
        return (kernel and kernel(*args, **options)) or unchecked(*args, **options)

    checked: Any = op(forward)
    checked.textbook = slow
    return checked


attention = _fast("attention", attention_kernel, cuda.attention)
cross_entropy = _fast("cross_entropy", cross_entropy_kernel, cuda.cross_entropy)
gelu = _fast("gelu", activations, cuda.gelu)
layer_norm = _fast("layer_norm", normalization, cuda.layer_norm)
linear = _fast("linear", linear_kernel, None)
