"""Functions that others wrote, converted to our form, `(*arrays, **options) -> (output, backward)`.

    verify.from_torch(f)                  functions of tensors, a torch.autograd.Function, modules
    verify.from_jax(f)                    functions of jax arrays, also with jax.custom_vjp
    verify.from_pair(forward, backward)   out, cache = forward(x, ...); dx = backward(dout, cache)
    verify.from_pair(layer)               an object with forward, backward, and gradients on its attributes

The converted functions can be checked, shown, diagnosed and graded like ours. This file has what the adapters share.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Module, Parameter
from ..trace.values import is_float_array
from ..verify import arguments as given

PRECISIONS = ("float64", "float32", "float16", "bfloat16")
# (inputs, the values of the parameters by name, options) to (output, pullback), which returns what `gradients` does.
Converted = Callable[[tuple[Any, ...], dict[str, Any], dict[str, Any]], tuple[Array, Callable[[Array], Any]]]


def of_our_form(f: Any, call: Converted, dtype: str) -> Callable[..., Any]:
    """`call` under the name and with the signature of f. dtype: what it computes in."""

    @functools.wraps(f)
    def function(*inputs: Any, **options: Any) -> Any:
        y, pull = _in_float64(call(inputs, {}, options), dtype)
        return y, lambda dy: pull(dy)[0]

    function.__name__ = getattr(f, "__name__", type(f).__name__)
    return _marked(function, call, dtype)


def _in_float64(called: tuple[Array, Callable[[Array], Any]], dtype: str) -> tuple[Array, Callable[[Array], Any]]:
    """What a call in this dtype has returned, in float64."""
    y, pull = called
    if dtype == "float64":
        return called
    return given.to_float64(y), lambda dy: given.with_leaves(pull(dy), given.to_float64)


def _marked(f: Any, call: Converted, dtype: str) -> Any:
    """f, with marks for the tracer and the checker: its backward is a separate function, and it computes in dtype."""
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype must be one of {', '.join(PRECISIONS)}, got {dtype!r}: the dtype that f computes in")
    f.separate, f.precision, f.made_by = True, dtype, call.__module__  # the last says which adapter
    f.left_out = {}  # what is not checked, and why
    return f


def library(name: str, install: str) -> Any:
    """An optional library. Raises ImportError, which says what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"verify.from_{name} needs {name}: pip install {install}", name=name) from error


def ran(name: str, what: str, run: Callable[[], Any]) -> Any:
    """The result of `run`. If it raises any error, raises ValueError, which names the function."""
    try:
        return run()
    except Exception as error:  # any kind of error: the function is somebody else's
        raise ValueError(f"{name}: {what} does not run: {type(error).__name__}: {error}") from error


class Inputs:
    """The arguments of one call, as `convert` makes them of another library. leaves: the floating-point ones."""

    def __init__(self, inputs: tuple[Any, ...], values: dict[str, Array], convert: Callable[[Any], Any]) -> None:
        self._inputs, self._values = inputs, values
        self.leaves: list[Any] = []

        def leaf(x: Any) -> Any:
            converted = convert(x)
            if is_float_array(x):
                self.leaves.append(converted)
            return converted

        *self.converted, self.values = [given.with_leaves(x, leaf) for x in (*inputs, values)]

    def gradients(self, found: Iterator[np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
        """(the gradients of the inputs: one, a tuple, or None if there are none; those of the values)."""
        wanted = [x for x in self._inputs if given.float_leaves(x)]

        def gradient(x: Any) -> Any:
            return next(found).astype(x.dtype, copy=False) if is_float_array(x) else None

        *dx, own = [given.with_leaves(x, gradient) for x in (*wanted, self._values)]
        return dx[0] if len(dx) == 1 else tuple(dx) or None, own


def flat(name: str, x: Any, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Each value in x that is wanted, also in dicts, lists and tuples there, with a name such as output[0]['lse']."""
    if wanted(x):
        yield name, x
    elif isinstance(x, dict | list | tuple):
        for key, part in x.items() if isinstance(x, dict) else enumerate(x):
            yield from flat(f"{name}[{key!r}]", part, wanted)


class Outputs:
    """The floating-point outputs of one call as one array: the only one as it is, several end to end."""

    def __init__(self, name: str, found: list[np.ndarray], inputs: tuple[Any, ...], single: bool, adapter: str) -> None:
        self.shapes = [x.shape for x in found]
        for x in found:
            require_width(name, x, inputs, single, adapter)
        self.joined = found[0] if len(found) == 1 else np.concatenate([x.ravel() for x in found])

    def gradients(self, dy: Array) -> list[Array]:
        """The upstream gradient of each output, laid out in memory with gaps if `dy` has gaps."""
        if len(self.shapes) == 1:
            return [dy]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = [part.reshape(shape) for part, shape in zip(np.split(dy, ends), self.shapes, strict=True)]
        if dy.flags.c_contiguous:
            return parts
        return [given.transposed(x) if x.ndim > 1 else given.strided(x) for x in parts]


def first_output(f: Any) -> Any:
    """f with the first of its outputs alone, if the last call of f returned several; ops have one."""
    if len(getattr(f, "shapes", [])) < 2:
        return f

    def call(inputs: tuple[Any, ...], _: dict[str, Any], options: dict[str, Any]) -> Any:
        y, backward = f(*inputs, **options)
        shape = f.shapes[0]  # of this call
        end = math.prod(shape)
        return y[:end].reshape(shape), lambda dy: (backward(np.append(dy, np.zeros(y.size - end, y.dtype))), {})

    call.__module__ = f.made_by  # not this file
    return of_our_form(f, call, f.precision)


def nothing_returned(name: str, returned: Any) -> TypeError:
    """The error for a function without a floating-point output."""
    hint = "; let forward return it, as in `return self.output`" if returned is None else ""
    return TypeError(f"{name} must return a floating-point array, or several, got {given.describe(returned)}{hint}")


def require_width(name: str, y: Array, inputs: tuple[Any, ...], single: bool, adapter: str) -> None:
    """Unless `single`, require an output as wide as the widest of the inputs."""
    widest = max((x.dtype for x in given.float_leaves(list(inputs))), key=lambda d: d.itemsize, default=y.dtype)
    if not single and y.dtype.itemsize < widest.itemsize:
        raise TypeError(
            f"{name} computes in {y.dtype} although its inputs are {widest}; "
            f'with {adapter}(f, dtype="float32") it is checked as closely as float32 allows'
        )


class Foreign(Module):
    """A module that somebody else wrote, as a module of ours: see `from_torch`, `from_jax` and `from_pair`.

    method: what of it runs; call: the same in our form. learned: the numbers that it learns; held: other
    floating-point numbers that it computes with. Parameters have the names from the original object.
    """

    def __init__(
        self,
        module: Any,
        method: Callable[..., Any],
        call: Converted,
        dtype: str,
        learned: dict[str, np.ndarray],
        held: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.__name__, self.__signature__ = type(module).__name__, inspect.signature(method)
        self._call, self._dtype = call, dtype
        self.owned = {key: as_parameter(value) for key, value in learned.items()}
        self.held = {key: as_parameter(value) for key, value in (held or {}).items()}
        _marked(self, call, dtype)

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (name, Parameter)."""
        yield from self.owned.items()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """(output, backward) with the current parameters; backward adds to their gradients."""
        values = {key: parameter.value for key, parameter in self.owned.items()}
        y, pull = _in_float64(self._call(inputs, values, options), self._dtype)

        def backward(dy: Array) -> Any:
            dx, own = pull(dy)
            for key, parameter in self.owned.items():
                gradient = own[key].astype(parameter.grad.dtype)
                parameter.grad += to_device(gradient, device_of(parameter.grad).name)
            return dx

        return y, backward


def as_parameter(value: Any) -> Parameter:
    """A parameter in float64."""
    return Parameter(np.array(value, dtype=np.float64))
