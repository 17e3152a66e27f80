"""Code that others wrote: arrays of other libraries, and a backward that its forward does not make.

Our functions return their pullback, so the tracer knows which forward call it belongs to. In other code the two are
separate functions, linked by a shared object: the `ctx` of a torch.autograd.Function, the cache that forward returns
and backward receives, or the object whose methods they are. A function with the attribute `separate` is traced by this
link, whichever file of the user its code is in.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_LIBRARIES = (str(Path(__file__).parent.parent), sysconfig.get_path("stdlib"), "<frozen", "<string>")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def as_numpy(x: Any) -> Any:
    """A tensor of PyTorch as an array of NumPy, with the same memory if it can; any other value unchanged."""
    torch: Any = sys.modules.get("torch")
    tensor: Any = x
    if torch is None or not isinstance(x, getattr(torch, "Tensor", ())) or tensor.is_meta:
        return x
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def as_array(x: Any) -> Any:
    """A tensor, or an array of JAX that has numbers, as an array of NumPy; any other value unchanged."""
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(x, getattr(jax, "Array", ())):
        return x if isinstance(x, jax.core.Tracer) else np.asarray(x)  # jax.jit and jax.vjp compute with tracers
    return as_numpy(x)


def like(array: Any, x: Any) -> Any:
    """The array as a tensor of the kind of x, if x is one."""
    return array if as_numpy(x) is x else x.new_tensor(array)


@functools.lru_cache(maxsize=4096)
def of_a_user(filename: str) -> bool:
    """Whether a file lies outside Python's libraries, the installed ones and this package."""
    return not filename.startswith(_LIBRARIES) and not any(part in filename for part in _INSTALLED)


def function_of(ctx: Any) -> Any:
    """The class derived from torch.autograd.Function whose context this is; None for any other object."""
    return getattr(type(ctx), "_forward_cls", None)


def arguments_of(frame: types.FrameType) -> Iterator[Any]:
    """The arguments of a call."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        if name in frame.f_locals:
            yield frame.f_locals[name]


def token_in(result: Any) -> Any:
    """What forward returned for backward next to its output, if only these two hold it; otherwise None."""
    token = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    common = isinstance(token, bool | int | float | str) or callable(token) or (isinstance(token, tuple) and not token)
    return None if common else token
