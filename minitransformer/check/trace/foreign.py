"""Code that others wrote: arrays of other libraries, and a backward that its forward does not make.

Our functions return their pullback, so the tracer knows which forward call it belongs to. In other code the two are
separate functions, linked by a shared object: the `ctx` of a torch.autograd.Function, the cache that forward returns
and backward receives, or the object whose methods they are. A function with the attribute `separate` is traced by this
link, whichever file of the user its code is in.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_LIBRARIES = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), "<frozen", "<string>")
_OF_ARRAYS = ("numpy", "cupy", "torch", "jax", "jaxlib")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


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


@functools.lru_cache(maxsize=4096)
def of_a_user(filename: str, module: Any) -> bool:
    """Whether a module's file lies outside Python's libraries, the installed ones and this package.

    An installed package may be in any folder, as after `pip install --target`. Pip's RECORD beside it tells it from a
    package of the user. The libraries whose arrays we take are never the user's, even as a clone without a RECORD.
    """
    if filename.startswith(_LIBRARIES) or any(part in filename for part in _INSTALLED):
        return False
    package = str(module).partition(".")[0]
    path = Path(filename)
    root = next((folder for folder in path.parents if (folder / package) in path.parents), path.parent)
    return package not in _OF_ARRAYS and not _has_record(str(root), package)


@functools.lru_cache(maxsize=4096)
def _has_record(root: str, package: str) -> bool:
    """Whether a distribution installed in this folder has a file of the package."""
    records = (each.read_text("RECORD") or "" for each in importlib.metadata.distributions(path=[root]))
    return any(line.startswith((f"{package}/", f"{package}.py,")) for each in records for line in each.splitlines())


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
