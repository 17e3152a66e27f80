"""The functions of the notation on real, complex and exact arrays.

A complex array carries a derivative in its imaginary part, which is 1e-30 times as large (Squire and Trapp 1998,
"Using complex variables to estimate derivatives of real functions"): so each function here must be analytic, or decide
by the real part alone.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .faults import Inexact, Unreadable

STEP = 1e-30
OVER = {"sum", "prod", "mean", "var", "std", "max", "min", "softmax", "logsumexp"}
FUNCTIONS = OVER | set(
    "exp log ln sqrt tanh sinh cosh sech sigmoid sigm logistic σ relu ReLU gelu GELU silu SiLU softplus sin cos Φ φ "
    "erf abs norm sign sgn diag vec stack tr trace clip clamp E Var Softmax Tr rowsum colsum rowmean colmean det "
    "inv".split()
)
ALIKE = {"ln": "log", "sigm": "sigmoid", "logistic": "sigmoid", "σ": "sigmoid", "ReLU": "relu", "GELU": "gelu"}
ALIKE |= {"SiLU": "silu", "sgn": "sign", "trace": "tr", "Tr": "tr", "Softmax": "softmax", "E": "mean", "Var": "var"}


def exactly(array: Any) -> bool:
    """Whether an array holds fractions."""
    return bool(array.dtype == object)


def real(array: Any) -> Any:
    """The real part; fractions have no other."""
    return array if exactly(array) else array.real


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def load() -> None:
    """Import what takes time."""
    from scipy import special  # noqa: F401


def _erf(x: Any) -> Any:
    try:
        from scipy.special import erf
    except ImportError:  # in a page, where it is loaded for a text that needs it, and a repair may try it in others
        raise Unreadable("erf and Φ need SciPy.") from None

    if not np.iscomplexobj(x):
        return erf(x)
    value = x.real
    return erf(value) + 1j * x.imag * 2.0 / math.sqrt(math.pi) * np.exp(-value * value)


def _normal(x: Any) -> Any:
    return 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


ENTRYWISE: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sech": lambda x: 1.0 / np.cosh(x),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.log(1.0 + np.exp(x)),
    "relu": lambda x: np.where(real(x) > 0, x, 0 * x),
    "abs": lambda x: np.where(real(x) < 0, -x, x),
    "sign": lambda x: np.sign(real(x)) + 0 * x,
    "erf": _erf,
    "Φ": _normal,
    "φ": lambda x: np.exp(-x * x / 2.0) / math.sqrt(2.0 * math.pi),
    "gelu": lambda x: x * _normal(x),
    "silu": lambda x: x * _sigmoid(x),
}
RATIONAL = {"relu", "abs"}


def entrywise(name: str, primes: int, array: Any) -> Any:
    """f, or its derivative f', of each entry."""
    function = ENTRYWISE[name]
    if exactly(array) and (primes or name not in RATIONAL):
        raise Inexact
    if primes == 0:
        return function(array)
    if primes > 1:
        raise Unreadable("Second derivatives cannot be read; define the first as a name.")
    if np.iscomplexobj(array) and np.any(array.imag):  # the derivative of f' itself: central differences of f'
        value, step = array.real, 1e-5
        slope = function(value + 1j * STEP).imag / STEP
        left, right = (function(value + s * step + 1j * STEP).imag / STEP for s in (-1, 1))
        return slope + 1j * array.imag * (right - left) / (2 * step)
    return function(array.real + 1j * STEP).imag / STEP


def power(base: Any, exponent: Any) -> Any:
    """base ** exponent; whole exponents by multiplication, so that a negative base keeps its derivative."""
    if exponent.ndim == 0 or exponent.size == 1:
        n = exponent.reshape(-1)[0]
        whole = n if isinstance(n, Fraction) else (n.real if getattr(n, "imag", 0) == 0 else 0.5)
        if whole == int(whole) if abs(whole) < 1e6 else False:
            n = int(whole)
            if abs(n) <= 64:
                result = base * 0 + 1
                for _ in range(abs(n)):
                    result = result * base
                return result if n >= 0 else 1 / result
    if exactly(base) or exactly(exponent):
        raise Inexact
    return np.power(base, exponent)


def softmax(x: Any, axis: int) -> Any:
    """Softmax along an axis. Raises Inexact for fractions, since e is none."""
    if exactly(x):
        raise Inexact
    e = np.exp(x - x.real.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def largest(x: Any, axis: int, sign: int = 1) -> Any:
    """The largest entry along an axis (sign -1: the smallest), with its derivative."""
    if exactly(x):
        return x.max(axis=axis) if sign > 0 else x.min(axis=axis)
    at = (sign * x.real).argmax(axis=axis)
    return np.take_along_axis(x, np.expand_dims(at, axis), axis).squeeze(axis)


def reduced(name: str, x: Any, axis: int) -> Any:
    """sum, mean, var, ... along one axis; softmax keeps it."""
    n = x.shape[axis]
    if name == "sum":
        return x.sum(axis=axis)
    if name == "prod":
        return x.prod(axis=axis)
    if name == "mean":
        return x.sum(axis=axis) / n
    if name in ("var", "std"):
        centred = x - x.sum(axis=axis, keepdims=True) / n
        variance = (centred * centred).sum(axis=axis) / n
        return variance if name == "var" else entrywise("sqrt", 0, variance)
    if name in ("max", "min"):
        return largest(x, axis, 1 if name == "max" else -1)
    if name == "softmax":
        return softmax(x, axis)
    if exactly(x):
        raise Inexact
    return np.log(np.exp(x).sum(axis=axis))  # logsumexp
