"""Our ops as functions of JAX's arrays. jax.vjp, grad, jit and vmap work on them, and call our backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .suite import numbered


def names() -> dict[str, Any]:
    """What else the description of a suite may use."""
    import jax

    return {"jax": jax, "jnp": jax.numpy}


def adapted(op: Callable[..., Any]) -> Callable[..., Any]:
    """The op as a function of JAX's arrays. Floating-point arrays given by position are differentiable."""
    import jax

    @functools.wraps(op)
    def call(*inputs: Any, **options: Any) -> Any:
        leaves, form = jax.tree.flatten((inputs, options))
        places = [i for i, x in enumerate(leaves) if hasattr(x, "dtype")]
        kinds = [jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in places]

        def of_arrays(*arrays: Any) -> Any:
            filled = list(leaves)
            for i, x in zip(places, arrays, strict=True):
                filled[i] = np.array(x)
            given, named = jax.tree.unflatten(form, filled)
            return op(*given, **named)

        def output(*arrays: Any) -> Any:
            y = np.asarray(of_arrays(*arrays)[0])
            return y.astype(jax.dtypes.canonicalize_dtype(y.dtype))  # float32, unless JAX was told otherwise

        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):  # nothing is traced, so no callback is needed
            return jax.numpy.asarray(output(*(leaves[i] for i in places)))

        def gradients(dy: Any, *arrays: Any) -> Any:
            found = of_arrays(*arrays)[1](np.array(dy))
            rest = iter(found if isinstance(found, tuple) else (found,))
            zeros = (np.zeros(x.shape, x.dtype) for x in kinds if _is_float(x))  # for arrays given by keyword
            return tuple(next(rest, zero) for zero in zeros)

        @jax.custom_vjp
        def run(*arrays: Any) -> Any:
            # jit needs the shape of the output before it has any numbers, so it is computed for ones.
            y = output(
                *((np.zeros if np.issubdtype(x.dtype, np.integer) else np.ones)(x.shape, x.dtype) for x in kinds)
            )
            return jax.pure_callback(output, jax.ShapeDtypeStruct(y.shape, y.dtype), *arrays, vmap_method="sequential")

        def backward(arrays: Any, dy: Any) -> Any:
            floats = tuple(x for x in kinds if _is_float(x))
            found = iter(jax.pure_callback(gradients, floats, dy, *arrays, vmap_method="sequential"))
            return tuple(next(found) if _is_float(x) else None for x in kinds)

        run.defvjp(lambda *arrays: (run(*arrays), arrays), backward)
        return run(*(leaves[i] for i in places))

    return call


def results(function: Callable[..., Any], inputs: tuple[Any, ...], seed: int | None) -> dict[str, np.ndarray]:
    """The outputs of a function of JAX's arrays, by name; with a seed also its gradients for a random upstream one."""
    import jax

    given = [jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in inputs]
    places = [i for i, x in enumerate(given) if _is_float(x)]

    def outputs(*floats: Any) -> list[Any]:
        for i, x in zip(places, floats, strict=True):
            given[i] = x
        returned = function(*given)
        return [x for x in (returned if isinstance(returned, tuple) else (returned,)) if _is_float(x)]

    if seed is None:
        return numbered(outputs(*(given[i] for i in places)))
    found, pull = jax.vjp(outputs, *(given[i] for i in places))
    rng = np.random.default_rng((seed, 1))
    upstream = [jax.numpy.asarray(rng.normal(size=x.shape), x.dtype) for x in found]
    return numbered(found, pull(upstream))


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and np.issubdtype(x.dtype, np.floating)
