"""Compare every fast form with the textbook form: the second part of `minitransformer check`.

Training runs in float32, in NumPy forms or compiled loops. Finite differences test neither, because they need the
digits of float64. So each case runs again with `fast.ops` or `fast.accelerate`, in both dtypes and in every form.
Output and gradients must equal those of the textbook form in float64, up to rounding. In float32 the bound is four
times the textbook form's own largest error, on these numbers or on numbers that differ from them by a rounding, plus a
few units in the last place. large_cases.py adds cases whose sizes reach branches that the small cases of the catalogue
do not. Each is made for one fast form, which must accept it: a form that wrongly declines gives the right results, only
slowly, and nothing else would notice.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import threadpoolctl

from ...check.verify import Case
from ...check.verify.catalogue import Setup
from ...core import ops as textbook
from ...core.arrays.backend import Array, to_device, to_numpy
from ...core.layers import Module
from ...core.training import as_written
from . import attention, compiler, decoding, ops, row_blocks, sublayers
from .large_cases import LARGE, to_accelerate
from .twins import accelerate

# The functions of this package that compute, or decline.
SUBLAYERS = {"residual_attention", "residual_feed_forward"}
KERNELS = {"adam", "attention", "new_token", "cross_entropy", "dropout", "gelu", "layer_norm", "linear"} | SUBLAYERS
EPS = float(np.finfo(np.float32).eps)
_REACHED = {  # parts of the loops, and how the names of the large cases begin that reach them
    "loops": ("gelu", "layer_norm", "Adam"),
    "sublayers": ("EncoderLayer in", "DecoderLayer in"),
    "attention": ("attention",),
    "products": ("linear", "EncoderLayer on a cache, with packed"),
    "decoding": ("EncoderLayer on a cache", "DecoderLayer on a cache"),
}
NAMES = ("as written", "NumPy form", "compiled", "CUDA")


@dataclass(frozen=True)
class Form:
    """One run of a case: its form, and what is wrong with it, or ""."""

    name: str  # one of NAMES
    dtype: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the results equal those of the textbook form."""
        return not self.problem


def forms(case: Case, seed: int = 0, device: str = "numpy") -> list[Form]:
    """Run a case in every form available, and compare each with the textbook form."""
    compiler.compile_first()
    exact = _results(case, seed, device, "float64", as_written)
    sizes, errors = _sizes(exact), []
    for moved in range(3):
        rounded = _results(case, seed, device, "float32", as_written, moved)
        errors += [_distance(x, y) / (size or 1.0) for (_, x), (_, y), size in zip(exact, rounded, sizes, strict=True)]
    relative = 4.0 * max(errors) + 8.0 * EPS
    bounds = {"float64": [1e-11 * max(1.0, size) for size in sizes], "float32": [relative * size for size in sizes]}
    return [
        _run(case, seed, device, dtype, way, exact, bounds[dtype], takers) for dtype, way, takers in _ways(case, device)
    ]


def call_loops(part: str) -> None:
    """Run large cases in float32. They reach all loops of a part, and Numba compiles those that its cache lacks."""
    compiler.compile_first(part)
    for name, case in LARGE.items():
        if name.startswith(_REACHED[part]):
            with _shared_out():
                _results(case, 0, "numpy", "float32", _twin)


def _ways(case: Case, device: str) -> Iterator[tuple[str, Context[Any], set[str]]]:
    """For each run: a dtype, a context to run in, and the kernels that must accept the case."""
    yield "float64", contextlib.nullcontext(), set()
    yield "float32", row_blocks.numpy_only(), set()
    if device == "numpy" and row_blocks.compiled(np.empty(1, np.float32)):
        yield "float32", contextlib.nullcontext(), set()
        yield "float32", _shared_out(), _takers(case)


def _takers(case: Case) -> set[str]:
    """The kernels that a large case is made for, if they can run on this machine."""
    made_for = {"EncoderLayer": SUBLAYERS, "DecoderLayer": SUBLAYERS, "Adam": {"adam"}, "AdamW": {"adam"}}
    if LARGE.get(case.name) is not case or not compiler.loops("sublayers"):
        return set()
    return {"new_token"} if " on a cache" in case.name else made_for.get(case.covers, {case.covers})


@contextlib.contextmanager
def _shared_out() -> Iterator[None]:
    """Inside this context even the smallest call uses two threads, and the smallest matrix the loops of decoding."""
    with contextlib.ExitStack() as stack:
        limits = [(decoding, "LARGE"), (decoding, "LEAST_SIDE"), (decoding, "SHARED")]
        for module, name in [*limits, (sublayers, "SHARED"), (attention, "_MANY")]:
            stack.enter_context(mock.patch.object(module, name, 1))
        stack.enter_context(threadpoolctl.threadpool_limits(2, user_api="blas"))
        yield


Results = list[tuple[str, np.ndarray]]


def _run(
    case: Case,
    seed: int,
    device: str,
    dtype: str,
    way: Context[Any],
    exact: Results,
    bounds: list[float],
    takers: set[str],
) -> Form:
    seen: set[str] = set()
    try:
        with way:
            found = _results(case, seed, device, dtype, _twin, seen=seen)
        problem = _difference(found, exact, bounds, dtype)
        if declined := sorted(takers - seen):
            problem = problem or f"the fast form of {declined[0]} declines"
    except Exception as error:  # a mistake in a kernel may raise anything
        problem = f"{type(error).__name__}: {error}"
    named = ("CUDA" if "CUDA" in seen else "compiled" if "compiled" in seen else "NumPy form") if seen else "as written"
    return Form(named, dtype, problem)


@contextlib.contextmanager
def _watched(seen: set[str]) -> Iterator[None]:
    """Note which kernels accept a call: the functions of this package that return something. CUDA: those of a GPU."""

    def look(frame: Any, event: str, result: Any) -> None:
        if event == "return" and result is not None and result is not False:
            module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            if name in KERNELS and module.startswith(f"{__package__}."):
                seen.add("CUDA" if module.startswith(f"{__package__}.cuda.") else name)
            elif name == "compiled" and module == row_blocks.__name__:
                seen.add("compiled")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _results(
    case: Case,
    seed: int,
    device: str,
    dtype: str,
    form: Callable[[Any], Any],
    moved: int = 0,
    seen: set[str] | None = None,
) -> Results:
    """The output, the gradients of all inputs, and those of all parameters after two calls of backward.

    moved: if not 0, it moves each number of the case by a random rounding. seen: gets the kernels that accept a call of
    the forward pass, which decides for the backward pass as well.
    """
    setup = case.build(np.random.default_rng(seed))
    rng = np.random.default_rng([seed, moved])

    def moved_if_asked(x: Any) -> Any:
        return np.asarray(x * (1.0 + EPS * rng.normal(size=x.shape))) if moved else x  # of shape () too

    if setup.module is not None:
        for _, p in setup.module.parameters():
            p.value = moved_if_asked(p.value)
        setup.module.to(dtype=dtype)
    inputs = [
        moved_if_asked(x).astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for x in setup.inputs
    ]
    setup = Setup(setup.f, tuple(inputs), setup.options, setup.module).on(device)
    f, options = form(setup.f), {name: form(option) for name, option in setup.options.items()}
    with contextlib.nullcontext() if seen is None else _watched(seen):
        y, backward = f(*setup.inputs, **options)
    results = [("the output", _host(y))]
    dy = np.random.default_rng([seed, 1]).normal(size=y.shape).astype(dtype)
    for time in ("", " by a second call of backward"):
        gradients = backward(to_device(dy, device) if y.shape else float(dy))
        listed = gradients if isinstance(gradients, tuple) else () if gradients is None else (gradients,)
        results += [(f"gradient {i} of the inputs{time}", _host(dx)) for i, dx in enumerate(listed)]
    if setup.module is not None:
        results += [(f"the gradient of {name}", _host(p.grad)) for name, p in setup.module.parameters()]
    return results


def _host(x: Array) -> np.ndarray:
    return np.array(to_numpy(x))


def _twin(f: Any) -> Any:
    """The fast twin of what a case calls: an op, a module, a module's method, or a function that calls these."""
    if f is to_accelerate:
        return accelerate
    if isinstance(f, Module):
        return accelerate(f)
    if isinstance(f, types.MethodType) and isinstance(f.__self__, Module):
        return getattr(accelerate(f.__self__), f.__name__)
    if isinstance(f, types.FunctionType):
        name = f.__name__
        if f is getattr(textbook, name, None):
            return getattr(ops, name)
        cells = tuple(types.CellType(_twin(cell.cell_contents)) for cell in f.__closure__ or ())
        return types.FunctionType(f.__code__, f.__globals__, name, f.__defaults__, cells)
    return f


def _sizes(results: Results) -> list[float]:
    """The largest number of each result. The gradients of parameters share one: a single one may be only rounding."""
    sizes = [float(abs(x).max(initial=0.0)) for _, x in results]
    largest = max((size for (name, _), size in zip(results, sizes, strict=True) if _is_parameter(name)), default=0.0)
    return [largest if _is_parameter(name) else size for (name, _), size in zip(results, sizes, strict=True)]


def _is_parameter(name: str) -> bool:
    return name.startswith("the gradient of")


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    return float(abs(x - y).max(initial=0.0))


def _difference(found: Results, exact: Results, bounds: list[float], dtype: str) -> str:
    """The first result that differs from the textbook form's, and by how much; or ""."""
    if [name for name, _ in found] != [name for name, _ in exact]:
        return f"there are {len(found)} results in place of {len(exact)}"
    for (name, x), (_, right), bound in zip(found, exact, bounds, strict=True):
        if x.shape != right.shape or x.dtype != dtype:
            return f"{name} is {x.dtype} of shape {x.shape}, expected {dtype} of shape {right.shape}"
        if not _distance(x, right) <= bound:
            return f"{name} is off by {_distance(x, right):.1e}, where rounding explains {bound:.1e}"
    return ""
