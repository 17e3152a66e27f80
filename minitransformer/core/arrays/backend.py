"""The array library: NumPy on the host or CuPy on a GPU. The arrays themselves choose it.

Every op asks for the library of its input, conventionally called `xp`, and computes with it. So one code path runs on
both. `library(type(x))` and `array_module(x)` give the same. A device has a name: "numpy", or "cupy" if a usable GPU is
found. The environment variable MINITRANSFORMER_DEVICE names the device on which parameters are created; the default is
"numpy". This is the only file that imports CuPy.
"""

import functools
import importlib
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

# A BLAS may leave the processor's flag "invalid" set though all numbers are finite (numpy/numpy#24067), and NumPy then
# warns. What is really not finite shows in the loss, which a training checks; so a product here gives no such warning.
warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning, r"minitransformer\.")

Array: TypeAlias = Any  # a numpy.ndarray or a cupy.ndarray
Rng: TypeAlias = np.random.Generator  # draws first values, and what dropout drops
Pullback: TypeAlias = Callable[..., Any]  # from the gradient of the output to the gradients of the inputs


@dataclass(frozen=True)
class Device:
    """One array library, and the few functions whose names differ between NumPy and CuPy."""

    name: str
    xp: Any
    array_type: type
    to_device: Callable[[np.ndarray], Array]
    to_numpy: Callable[[Array], np.ndarray]
    erfc: Callable[[Array], Array]
    scatter_add: Callable[[Array, Array, Array], None]


def _scatter_add_sorted(target: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> None:
    """Add rows[n] to target[ids[n]]. Sorting brings equal ids together, so each id takes one sum and one write.

    `target[ids] += rows` would keep only the last row of a repeated id; `np.add.at` is right but several times slower.
    """
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))
    target[sorted_ids[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def _erfc(x: np.ndarray) -> np.ndarray:
    try:
        from scipy import special  # here: few ops need it
    except ModuleNotFoundError:  # as in a browser, where it would be 20 MB for this one function
        return np.vectorize(math.erfc, otypes=[x.dtype])(x)
    return special.erfc(x).astype(x.dtype, copy=False)  # SciPy has no float16 and answers in a wider type


NUMPY = Device("numpy", np, np.ndarray, np.asarray, np.asarray, _erfc, _scatter_add_sorted)
_devices: dict[str, Device] = {"numpy": NUMPY}


def register(device: Device) -> None:
    """Register another array library under its name. The strict stand-in for CuPy does so (core/arrays/strict.py)."""
    _devices[device.name] = device


def _find_cupy() -> Device:
    try:
        import cupy
        from cupyx import scatter_add
        from cupyx.scipy.special import erfc
    except ImportError as error:
        raise RuntimeError(
            f'device "cupy" was requested, but CuPy cannot be imported ({error}); install the extra for your CUDA: '
            'pip install "minitransformer[cuda12x]" or "minitransformer[cuda13x]"'
        ) from error
    if not cupy.cuda.is_available():  # `import cupy` succeeds on a machine without a GPU
        raise RuntimeError(
            'device "cupy" was requested, and CuPy is installed, but it finds no usable GPU; '
            'check the driver with nvidia-smi, or use device "numpy"'
        )
    return Device("cupy", cupy, cupy.ndarray, cupy.asarray, cupy.asnumpy, erfc, scatter_add)


def multiply_in_tf32(device: str) -> None:
    """Make CuPy multiply float32 matrices on tensor cores: entries rounded to 11 significant bits, sums in float32.

    CuPy reads this setting at the first product of the process, so call this function before. Raises ValueError for
    another device, which has no such arithmetic.
    """
    if device != "cupy":
        raise ValueError(
            f'precision tf32 needs a GPU: use device "cupy", or precision float32; the model is on "{device}"'
        )
    os.environ["CUPY_TF32"] = "1"


def get_device(name: str | None = None) -> Device:
    """The device called `name`. The default is the one in MINITRANSFORMER_DEVICE, otherwise NumPy.

    Raises ValueError for an unknown name and RuntimeError if "cupy" cannot be used.
    """
    asked_by = ""
    if name is None:
        name = os.environ.get("MINITRANSFORMER_DEVICE") or "numpy"
        asked_by = " (from MINITRANSFORMER_DEVICE)" if "MINITRANSFORMER_DEVICE" in os.environ else ""
    if name == "strict" and name not in _devices:
        importlib.import_module(f"{__package__}.strict")  # registers itself
    if name not in _devices:
        if name != "cupy":
            known = ", ".join(f'"{known}"' for known in sorted({*_devices, "cupy", "strict"}))
            raise ValueError(f'unknown device "{name}"{asked_by}; expected one of {known}')
        register(_find_cupy())
    return _devices[name]


def device_of(x: Array) -> Device:
    """The device of array x. Raises TypeError for anything that is not an array of a known library."""
    return NUMPY if isinstance(x, np.ndarray) else _device_of_type(type(x))


def _device_of_type(kind: type) -> Device:
    if issubclass(kind, np.ndarray | np.generic):
        return NUMPY
    for device in _devices.values():
        if issubclass(kind, device.array_type):
            return device
    if kind.__module__.partition(".")[0] == "cupy":  # a CuPy array made before the device was first used
        return get_device("cupy")
    raise TypeError(f"expected a NumPy or CuPy array, got {kind.__name__}; convert it with numpy.asarray")


def _library(kind: type) -> Any:
    """The library whose arrays are of this type: `numpy` or `cupy`. Raises TypeError for what is no array."""
    return _device_of_type(kind).xp


library: Callable[[type], Any] = functools.cache(_library)  # who asks for the same type again steps into no function


def array_module(x: Array) -> Any:
    """The array library of x: `numpy` or `cupy`."""
    return library(type(x))


def to_device(x: Array, name: str | None = None) -> Array:
    """x on the named device (default: see get_device); x itself if it is already there."""
    target = get_device(name)
    source = device_of(x)
    return x if source is target else target.to_device(source.to_numpy(x))


def to_numpy(x: Array) -> np.ndarray:
    """x as a NumPy array on the host; x itself if it already is one."""
    return device_of(x).to_numpy(x)


def erfc(x: Array) -> Array:
    """The complementary error function 1 - erf(x), element-wise, in the dtype of x; exact also where it is tiny."""
    return device_of(x).erfc(x)


def scatter_add(target: Array, ids: Array, rows: Array) -> None:
    """target[ids[n]] += rows[n] for every n, in place; ids may repeat. ids: (N,); rows: (N, D).

    float16 rows are summed in float32, because an id may occur thousands of times.
    """
    if target.dtype == np.float16:
        wide = target.astype(np.float32)
        device_of(target).scatter_add(wide, ids, rows.astype(np.float32))
        target[...] = wide.astype(np.float16)
        return
    device_of(target).scatter_add(target, ids, rows)
