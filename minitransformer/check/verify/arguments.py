"""The arguments of a checked function: split into single arrays, displaced, converted, laid out differently in memory.

An argument may be one array, or a nested dict, list or pytree of arrays; its single values are called its leaves.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Module, Parameter
from ..trace.values import Place, as_array, host_copy, is_array, is_float_array, pytree_of, pytree_parts

Named = tuple[str, Any]
MISFIT = "the gradient has shape"  # how the sentence on a gradient of another shape begins
Parameters = Module | dict[str, Parameter] | Iterable[tuple[str, Parameter]]


def _parts(x: Any) -> list[tuple[Any, Any]] | None:
    """(key, part) for each part of a dict, of a list that holds arrays or dicts, or of a pytree; None for others."""
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, list | tuple):
        return list(enumerate(x)) if any(is_array(as_array(part)) or _parts(part) is not None for part in x) else None
    return pytree_parts(x)


def leaves_of(name: str, x: Any) -> list[Named]:
    """The single values of an argument, with names such as params['query']."""
    parts = _parts(x)
    if parts is None:
        return [(name, x)]
    titles = ((f"{name}{key}" if isinstance(key, Place) else f"{name}[{key!r}]", part) for key, part in parts)
    return [leaf for title, part in titles for leaf in leaves_of(title, part)]


def float_leaves(x: Any) -> list[Array]:
    """The floating-point arrays among the single values of an argument."""
    return [leaf for _, leaf in leaves_of("", x) if is_float_array(leaf)]


def with_leaves(x: Any, change: Callable[[Any], Any]) -> Any:
    """The argument with `change` applied to each of its leaves."""
    parts = _parts(x)
    if parts is None:
        return change(x)
    changed = {key: with_leaves(part, change) for key, part in parts}
    if isinstance(x, dict):
        return changed
    if not isinstance(x, list | tuple):
        return pytree_of(x, changed.values())
    return type(x)(*changed.values()) if hasattr(x, "_fields") else type(x)(changed.values())


def gradients_of(x: Any, gradient: Any) -> list[Any]:
    """The gradient of each floating-point leaf of an argument; None where it is missing."""
    parts = _parts(x)
    if parts is None:
        return [gradient] if is_float_array(x) else []
    given = dict(_parts(gradient) or ())
    return [g for key, part in parts for g in gradients_of(part, given.get(key))]


def without_spare_nones(inputs: list[Any], returned: list[Any]) -> list[Any]:
    """The gradients of the inputs that have one, without the None that backward returns for others or left-out ones."""
    while len(returned) > len(inputs) and returned[-1] is None:
        returned = returned[:-1]
    pairs = [(float_leaves(x), dx) for x, dx in zip(inputs, returned, strict=False)]
    fit = len(inputs) == len(returned) and all(leaves or dx is None for leaves, dx in pairs)
    return [dx for leaves, dx in pairs if leaves] if fit else returned


def input_names(f: Callable[..., Any], inputs: tuple[Any, ...]) -> list[str]:
    """The names of the positional arguments, from the signature of f: x, weight, ..., others[0], others[1]."""
    fallback = [f"input {i}" for i in range(len(inputs))]
    try:
        bound = inspect.signature(f).bind_partial(*inputs)
    except (TypeError, ValueError):
        return fallback
    names: list[str] = []
    for name, argument in bound.arguments.items():
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}[{i}]" for i in range(len(argument))] if several else [name]
    return names if len(names) == len(inputs) else fallback


def refuse_unusable(arrays: list[Named], options: dict[str, Any]) -> None:
    """Raise TypeError or ValueError for arguments that cannot be checked: lists of numbers, arrays by keyword, NaN."""
    for name, x in arrays:
        if isinstance(x, list | tuple):
            raise TypeError(
                f"verify: {name} is a {type(x).__name__}; make it an array: numpy.array({name}, dtype=float)"
            )
    for name, option in (leaf for key, x in options.items() for leaf in leaves_of(key, x)):
        if is_float_array(option) and option.shape != ():
            raise TypeError(
                f"verify: {name} is a floating-point array given by keyword; give it by position to have it checked, "
                "or bind it with functools.partial to leave it unchecked"
            )
    floats = [name for name, x in arrays if is_float_array(x)]
    if floats and not any(x.size for _, x in arrays if is_float_array(x)):
        raise ValueError(f"verify: {', '.join(floats)}: every floating-point array is empty, so nothing can be checked")
    for name, x in arrays:
        if is_float_array(x) and np.isnan(host_copy(x)).any():
            index = tuple(int(i) for i in np.argwhere(np.isnan(host_copy(x)))[0])
            raise ValueError(
                f"verify: {name} contains NaN, first at {index}; gradients can be checked only where f is defined"
            )


def check_callable(where: str, f: Any) -> None:
    """Require a function or a module."""
    if not callable(f):
        raise TypeError(f"{where}: f must be a function or a module that returns (output, backward), got {f!r}")


_SOME_SEED = np.random.SeedSequence(0)  # of a generator that gets another state at once


def fresh(argument: Any) -> Any:
    """A copy of the argument if it is a random generator; else the argument itself."""
    if not isinstance(argument, np.random.Generator):
        return argument
    if type(argument) is not np.random.Generator or type(argument.bit_generator) is not np.random.PCG64:
        return copy.deepcopy(argument)
    bits = np.random.PCG64(_SOME_SEED)  # far faster than deepcopy; each evaluation needs one
    bits.state = argument.bit_generator.state
    return np.random.Generator(bits)


def copied(argument: Any) -> Any:
    """A copy of the argument if it is an array or a random generator; else the argument itself."""
    return argument.copy() if is_array(argument) else fresh(argument)


def own(argument: Any) -> Any:
    """The argument with copies of its arrays and random generators, which a function may change."""
    return with_leaves(argument, copied)


def displaced(x: Array, displacement: np.ndarray) -> Array:
    """x + displacement, on the device of x."""
    return to_device(host_copy(x) + displacement, device_of(x).name)


def to_float64(x: Any) -> Any:
    """x in float64 if it is a floating-point array; any other value unchanged."""
    return to_device(host_copy(x).astype(np.float64), device_of(x).name) if is_float_array(x) else x


def nearby(x: Any, rng: np.random.Generator) -> Any:
    """Numbers near those of a floating-point array, each on the same side of 0; any other value unchanged."""
    if not is_float_array(x):
        return x
    value, noise = host_copy(x), 0.01 * rng.normal(size=x.shape)
    return to_device(np.where(value == 0.0, abs(noise), value * (1.0 + noise)), device_of(x).name)


def flipped(x: Any) -> Any:
    """Ids and masks in reverse order; any other value unchanged."""
    return x[(slice(None, None, -1),) * x.ndim].copy() if is_array(x) and x.dtype.kind in "iub" else x


def transposed(x: Array) -> Array:
    """A copy that stores neighbours along the first axis next to each other."""
    return x.T.copy().T


def strided(x: Array) -> Array:
    """A copy with gaps between its numbers in memory."""
    return device_of(x).xp.stack([x, x], axis=-1)[..., 0]


def owner_of(f: Any) -> Module | None:
    """The module that f is, or is a method of."""
    f = inside_partial(f)
    owner = f if isinstance(f, Module) else getattr(f, "__self__", None)
    return owner if isinstance(owner, Module) else None


def parameters_of(f: Any, given: Parameters | None) -> list[tuple[str, Parameter]]:
    """The given parameters; if None, those of f if it is a module or a module's method."""
    if given is None:
        given = owner_of(f) or ()
    given = given.parameters() if isinstance(given, Module) else given
    found = list(given.items() if isinstance(given, dict) else given)
    if not all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Parameter) for one in found):
        raise TypeError(f"verify: parameters must be a module, or (name, Parameter) pairs as in a dict, got {given!r}")
    return found


_READING = threading.RLock()


def reading(run: Callable[[], Any]) -> tuple[Any, list[Parameter]]:
    """What `run` returns, and the parameters whose values it reads, wherever they are kept: even in a closure."""
    thread, found = threading.get_ident(), dict[int, Parameter]()

    def noting(parameter: Parameter, name: str) -> Any:
        if name == "value" and threading.get_ident() == thread:
            found[id(parameter)] = parameter
        return before(parameter, name)

    with _READING:
        # Not read earlier, or the hook of another thread's reading would stay for ever.
        before, Parameter.__getattribute__ = Parameter.__getattribute__, noting  # type: ignore[method-assign,assignment]
        try:
            return run(), list(found.values())
        finally:
            Parameter.__getattribute__ = before  # type: ignore[method-assign]


def unlisted(f: Any, owned: list[tuple[str, Parameter]], read: list[Parameter]) -> list[tuple[str, str]]:
    """The parameters that f reads and that are not checked, each with the reason.

    Raises TypeError if f is a module, which must know its own.
    """
    known = {id(parameter) for _, parameter in owned}
    missing = [parameter for parameter in read if id(parameter) not in known]
    if not missing:
        return []
    which = ", ".join(map(repr, missing[:3])) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    if owner_of(f) is not None:
        raise TypeError(
            f"verify: {name_of(f)} reads {which}, which its parameters() does not list; keep each parameter in an "
            "attribute of the module, or in a list, tuple or dict there"
        )
    return [(which, f"which {name_of(f)} reads; give the module itself, or parameters={{name: parameter}}")]


@contextlib.contextmanager
def parameters_as(change: Callable[[Array], Array], *parameters: Parameter) -> Iterator[None]:
    """Inside this context, `change` is applied to the parameters; afterwards values and gradients are restored."""
    kept = [(parameter, parameter.value, parameter.grad) for parameter in parameters]
    try:
        for parameter, value, _ in kept:
            parameter.value = change(value)
        yield
    finally:
        for parameter, value, grad in kept:
            parameter.value, parameter.grad = value, grad


def parameter_probe(parameter: Parameter, run: Callable[[], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """A function from a displacement of the parameter to the output of `run`."""

    def probe(displacement: np.ndarray) -> np.ndarray:
        with parameters_as(lambda value: displaced(value, displacement), parameter):
            return host_copy(run()[0])

    return probe


def inside_partial(f: Any) -> Any:
    """The function inside a functools.partial; f itself if it is not one."""
    while isinstance(f, functools.partial):
        f = f.func
    return f


def name_of(f: Any) -> str:
    """The name of a function, or of a callable object's class."""
    f = inside_partial(f)
    return getattr(f, "__name__", None) or type(f).__name__


def misfit(value: Array, gradient: Any) -> str:
    """How a gradient fails to match its array in type, device, shape or dtype; "" if it matches."""
    if gradient is None:
        return "the gradient is missing (None)"
    if not is_float_array(gradient):
        return f"the gradient is {describe(gradient)}, not a floating-point array"
    if device_of(gradient) is not device_of(value) and not isinstance(value, np.ndarray):
        return f"the gradient is on {device_of(gradient).name}, its array on {device_of(value).name}"
    if tuple(gradient.shape) != tuple(value.shape):
        return f"{MISFIT} {tuple(gradient.shape)}, its array {tuple(value.shape)}"
    if gradient.dtype != value.dtype:
        return f"the gradient is {gradient.dtype}, its array {value.dtype}"
    return ""


def describe(x: Any) -> str:
    """A short description of x for a message."""
    if isinstance(x, tuple):
        return "(" + ", ".join(describe(item) for item in x) + ")"
    if is_array(x) or not hasattr(x, "dtype"):
        return f"an array of {x.dtype}" if is_array(x) else type(x).__name__
    library, where = type(x).__module__.partition(".")[0], f" on {x.device}" if hasattr(x, "device") else ""
    return f"a {library}.{type(x).__name__} of {x.dtype}{where}"
