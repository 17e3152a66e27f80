"""Put our ops in the place of a suite's functions, and count how often the suite calls them."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..verify.catalogue import known_ops
from .suite import Function, Suite

CALLS: Counter[str] = Counter()  # of our ops, by the place of the function that calls them
OWN: dict[str, Any] = {}  # the suite's own functions, by their place
_PLACES: list[tuple[Any, str, Any]] = []  # what was replaced: its holder, its name there, and what it was


def namespace_of(suite: Suite) -> dict[str, Any]:
    """The names that `call` can use."""
    ops = known_ops()
    plain = {"np": np, "ops": types.SimpleNamespace(**ops)}
    if suite.arrays == "numpy":
        return ops | plain
    library = library_of(suite.arrays)
    return {name: library.adapted(f) for name, f in ops.items()} | plain | library.names()


def library_of(arrays: str) -> Any:
    """The file that knows this library's arrays."""
    from . import jax_arrays, tensors

    return {"torch": tensors, "jax": jax_arrays}[arrays]


def replace(suite: Suite, namespace: dict[str, Any]) -> None:
    """Replace every function of the suite by ours, because the tests of one may call another.

    A package often has a function under several names, as `pkg.softmax` and `pkg.nn.softmax`: each is replaced.
    """
    described = {function.replaces for function in suite.functions}  # each of these has a replacement of its own
    for function in suite.functions:
        if not function.replaces or function.replaces in OWN:
            continue
        module, _, path = function.replaces.partition(":")
        holder = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            holder = getattr(holder, part)
        own, ours = getattr(holder, name), made(function, namespace)
        OWN[function.replaces] = own
        places = [(m, key) for m, key, value in _held_by(module.partition(".")[0]) if value is own]
        places = [(m, key) for m, key in places if f"{m.__name__}:{key}" not in described]
        for place, key in [(holder, name), *places]:
            _PLACES.append((place, key, own))
            setattr(place, key, ours)


def _held_by(package: str) -> list[tuple[Any, str, Any]]:
    """(module, name, value) of all that the modules of a package hold."""
    modules = [m for key, m in list(sys.modules.items()) if key.partition(".")[0] == package]
    return [(m, key, value) for m in modules for key, value in list(getattr(m, "__dict__", {}).items())]


def put_back() -> None:
    """Undo what `replace` did."""
    while _PLACES:
        setattr(*_PLACES.pop())
    OWN.clear()


def made(function: Function, namespace: dict[str, Any]) -> Any:
    """What stands in the place of a function: its `call`, in which our ops count their calls."""
    scope = dict(namespace)
    for op in function.ops:
        scope[op] = _counted(scope[op], function.replaces)
    plain = {op: _counted(f, function.replaces) for op, f in known_ops().items() if op in function.ops}
    scope["ops"] = types.SimpleNamespace(**{**vars(namespace["ops"]), **plain})
    if "\n" not in function.call.strip():
        return eval(function.call, scope)
    exec(function.call, scope)
    return scope["replacement"]


def _counted(op: Callable[..., Any], place: str) -> Callable[..., Any]:
    @functools.wraps(op)
    def call(*inputs: Any, **options: Any) -> Any:
        CALLS[place] += 1
        return op(*inputs, **options)

    return call
