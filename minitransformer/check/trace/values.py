"""Arrays, also those of other libraries, and recorded numbers: copies on the host.

Of an array that is too large, its range, mean and first corner are kept.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, device_of
from ...core.arrays.boundary import is_array as is_array

CORNER = 8  # rows and columns that are kept of an array that is only summarised


def as_numpy(x: Any) -> Any:
    """A tensor of PyTorch as an array of NumPy, with the same memory if it can; any other value unchanged.

    A tensor without numbers of its own is unchanged, too: one on meta, a sparse one, or one inside torch.func, which
    stands for many.
    """
    torch: Any = sys.modules.get("torch")
    tensor: Any = x
    if torch is None or not isinstance(x, getattr(torch, "Tensor", ())) or tensor.is_meta:
        return x
    try:
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    except (RuntimeError, TypeError, NotImplementedError):
        return x


def as_array(x: Any) -> Any:
    """A tensor, or an array of JAX that has numbers, as an array of NumPy; any other value unchanged."""
    jax: Any = sys.modules.get("jax")
    if hasattr(jax, "Array") and not isinstance(x, jax.core.Tracer) and isinstance(x, jax.Array):
        # jax.jit and jax.vjp compute with tracers, which have no numbers; nor has the key of a generator.
        return x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x)
    return as_numpy(x)


class Place(str):
    """Where a leaf lies in a pytree of JAX, such as .layers[0].weight."""


def pytree_parts(x: Any) -> list[tuple[Place, Any]] | None:
    """(path, leaf) for each leaf of what JAX knows as a tree: a module of Equinox, a dataclass; None for others."""
    jax: Any = sys.modules.get("jax")
    if x is None or not hasattr(jax, "tree_util") or jax.tree_util.all_leaves((x,)):
        return None
    return [(Place(jax.tree_util.keystr(path)), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(x)[0]]


def pytree_of(x: Any, leaves: Iterable[Any]) -> Any:
    """The same tree with other leaves."""
    tree_util: Any = sys.modules["jax"].tree_util
    return tree_util.tree_unflatten(tree_util.tree_structure(x), list(leaves))


def like(array: Any, x: Any) -> Any:
    """The array as a tensor of the kind of x, if x is one."""
    return array if as_numpy(x) is x else x.new_tensor(array)


def is_float_array(x: Any) -> bool:
    """Whether x is a floating-point array (or NumPy scalar) of a known library."""
    return is_array(x) and x.dtype.kind == "f"


def host_copy(x: Array) -> np.ndarray:
    """A copy of x on the host."""
    return np.array(device_of(x).to_numpy(x))


def same_numbers(array: np.ndarray, now: Array) -> bool:
    """Whether `now`, on any device, holds the same numbers as the copy; NaN equals NaN."""
    return np.array_equal(array, device_of(now).to_numpy(now), equal_nan=array.dtype.kind == "f")


@dataclass(frozen=True, eq=False)
class Value:
    """What a name was bound to: a copy of an array or number; above the limit, only the summary and corner."""

    shape: tuple[int, ...]
    dtype: str
    array: np.ndarray | None
    summary: str = ""
    corner: np.ndarray | None = None

    @property
    def is_float_array(self) -> bool:
        """Whether it is a floating-point array, and not a Python number."""
        return self.dtype.startswith("float") and self.dtype != "float"

    def plain(self) -> Any:
        """The array, or a Python number where a Python number was recorded."""
        is_number = self.shape == () and self.dtype in ("int", "float", "bool")
        return self.array.item() if is_number and self.array is not None else self.array

    def __str__(self) -> str:
        if self.array is None:
            return self.summary
        some_large = np.abs(self.array, dtype=float).max(initial=0.0) > 0.01
        return np.array2string(self.array, precision=4, suppress_small=some_large)


def copied(array: Array) -> Value:
    """A Value that holds the whole array."""
    return Value(tuple(array.shape), str(array.dtype), host_copy(array))


def keep(value: Any, limit: int) -> Value | None:
    """A copy of an array or number; a summary of an array of more than `limit` elements; None for any other value."""
    value = as_array(value)
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        array = np.asarray(value)
        return Value((), type(value).__name__, array) if array.dtype.kind in "fiub" else None  # an int may be too long
    if not is_array(value) or value.dtype.kind not in "fiub":
        return None
    if value.size <= limit:
        return copied(value)
    return Value(tuple(value.shape), str(value.dtype), None, summary_of(value), host_copy(corner_of(value)))


def summary_of(array: Array) -> str:
    """The range and the mean of a nonempty array, in words."""
    low, high, mean = (float(part) for part in (array.min(), array.max(), array.mean()))
    return f"{array.size} numbers from {low:.4g} to {high:.4g}, mean {mean:.4g}"


def corner_of(array: Array) -> Array:
    """The first rows and columns of an array, (T, D) or (D,); with more axes, those of its first matrix."""
    first = (0,) * (array.ndim - 2)
    return array[(*first, *[slice(CORNER)] * min(array.ndim, 2))]
