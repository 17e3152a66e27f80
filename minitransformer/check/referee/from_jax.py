"""Functions of JAX as functions of our form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, to_numpy
from ..trace.values import is_array, is_float_array
from ..verify import arguments as given
from ..verify import foreign
from .other_forms import Inputs, library, nothing_returned, of_our_form, ran, require_width
from .results import size


def from_jax(f: Callable[..., Any], dtype: str = "float64") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), that runs f on jax arrays.

    f: any function of jax arrays that returns one, or several, also with jax.custom_vjp or jax.jit; backward is its
    jax.vjp, and several outputs come back as one long array. Second derivatives are not checked. An argument may be a
    dict or list of arrays, as parameters often are. It runs in float64, which is enabled in JAX for the call. `step`
    shows the lines of f and of a custom_vjp, except those that jax.jit compiles. dtype: "float32", "float16" or
    "bfloat16" for code that takes nothing else; it is then checked as closely as that allows. Raises ImportError
    without jax, and later ValueError or TypeError if f does not run, or returns no array.
    """
    jax = library("jax", "jax")
    if not callable(f):
        raise TypeError(f"from_jax: expected a function, got {f!r}")
    single = dtype != "float64"

    def to_jax(x: Any) -> Any:
        if not is_array(x):
            return given.fresh(x)  # each run begins with the same state of a generator
        x = np.array(to_numpy(x))
        array = jax.numpy.asarray(x)
        return array.astype(dtype) if single and x.dtype.kind == "f" else array

    def back(x: Any) -> np.ndarray:
        array = np.array(x)  # NumPy widens it: JAX may have no float64 here
        return array.astype(np.float64) if single and jax.numpy.issubdtype(x.dtype, jax.numpy.floating) else array

    def joined(name: str, returned: Any) -> Any:
        """The floating-point outputs as one array: the only one as it is, several end to end."""
        leaves = [x for x in jax.tree_util.tree_leaves(returned) if hasattr(x, "dtype")]
        floats = [x for x in leaves if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)]
        if not floats:
            raise nothing_returned(name, returned)
        made.shapes = [x.shape for x in floats]
        return floats[0] if len(floats) == 1 else jax.numpy.concatenate([x.ravel() for x in floats])

    def call(*inputs: Any, **options: Any) -> Any:
        name = given.name_of(made)
        with _float64(jax):
            arrays = Inputs(inputs, to_jax, to_jax)

            def returned_for(*leaves: Any) -> Any:
                rest = iter(leaves)
                own = (given.with_leaves(x, lambda x: next(rest) if is_float_array(x) else to_jax(x)) for x in inputs)
                return f(*own, **{key: given.with_leaves(x, to_jax) for key, x in options.items()})

            def of_leaves(*leaves: Any) -> Any:
                return joined(name, returned_for(*leaves))

            y = back(joined(name, ran(name, "forward", lambda: returned_for(*arrays.leaves))))
        require_width(name, y, inputs, single, "from_jax")

        def backward(dy: Array) -> Any:
            with _float64(jax):
                again, pull = ran(name, "the forward pass of its vjp", lambda: jax.vjp(of_leaves, *arrays.leaves))
                if again.shape != y.shape:
                    how = f"even its shape changes, from {y.shape} to {again.shape}"
                    raise ValueError(f"{name} gives a different output each time it runs; {how}")
                if not _alike(back(again), y, dtype) and _alike(back(of_leaves(*arrays.leaves)), y, dtype):
                    raise ValueError(
                        f"{name}: the forward pass of its custom_vjp returns another output than the function"
                    )
                grads = ran(name, "backward", lambda: pull(to_jax(dy).astype(again.dtype)))
            return arrays.gradients(map(back, grads))

        return y, backward

    made: Any = of_our_form(f, call, dtype)
    return made


def _alike(one: np.ndarray, other: np.ndarray, dtype: str) -> bool:
    rtol = max(1e-5, foreign.least_rtol(foreign.eps_of(None, dtype)))  # two formulas of one number round differently
    return one.shape == other.shape and np.allclose(one, other, rtol, 0.1 * rtol * size(other), equal_nan=True)


def _float64(jax: Any) -> contextlib.AbstractContextManager[Any]:
    """Inside this context JAX computes in float64 if its arrays are float64."""
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    context: contextlib.AbstractContextManager[Any] = enable(True)
    return context
