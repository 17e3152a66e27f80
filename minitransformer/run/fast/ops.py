"""The ops in their fast forms: names, arguments and results are those of `minitransformer.ops`.

A fast form, called a kernel, has the signature of its op. It returns None for a call that it does not support,
including wrong input. Then the textbook op runs, so every error message comes from the op. The arrays choose the
kernel: there is one for NumPy's and another for CuPy's. An op without a kernel is the textbook op itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ...core import ops as textbook
from ...core.arrays.backend import library
from ...core.arrays.declared import Checked, checked
from ...core.ops import *  # noqa: F403 - those without a kernel are the ops themselves
from . import activations, cuda, decoding, normalization
from . import attention as attention_kernel
from . import cross_entropy as cross_entropy_kernel
from . import linear as linear_kernel

__all__ = textbook.__all__


def _fast(name: str, on_numpy: ModuleType | None, on_cupy: ModuleType) -> Any:
    """The op of this name, with its kernel from one of two modules."""
    slow = getattr(textbook, name)
    numpy_kernel: Callable[..., Any] | None = getattr(on_numpy, name, None)
    cupy_kernel: Callable[..., Any] = getattr(on_cupy, name)

    @functools.wraps(slow)
    def forward(*args: Any, **options: Any) -> Any:
        kind = type(args[0]) if args else None
        kernel = numpy_kernel if kind is np.ndarray else cupy_kernel if kind and kind.__module__ == "cupy" else None
        made = kernel and kernel(*args, **options)
        if not made:
            return slow(*args, **options)
        y, pullback = made
        return y, Checked(checked, pullback, name, y.shape, y.dtype, library(type(y)))

    forward.textbook = slow  # type: ignore[attr-defined]
    return forward


attention = _fast("attention", attention_kernel, cuda.attention)
cross_entropy = _fast("cross_entropy", cross_entropy_kernel, cuda.cross_entropy)
gelu = _fast("gelu", activations, cuda.gelu)
layer_norm = _fast("layer_norm", normalization, cuda.layer_norm)
dropout = _fast("dropout", None, cuda.dropout)
linear = _fast("linear", linear_kernel, cuda.linear)
packed_product = decoding.packed_product  # of weights that are no arrays; see ideas/published/packed.py
