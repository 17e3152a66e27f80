"""A strict stand-in for CuPy: it shows on a machine without a GPU whether code would run on one.

A `StrictArray` holds a NumPy array and computes with it, but it is as strict as cupy.ndarray. Where CuPy and NumPy
differ, it behaves like CuPy (CuPy's user guide, "Differences between CuPy and NumPy", and the sources of CuPy 14):

- No array becomes a NumPy array implicitly: numpy.asarray(a) raises TypeError. a.get() is the explicit way.
- NumPy arrays are refused as operands; Python numbers and NumPy scalars are accepted.
- Every result stays on the device: a.sum() and a[0, 0] are arrays of shape (), never NumPy scalars. float(a), int(a),
  bool(a) and a.item() fetch one number; a itself cannot serve as a length.
- Integer arrays used as an index wrap: an id beyond the table reads some other row, silently.
- sum of float16 numbers adds in float32, and the result is rounded to float16.
- There are no object or string arrays, and only some of NumPy's functions, methods and options.

In four points it is stricter than CuPy, because what CuPy allows there would be a mistake here. It refuses

- NumPy's own functions, as in numpy.exp(a): code for both libraries uses array_module(a);
- NumPy arrays and lists as an index or a value to assign, which CuPy sometimes accepts and copies to the GPU;
- arrays as arguments of methods, as in a.clip(b, c), and as options other than out;
- every name that is not listed below. Add a name to its list only if CuPy has it.

It cannot show what only a GPU does: sums whose last digits depend on the order of additions, the winner among several
rows assigned to the same index, and overflow or division by zero without a warning.

A GPU runs behind the program that drives it. When the program asks for a number, it must wait. `round_trips()` lists
each such place. It lists only the requests of the program: not those that CuPy itself may make (for example when it
runs out of memory), and not copies to the device.

Importing this module registers the device "strict" with `minitransformer.backend`, which does so when it is asked for.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .backend import Device, register

_DTYPES = "?bBhHiIlLqQefdFD"  # the type characters of booleans, integers, floats and complex numbers
_ATTRIBUTES = frozenset("T base dtype flags itemsize mT nbytes ndim shape size strides".split())
_METHODS = frozenset(
    "all any argmax argmin argsort astype clip copy cumprod cumsum diagonal fill flatten item max mean min nonzero "
    "prod ravel repeat reshape round sort squeeze std sum swapaxes tolist trace transpose var view".split()
)
_NUMPY_ONLY_OPTIONS = frozenset("correction device initial like stable where".split())
# Functions that fetch a number, or whose result's size depends on the data.
_WAITING = frozenset("bincount flatnonzero item nonzero tolist unique".split())
_listeners: list[list[str]] = []
_counters: list[list[int]] = []


@contextlib.contextmanager
def round_trips() -> Iterator[list[str]]:
    """Inside this context, the yielded list gets a line whenever the host waits: "float, in loop.py line 9".

    This includes waits in other threads.
    """
    heard: list[str] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners[:] = [other for other in _listeners if other is not heard]  # remove() would remove an equal list


@contextlib.contextmanager
def multiplications() -> Iterator[list[int]]:
    """Inside this context, the yielded list's one number counts the multiplications of every matrix product a @ b."""
    count = [0]
    _counters.append(count)
    try:
        yield count
    finally:
        _counters[:] = [other for other in _counters if other is not count]


def _waits(what: str) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(("strict.py", "backend.py")):
        frame = frame.f_back
    for heard in _listeners:
        heard.append(f"{what}, in {frame.f_code.co_filename.rpartition('/')[2]} line {frame.f_lineno}")


class StrictArray:
    """An array on the device "strict"; see the top of this file. Make one with backend.to_device(x, "strict")."""

    __slots__ = ("_numpy",)
    __array_ufunc__ = None  # NumPy's functions refuse us, and its operators defer to ours
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __init__(self, array: np.ndarray) -> None:
        if array.dtype.char not in _DTYPES:
            raise ValueError(f"CuPy has no arrays of dtype {array.dtype}")
        self._numpy = array

    def __getattr__(self, name: str) -> Any:
        if name in _ATTRIBUTES:
            return _wrap(getattr(self._numpy, name))
        if name in _METHODS:
            return partial(_compute, getattr(self._numpy, name), _no_arrays)
        raise AttributeError(f"StrictArray has no attribute {name!r}: it is not on the list of those taken from CuPy")

    @property
    def data(self) -> Any:
        """Where the numbers begin: data.ptr."""
        return SimpleNamespace(ptr=self._numpy.ctypes.data)

    def get(self) -> np.ndarray:
        """A copy on the host."""
        _waits("get")
        return self._numpy.copy()

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed; use minitransformer.backend.to_numpy")

    def __array_function__(self, function: Callable[..., Any], *_: Any) -> Any:
        raise TypeError(
            f"numpy.{function.__name__} got an array on the device; call the function of its own library, "
            "minitransformer.backend.array_module(x)"
        )

    def __getitem__(self, key: Any) -> StrictArray:
        index = _index(self.shape, key)
        if any(isinstance(part, np.ndarray) and part.dtype == np.bool_ for part in index):
            _waits("a boolean index")
        return _wrap(self._numpy[index])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._numpy[_index(self.shape, key)] = _operand(value)

    def __len__(self) -> int:
        return len(self._numpy)

    def __iter__(self) -> Iterator[StrictArray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        _waits("bool")
        return bool(self._numpy)

    def __int__(self) -> int:
        _waits("int")
        return int(self._numpy)

    def __float__(self) -> float:
        _waits("float")
        return float(self._numpy)

    def __repr__(self) -> str:
        _waits("repr")
        return f"<strict {self._numpy!r}>"

    def __format__(self, specification: str) -> str:
        _waits("format")
        return format(self._numpy, specification)


def _wrap(result: Any) -> Any:
    """Keep NumPy's results on the device: arrays and scalars become StrictArrays, also inside a tuple or list."""
    if isinstance(result, np.ndarray | np.generic):
        return StrictArray(np.asarray(result))
    if isinstance(result, tuple | list):
        return type(result)(map(_wrap, result))
    return result


def _array(x: Any) -> np.ndarray:
    if not isinstance(x, StrictArray):
        raise TypeError(
            f"expected an array on the device, got {type(x).__name__}; move it with minitransformer.backend.to_device"
        )
    return x._numpy


def _operand(x: Any) -> Any:
    return x if isinstance(x, bool | int | float | complex | np.generic) else _array(x)


# What a function accepts. Each of these returns the arguments in the form that NumPy needs.
def _no_arrays(*args: Any) -> list[Any]:
    for x in args:
        if isinstance(x, StrictArray | np.ndarray):
            raise TypeError(
                f"expected no array here, got {type(x).__name__}; fetch a single number with int(x) or float(x)"
            )
    return list(args)


def _operands(*args: Any) -> list[Any]:
    return [_operand(x) for x in args]


def _array_first(array: Any, *args: Any) -> list[Any]:
    return [_array(array), *(_array(x) if isinstance(x, StrictArray | np.ndarray) else x for x in args)]


def _list_first(arrays: Any, *args: Any) -> list[Any]:
    return [[_array(x) for x in arrays], *_no_arrays(*args)]


def _subscripts_first(subscripts: str, *arrays: Any) -> list[Any]:
    return [subscripts, *map(_array, arrays)]


def _compute(function: Callable[..., Any], accept: Callable[..., list[Any]], *args: Any, **options: Any) -> Any:
    """Call a NumPy function with the arguments that `accept` lets through, and keep the result on the device."""
    for name in _NUMPY_ONLY_OPTIONS & options.keys():
        raise TypeError(f"{function.__name__} of CuPy has no option {name!r}")
    if "out" in options:
        options["out"] = _array(options["out"])
    _no_arrays(*(x for name, x in options.items() if name != "out"))
    accepted = accept(*args)
    if function.__name__ in _WAITING or (function.__name__ == "where" and len(accepted) == 1):
        _waits(function.__name__)
    summed = getattr(function, "__self__", accepted[0] if accepted else None)
    if (
        function.__name__ == "sum"
        and getattr(summed, "dtype", None) == np.float16
        and not {"dtype", "out"} & set(options)
    ):
        return _wrap(function(*accepted, dtype=np.float32, **options).astype(np.float16))
    return _wrap(function(*accepted, **options))


def _index(shape: tuple[int, ...], key: Any) -> tuple[Any, ...]:
    """The index for NumPy. Its integer arrays are wrapped around the length of their axis."""
    parts = list(key) if isinstance(key, tuple) else [key]
    for n, part in enumerate(parts):
        if not (part is None or part is Ellipsis or isinstance(part, slice | int | np.integer)):
            parts[n] = _array(part)

    def axes(part: Any) -> int:
        if part is None or part is Ellipsis:
            return 0
        return part.ndim if isinstance(part, np.ndarray) and part.dtype == np.bool_ else 1

    left_for_ellipsis = len(shape) - sum(map(axes, parts))
    axis = 0
    for n, part in enumerate(parts):
        if isinstance(part, np.ndarray) and part.dtype.kind in "iu":
            parts[n] = part.astype(np.int64) % shape[axis]
        axis += left_for_ellipsis if part is Ellipsis else axes(part)
    return tuple(parts)


def _forward(name: str) -> Callable[..., StrictArray]:
    compute = getattr(operator, f"__{name}__")
    return lambda self, *other: _wrap(compute(self._numpy, *map(_operand, other)))


def _reflected(name: str) -> Callable[..., StrictArray]:
    compute = getattr(operator, f"__{name}__")
    return lambda self, other: _wrap(compute(_operand(other), self._numpy))


def _in_place(name: str) -> Callable[..., StrictArray]:
    compute = getattr(operator, f"__i{name}__")

    def method(self: StrictArray, other: Any) -> StrictArray:
        compute(self._numpy, _operand(other))
        return self

    return method


def _counted(a: StrictArray, b: Any) -> StrictArray:
    """a @ b: each cell of the result takes as many multiplications as a row of a is long."""
    product = _wrap(a._numpy @ _operand(b))
    for count in _counters:
        count[0] += product.size * a.shape[-1]
    return product


_ARITHMETIC = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
for _name in ["neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge", *_ARITHMETIC, "matmul"]:
    setattr(StrictArray, f"__{_name}__", _forward(_name))
for _name in [*_ARITHMETIC, "matmul"]:
    setattr(StrictArray, f"__r{_name}__", _reflected(_name))
setattr(StrictArray, "__matmul__", _counted)  # noqa: B010 - as the others, which are in a loop
for _name in _ARITHMETIC:  # CuPy has no @=
    setattr(StrictArray, f"__i{_name}__", _in_place(_name))

_FUNCTIONS: dict[Callable[..., list[Any]], str] = {
    _no_arrays: "arange empty eye full linspace ones zeros",
    _operands: "abs add ceil cos divide equal exp expm1 floor greater greater_equal isfinite isinf isnan less "
    "less_equal log log1p log2 logaddexp logical_and logical_not logical_or matmul maximum minimum multiply negative "
    "not_equal power reciprocal sign sin sqrt square subtract tanh",
    _array_first: "all any argmax argmin argpartition argsort ascontiguousarray bincount broadcast_to clip cumsum "
    "diagonal dot empty_like expand_dims flatnonzero flip full_like isclose isin max mean min moveaxis nonzero "
    "ones_like outer pad prod ravel repeat reshape roll sort split squeeze std sum swapaxes tensordot tile transpose "
    "tril triu unique var where zeros_like",
    _list_first: "concatenate hstack stack vstack",
    _subscripts_first: "einsum",
}
_CONSTANTS = (
    "bool_ dtype e finfo float16 float32 float64 iinfo inf int8 int16 int32 int64 nan newaxis pi "
    "uint8 uint16 uint32 uint64"
)


def _asarray(x: Any, dtype: Any = None) -> StrictArray:
    """The explicit way to the device, also for NumPy arrays and lists of numbers. A StrictArray stays itself."""
    if isinstance(x, StrictArray) and dtype in (None, x.dtype):
        return x
    return _copy(x, dtype)


def _copy(x: Any, dtype: Any = None) -> StrictArray:
    return StrictArray(np.array(x._numpy if isinstance(x, StrictArray) else x, dtype=dtype))


def _take_along_axis(a: Any, indices: Any, axis: int) -> StrictArray:
    wrapped = _array(indices).astype(np.int64) % a.shape[axis]
    return _wrap(np.take_along_axis(_array(a), wrapped, axis))


def _missing(name: str) -> Any:
    raise AttributeError(f"module 'strict' has no attribute {name!r}: it is not on the list of those taken from CuPy")


def _make_xp() -> Any:
    xp: Any = ModuleType("strict", "The functions of CuPy that this package may use, on StrictArrays.")
    for accept, names in _FUNCTIONS.items():
        for name in names.split():
            setattr(xp, name, partial(_compute, getattr(np, name), accept))
    for name in _CONSTANTS.split():
        setattr(xp, name, getattr(np, name))
    xp.ndarray = StrictArray
    xp.array, xp.asarray, xp.take_along_axis = _copy, _asarray, _take_along_axis
    xp.__getattr__ = _missing
    return xp


def _erfc(x: StrictArray) -> StrictArray:
    from scipy import special

    return _wrap(special.erfc(_array(x)))


def _scatter_add(target: StrictArray, ids: StrictArray, rows: StrictArray) -> None:
    np.add.at(_array(target), _index(target.shape, ids), _array(rows))


xp = _make_xp()
register(Device("strict", xp, StrictArray, _copy, StrictArray.get, _erfc, _scatter_add))
