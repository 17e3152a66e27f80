"""Arrays and plain values as JSON, between the grader and the process in which a hand-in runs.

Only data passes: arrays as bytes with their dtype and shape, numbers, texts, and containers of these. The data that
comes back is not trusted, so `decode` refuses everything else.
"""

import base64
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16)")  # no long double: its bytes are not portable


def encode(x: Any, functions: list[Callable[..., Any]] | None = None) -> Any:
    """x as JSON. A function is added to `functions` and sent as its index there; without that list it is refused."""
    if isinstance(x, np.ndarray | np.generic):
        x = np.asarray(x)
        if not _DTYPE.fullmatch(x.dtype.str):
            raise TypeError(f"an array of {x.dtype} cannot be passed on")
        data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode("ascii")
        return {"array": [x.dtype.str, list(x.shape), data]}
    if isinstance(x, dict) and all(isinstance(key, str) for key in x):
        return {"dict": [[key, encode(value, functions)] for key, value in x.items()]}
    if isinstance(x, tuple | list):
        return {"tuple" if isinstance(x, tuple) else "list": [encode(value, functions) for value in x]}
    if x is None or isinstance(x, bool | int | float | str):
        return {"plain": x}
    if callable(x) and functions is not None:
        functions.append(x)
        return {"function": len(functions) - 1}
    raise TypeError(f"a {type(x).__name__} cannot be passed on")


def decode(message: Any, function: Callable[[int], Any] | None = None) -> Any:
    """The inverse of `encode`; function(i) returns a function by its index. Raises ValueError for anything else."""
    if not (isinstance(message, dict) and len(message) == 1):
        raise ValueError("not a value")
    ((kind, content),) = message.items()
    if kind == "array":
        return _array(content)
    if kind in ("tuple", "list") and isinstance(content, list):
        values = [decode(value, function) for value in content]
        return tuple(values) if kind == "tuple" else values
    if kind == "dict" and isinstance(content, list):
        return {str(key): decode(value, function) for key, value in content}
    if kind == "plain" and (content is None or isinstance(content, bool | int | float | str)):
        return content
    if kind == "function" and isinstance(content, int) and function is not None:
        return function(content)
    raise ValueError(f"not a value: {kind}")


def _array(content: Any) -> np.ndarray:
    if not (isinstance(content, list) and len(content) == 3):
        raise ValueError("not an array")
    dtype, shape, data = content
    if not (isinstance(dtype, str) and _DTYPE.fullmatch(dtype) and isinstance(shape, list) and isinstance(data, str)):
        raise ValueError("not an array")
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape) or len(shape) > 32:
        raise ValueError("not a shape")
    values = np.frombuffer(base64.b64decode(data, validate=True), dtype=np.dtype(dtype))
    if values.size != math.prod(shape):
        raise ValueError("an array whose size does not match its shape")
    return values.reshape(shape).copy()
