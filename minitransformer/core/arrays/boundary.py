"""The checks of arguments that ops, layers and models share, so that these contain only mathematics.

Each message names the op, what was expected, what came, and how to fix the call.
"""

import contextlib
import math
import numbers
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from .backend import Array, array_module, device_of

_looked_at: ContextVar[bool] = ContextVar("looked_at", default=False)


def check_gradient(where: str, dy: Array, shape: tuple[int, ...], dtype: Any, xp: Any) -> None:
    """Require a gradient that fits an output: an array of the library xp with this shape and dtype."""
    if shape == () and type(dy) in (int, float):
        return
    if not is_array(dy) or array_module(dy) is not xp:
        raise TypeError(
            f"backward of {where}: the gradient must be a {xp.__name__} array of shape {shape}, got {_kind(dy)}"
        )
    if dy.shape != shape:
        raise ValueError(f"backward of {where}: the gradient must have the output's shape {shape}, got {dy.shape}")
    if dy.dtype != dtype:
        raise TypeError(
            f"backward of {where}: the gradient must have the output's dtype {dtype}, got {dy.dtype}; "
            f"convert it with .astype({str(dtype)!r})"
        )


def is_array(x: Any) -> bool:
    """Whether x is an array (or NumPy scalar) of a known library. Only its type is read: x may be half built."""
    if type(x) is np.ndarray:
        return True
    try:
        device_of(x)
    except TypeError:
        return False
    return True


def _kind(x: Any) -> str:
    return f"an array of {x.dtype} on {device_of(x).name}" if is_array(x) else type(x).__name__


def check_array(where: str, name: str, x: Any) -> None:
    """Require a non-empty array of a known library."""
    if not is_array(x):
        raise TypeError(
            f"{where}: {name} must be a NumPy or CuPy array, got {type(x).__name__}; convert it with numpy.asarray"
        )
    if type(x) is not np.ndarray and isinstance(x, np.matrix | np.ma.MaskedArray):
        kind, way = type(x).__name__, "numpy.asarray" if isinstance(x, np.matrix) else "x.filled"
        raise TypeError(f"{where}: {name} is a {kind}, which does not compute as an array does; convert it with {way}")
    if x.size == 0:
        raise ValueError(f"{where}: {name} is empty, its shape is {x.shape}; every axis needs at least one element")


def check_floats(where: str, **arrays: Any) -> Any:
    """Require non-empty floating-point arrays, all with one dtype and on one device. Returns xp."""
    dtypes = {x.dtype if type(x) is np.ndarray and x.size else None for x in arrays.values()}
    if len(dtypes) == 1 and (dtype := dtypes.pop()) is not None and dtype.kind == "f":
        return np  # nearly every call; the rest finds out what is wrong, or checks another library
    first_name, first = "", None
    for name, x in arrays.items():
        check_array(where, name, x)
        if x.dtype.kind != "f":
            raise TypeError(
                f"{where}: {name} must hold floating-point numbers, got {x.dtype}; "
                f"convert it with {name}.astype('float32')"
            )
        if first is None:
            first_name, first = name, x
        elif x.dtype != first.dtype:
            raise TypeError(
                f"{where}: {name} is {x.dtype} but {first_name} is {first.dtype}; nothing is promoted silently, "
                f"so convert one of them: {name}.astype('{first.dtype}'), or a module: .to(dtype='{first.dtype}')"
            )
        check_same_device(where, first_name, first, name, x)
    return array_module(first)


def check_same_device(where: str, first_name: str, first: Array, name: str, x: Array) -> None:
    """Require two arrays of the same library."""
    if type(x) is not type(first) and device_of(x) is not device_of(first):
        raise TypeError(
            f"{where}: {first_name} is on {device_of(first).name} but {name} is on {device_of(x).name}; "
            f"move one of them with minitransformer.backend.to_device"
        )


def check_ids(where: str, name: str, ids: Any, size: int, like: Array, ignore_index: int | None = None) -> None:
    """Require a non-empty integer array, on the device of `like`, with every id from 0 to size - 1."""
    check_integer_array(where, name, ids, like)
    check_range_of_ids(where, name, ids, size, ignore_index)


def check_integer_array(where: str, name: str, ids: Any, like: Array) -> None:
    """Require a non-empty integer array, on the device of `like`."""
    check_array(where, name, ids)
    check_same_device(where, "the other array", like, name, ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{where}: {name} must hold integers, got {ids.dtype}; convert it with {name}.astype('int64')")


def check_range_of_ids(where: str, name: str, ids: Array, size: int, ignore_index: int | None = None) -> None:
    """Require every id to be from 0 to size - 1, or ignore_index.

    CuPy wraps an index that is out of range and raises no error. So the ids are checked on every device, unless `with
    ids_looked_at():` is active.
    """
    if _looked_at.get() and type(ids) is not np.ndarray:
        return
    outside = (ids < 0) | (ids >= size)
    if ignore_index is not None:
        outside = outside & (ids != ignore_index)
    if bool(outside.any()):
        worst = int(ids[outside][0])
        also = "" if ignore_index is None else f", or {ignore_index} for a position to ignore"
        raise ValueError(f"{where}: {name} must be from 0 to {size - 1} (there are {size}){also}; got {worst}")


@contextlib.contextmanager
def ids_looked_at() -> Iterator[None]:
    """Inside this context the range of ids on a GPU is not checked.

    The host would have to wait for the GPU to check it. So the code that moves ids there checks them on the host
    before.
    """
    token = _looked_at.set(True)
    try:
        yield
    finally:
        _looked_at.reset(token)


def check_mask(where: str, mask: Any, shape: tuple[int, ...], like: Array, name: str = "mask") -> None:
    """Require a boolean mask that broadcasts to `shape` without enlarging it. name: the array's in messages."""
    check_array(where, name, mask)
    check_same_device(where, "the other array", like, name, mask)
    if mask.dtype != np.bool_:
        means = " (True means 'may attend')" if name == "mask" else ""
        raise TypeError(
            f"{where}: {name} must be boolean{means}, got {mask.dtype}; convert it with {name}.astype(bool)"
        )
    try:
        fits = np.broadcast_shapes(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        of_keys = "; a mask of keys (B, T_k), such as padding, needs an axis for the queries: mask[:, None, :]"
        hint = of_keys if name == "mask" else ""
        raise ValueError(f"{where}: {name} of shape {mask.shape} does not broadcast to {shape}{hint}")


def check_visible(where: str, mask: Array | None, causal: bool, q: Array, k: Array) -> None:
    """Require what says which keys a query sees: a mask, or None, that fits q and k, and True or False for causal."""
    if type(causal) is not bool:
        check_flags(where, causal=causal)
    if mask is not None:
        check_mask(where, mask, (*q.shape[:-1], k.shape[-2]), q)


def check_broadcasts(where: str, name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Require x to broadcast to `shape` without enlarging it."""
    try:
        fits = np.broadcast_shapes(x.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{where}: {name} of shape {x.shape} does not broadcast to {shape}")


def check_last(where: str, name: str, x: Array, size: int, meaning: str) -> None:
    """Require the last axis of x to have `size` elements."""
    if x.ndim == 0 or x.shape[-1] != size:
        raise ValueError(f"{where}: the last axis of {name} must be {size} ({meaning}), got shape {x.shape}")


def check_sequences(where: str, width: int, meaning: str = "d_model", **sequences: Any) -> None:
    """Require floating-point sequences of vectors, each (..., T, width), all with the same leading axes."""
    first = next(iter(sequences.values()))
    check_floats(where, **sequences)
    for name, x in sequences.items():
        check_last(where, name, x, width, meaning)
        if x.ndim < 2:
            raise ValueError(f"{where}: {name} must be (..., T, {width}), got shape {x.shape}")
        if x.shape[:-2] != first.shape[:-2]:
            names = " and ".join(sequences)
            raise ValueError(
                f"{where}: the leading axes must be the same in {names}, got the shapes {first.shape} and {x.shape}"
            )


def lacks_heads(where: str, mask: Any, x: Array) -> bool:
    """Whether a mask of the sequences x needs an axis for the heads: (B, T_q, T_k) does; (T_q, T_k) broadcasts."""
    check_array(where, "mask", mask)
    return 2 < mask.ndim <= x.ndim


def check_shape(where: str, name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Require x to have exactly this shape."""
    if x.shape != shape:
        raise ValueError(f"{where}: {name} must have shape {shape}, got {x.shape}")


def check_finite(where: str, best: Array) -> None:
    """Require that a model's largest logits are finite. best: the largest of each row; where NaN is, NaN is largest."""
    if not bool(array_module(best).isfinite(best).all()):
        raise ValueError(f"{where}: the model's logits are NaN or infinite; its weights are too large, or damaged")


def check_generator(where: str, rng: Any) -> None:
    """Require a NumPy generator, or None: no dropout in a call, a random seed in a constructor."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"{where}: rng must be a numpy.random.Generator (on every device) or None, got {type(rng).__name__}; "
            "make one with numpy.random.default_rng(seed)"
        )


def check_number(where: str, name: str, number: Any) -> None:
    """Require one finite real number; True and False are none."""
    if not isinstance(number, numbers.Real) or isinstance(number, bool):
        raise TypeError(f"{where}: {name} must be a number, got {type(number).__name__}")
    if not math.isfinite(number):
        raise ValueError(f"{where}: {name} must be finite, got {number}")


def check_integers(where: str, **integers: Any) -> None:
    """Require every named number to be an integer."""
    for name, integer in integers.items():
        if not isinstance(integer, numbers.Integral) or isinstance(integer, bool):
            raise TypeError(f"{where}: {name} must be an integer, got {integer!r}")


def check_index(where: str, i: Any, n: int) -> None:
    """Require an index of one of n things."""
    check_integers(where, i=i)
    if not 0 <= i < n:
        raise ValueError(f"{where}: i must be from 0 to {n - 1}, got {i}")


def check_flags(where: str, **flags: Any) -> None:
    """Require every named flag to be True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{where}: {name} must be True or False, got {flag!r}")


def check_kind(where: str, name: str, x: Any, kind: Any, hint: str = "") -> None:
    """Require an instance of a class, or of one of several in a tuple. hint: how to fix it."""
    if not isinstance(x, kind):
        kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"{where}: {name} must be a {kinds}, got {x!r}{hint}")


def check_sizes(where: str, **sizes: Any) -> None:
    """Require every named size to be an integer of at least 1."""
    check_integers(where, **sizes)
    check_positive(where, **sizes)


def check_positive(where: str, **numbers_: float) -> None:
    """Require every named number to be finite and greater than zero."""
    for name, number in numbers_.items():
        check_number(where, name, number)
        if not number > 0:
            raise ValueError(f"{where}: {name} must be greater than 0, got {number}")
