"""Hold every fast form against the textbook: what `minitransformer check` does beside the finite differences.

Training runs in float32, by NumPy forms or by compiled loops, and the finite differences see neither: they need the
digits of float64. So each case runs again by `fast.ops` or `fast.accelerate`, in both dtypes and in every form. Output
and gradients must be those of the textbook in float64, as far as rounding allows: in float32 an error may be four
times the textbook's own largest, and a few units in the last place. LARGE has further cases, whose sizes reach what the
small ones of the catalogue do not.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import threadpoolctl

from .. import layers
from .. import ops as textbook
from ..arrays.backend import Array, Pullback, to_device, to_numpy
from ..layers import KeyValueCache, Module
from ..training import Adam, AdamW, Optimizer
from ..verify import Case
from ..verify.catalogue.case import Random, Setup, call, frozen, ordinary, some_mask
from . import attention, blocks, decoding, ops
from . import layers as fast_layers
from .twins import accelerate

KERNELS = {"adam", "attention", "cached_layer", "cross_entropy", "encoder_layer", "feed_forward", "gelu", "layer_norm"}
KERNELS |= {"linear"}  # the functions of this package that compute, or decline


NAMES = ("as written", "NumPy form", "compiled", "CUDA")


@dataclass(frozen=True)
class Form:
    """One run of a case: in which form, and what is wrong with it, or ""."""

    name: str  # one of NAMES
    dtype: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the results are those of the textbook."""
        return not self.problem


def forms(case: Case, seed: int = 0, device: str = "numpy") -> list[Form]:
    """Run a case in every form that there is, and compare each with the textbook."""
    exact = _results(case, seed, device, "float64", _as_written)
    rounded = _results(case, seed, device, "float32", _as_written)
    sizes = _sizes(exact)
    errors = [_distance(x, y) / (size or 1.0) for (_, x), (_, y), size in zip(exact, rounded, sizes, strict=True)]
    relative = 4.0 * max(errors) + 8.0 * float(np.finfo(np.float32).eps)
    bounds = {
        "float64": [1e-11 * max(1.0, size) for size in sizes],
        "float32": [relative * size for size in sizes],
    }
    return [_run(case, seed, device, dtype, way, exact, bounds[dtype]) for dtype, way in _ways(device)]


def _ways(device: str) -> Iterator[tuple[str, Context[Any]]]:
    """Each dtype and a context to run in."""
    yield "float64", contextlib.nullcontext()
    yield "float32", blocks.numpy_only()
    if device == "numpy":
        yield "float64", _shared_out()
        if blocks.compiled(np.empty(1, np.float32)):
            yield "float32", contextlib.nullcontext()
            yield "float32", _shared_out()


@contextlib.contextmanager
def _shared_out() -> Iterator[None]:
    """Within it the smallest work is worth two threads, and the smallest matrix the loops of decoding."""
    with contextlib.ExitStack() as stack:
        for module, names in {decoding: ("LARGE", "LEAST_SIDE", "SHARED"), fast_layers: ("SHARED",)}.items():
            stack.enter_context(mock.patch.multiple(module, **dict.fromkeys(names, 1)))
        stack.enter_context(mock.patch.object(attention, "_MANY", 1))
        stack.enter_context(threadpoolctl.threadpool_limits(2, user_api="blas"))
        yield


Results = list[tuple[str, np.ndarray]]


def _run(
    case: Case, seed: int, device: str, dtype: str, way: Context[Any], exact: Results, bounds: list[float]
) -> Form:
    seen: set[str] = set()
    try:
        with way, _watched(seen):
            found = _results(case, seed, device, dtype, _twin)
        problem = _difference(found, exact, bounds, dtype)
    except Exception as error:  # a mistake in a kernel may raise anything
        problem = f"{type(error).__name__}: {error}"
    named = ("CUDA" if "CUDA" in seen else "compiled" if "compiled" in seen else "NumPy form") if seen else "as written"
    return Form(named, dtype, problem)


@contextlib.contextmanager
def _watched(seen: set[str]) -> Iterator[None]:
    """Note which kind of kernel takes a call: functions of this package that return something, or `compiled`."""

    def look(frame: Any, event: str, result: Any) -> None:
        if event == "return" and result is not None and result is not False:
            module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            if name in KERNELS and module.startswith(f"{__package__}."):
                seen.add("CUDA" if module.startswith(f"{__package__}.cuda.") else "kernel")
            elif name == "compiled" and module == blocks.__name__:
                seen.add("compiled")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _results(case: Case, seed: int, device: str, dtype: str, form: Callable[[Any], Any]) -> Results:
    """The output, the gradients of all inputs, and those of all parameters after two calls of backward."""
    setup = case.build(np.random.default_rng(seed))
    if setup.module is not None:
        setup.module.to(dtype=dtype)
    inputs = [x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in setup.inputs]
    setup = Setup(setup.f, tuple(inputs), setup.options, setup.module).on(device)
    y, backward = form(setup.f)(*setup.inputs, **{name: form(option) for name, option in setup.options.items()})
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


def _as_written(f: Any) -> Any:
    return f


def _twin(f: Any) -> Any:
    """The fast twin of what a case calls: an op, a module, a method of one, or a function around these."""
    if f is _as_written:
        return accelerate
    if isinstance(f, Module):
        return accelerate(f)
    if isinstance(f, types.MethodType) and isinstance(f.__self__, Module):
        return getattr(accelerate(f.__self__), f.__name__)
    if isinstance(f, types.FunctionType):
        if f is getattr(textbook, f.__name__, None):
            return getattr(ops, f.__name__)
        cells = tuple(types.CellType(_twin(cell.cell_contents)) for cell in f.__closure__ or ())
        return types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)
    return f


def _sizes(results: Results) -> list[float]:
    """The largest number of each; of a parameter's gradient, which may be 0 but for rounding, the largest of all."""
    sizes = [float(abs(x).max(initial=0.0)) for _, x in results]
    largest = max((size for (name, _), size in zip(results, sizes, strict=True) if _is_parameter(name)), default=0.0)
    return [largest if _is_parameter(name) else size for (name, _), size in zip(results, sizes, strict=True)]


def _is_parameter(name: str) -> bool:
    return name.startswith("the gradient of")


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    return float(abs(x - y).max(initial=0.0))


def _difference(found: Results, exact: Results, bounds: list[float], dtype: str) -> str:
    """Which result is not the textbook's, and by how much; or ""."""
    if [name for name, _ in found] != [name for name, _ in exact]:
        return f"there are {len(found)} results in place of {len(exact)}"
    for (name, x), (_, right), bound in zip(found, exact, bounds, strict=True):
        if x.shape != right.shape or x.dtype != dtype:
            return f"{name} is {x.dtype} of shape {x.shape}, expected {dtype} of shape {right.shape}"
        if not _distance(x, right) <= bound:
            return f"{name} is off by {_distance(x, right):.1e}, where rounding explains {bound:.1e}"
    return ""


# ---------------------------------------------------------------------------------------- sizes that reach every branch

LARGE: dict[str, Case] = {}


def _large(kind: str, name: str, build: Callable[[Random], Setup]) -> None:
    LARGE[name] = Case(name, kind, build)


def _qkv(r: Random, t_q: int, t_k: int, *first: int) -> list[Array]:
    return [r.normal(size=(*first, length, 8)) for length in (t_q, t_k, t_k)]


def _attention(*sizes: int, mask: tuple[int, ...] | None = None, **options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        given = options | (frozen(r) if "dropout" in options else {})
        if mask:
            given["mask"] = some_mask(r, *mask) if mask[-2] > 1 else r.random(mask) < 0.6
        return call(textbook.attention, *_qkv(r, *sizes), **given)

    return build


_large("op", "attention with 70 keys, causal", _attention(70, 70, 2, 3, causal=True))
_large("op", "attention with 70 keys, mask and dropout", _attention(66, 70, 2, 3, mask=(2, 1, 66, 70), dropout=0.3))
_large("op", "attention with more queries than keys, causal", _attention(70, 66, 3, causal=True))
_large("op", "attention in tiles", _attention(150, 1100, 1, 2))
_large("op", "attention in tiles, causal", _attention(150, 1100, 1, 2, causal=True, mask=(2, 1, 1100)))
_large("op", "attention in tiles, large scores", _attention(150, 1100, 1, 2, scale=9.0, mask=(1, 2, 150, 1100)))
_large("op", "attention in tiles, dropout", _attention(150, 1100, 1, 2, causal=True, dropout=0.3))
_large("op", "attention with 2100 keys", _attention(130, 2100, 1, 1))
_large("op", "attention of many sequences", _attention(40, 40, 70, 3, causal=True))
_large("op", "attention with large scores", _attention(20, 30, 2, 2, scale=30.0, mask=(2, 20, 30)))


def _numbers(r: Random) -> Array:
    """Beyond ±10, where some branches begin, and in more than two blocks."""
    return np.concatenate([4.0 * r.normal(size=2 * blocks.BLOCK), [0.0, 12.0, -12.0, 20.0, -20.0]])


_large("op", "gelu of several blocks", lambda r: call(textbook.gelu, _numbers(r)))
_large("op", "gelu by tanh, of several blocks", lambda r: call(textbook.gelu, _numbers(r), approximate="tanh"))
_HUGE = np.array([1e4, -1e4, 1e15, -1e15])
_large("op", "gelu of huge numbers", lambda r: call(textbook.gelu, _HUGE))
_large("op", "gelu by tanh, of huge numbers", lambda r: call(textbook.gelu, _HUGE, approximate="tanh"))
_large(
    "op",
    "layer_norm of several blocks",
    lambda r: call(textbook.layer_norm, r.normal(size=(263, 129)), r.normal(1.0, 0.5, 129), r.normal(size=129)),
)
_large(
    "op",
    "cross_entropy of several blocks",
    lambda r: call(
        textbook.cross_entropy,
        3.0 * r.normal(size=(41, 9001)),
        np.where(r.random(41) < 0.2, -100, r.integers(9001, size=41)),
        label_smoothing=0.1,
    ),
)
_large("op", "linear of one row", lambda r: call(textbook.linear, r.normal(size=(1, 37)), r.normal(size=(37, 21))))
_large(
    "op",
    "linear by a transposed weight",
    lambda r: call(textbook.linear, r.normal(size=(3, 37)), r.normal(size=(21, 37)).T, r.normal(size=21)),
)


def _feed_forward(activation: str, bias: bool, *shape: int) -> Callable[[Random], Setup]:
    return lambda r: call(ordinary(layers.FeedForward(shape[-1], 130, activation, bias=bias), r), r.normal(size=shape))


_large("layer", "FeedForward of several blocks", _feed_forward("relu", True, 300, 5))
_large("layer", "FeedForward of several blocks with gelu", _feed_forward("gelu", True, 300, 5))
_large("layer", "FeedForward of several blocks with gelu_tanh", _feed_forward("gelu_tanh", False, 300, 5))


def _encoder_layer(r: Random, **options: Any) -> Any:
    """With eps that shows, and a different one in each norm."""
    layer = ordinary(layers.EncoderLayer(12, 3, 20, eps=0.1, **options), r)
    layer.feed_forward.norm.eps = 0.3
    return layer


def _whole(*shape: int, seen: tuple[int, ...] | None = None, causal: bool = False, **options: Any) -> Any:
    def build(r: Random) -> Setup:
        layer = _encoder_layer(r, **options)
        mask = None if seen is None else some_mask(r, *seen)
        return call(layer, r.normal(size=(*shape, 12)), mask=mask, causal=causal, **frozen(r))

    return build


_DROPOUT = {"dropout": 0.2, "attention_dropout": 0.3}
for _order in ("pre", "post"):
    for _activation in ("relu", "gelu", "gelu_tanh"):
        _large(
            "layer",
            f"EncoderLayer in {_order}-norm order with {_activation}",
            _whole(3, 9, seen=(3, 9, 9), norm_order=_order, activation=_activation),
        )
    _large("layer", f"EncoderLayer in {_order}-norm order, 70 tokens", _whole(2, 70, causal=True, norm_order=_order))
    _large(
        "layer",
        f"EncoderLayer in {_order}-norm order, 70 tokens, dropout, no biases",
        _whole(2, 70, seen=(2, 70, 70), norm_order=_order, bias=False, **_DROPOUT),
    )
_large("layer", "EncoderLayer with 530 tokens", _whole(1, 530, causal=True, norm_order="pre"))


def _cached(n_rows: int, pieces: tuple[int, ...], **options: Any) -> Callable[[Random], Setup]:
    """The outputs of a layer that reads pieces, one after the other, on a cache. There is no backward."""

    def build(r: Random) -> Setup:
        layer = _encoder_layer(r, **options)

        def read(x: Array) -> tuple[Array, Pullback]:
            cache, cuts = KeyValueCache(), np.cumsum((0, *pieces))
            read = [layer(x[:, a:b], causal=True, cache=cache)[0] for a, b in zip(cuts, cuts[1:], strict=False)]
            return np.concatenate(read, axis=1), lambda dy: ()

        return call(read, r.normal(size=(n_rows, sum(pieces), 12)), module=layer)

    return build


for _activation in ("relu", "gelu", "gelu_tanh"):
    _large(
        "layer",
        f"EncoderLayer on a cache, token by token, with {_activation}",
        _cached(3, (2, *[1] * 9), norm_order="pre", activation=_activation),
    )
_large("layer", "EncoderLayer on a cache, piece by piece", _cached(2, (1, 1, 5, 66, 2), norm_order="pre"))
_large("layer", "EncoderLayer on a cache, in post-norm order", _cached(2, (3, 1, 4), norm_order="post", bias=False))


def _steps(kind: type[Optimizer], **options: Any) -> Callable[[Random], Setup]:
    """The values after each of three steps, by gradients that differ in size by six orders."""

    def build(r: Random) -> Setup:
        layer, form = ordinary(layers.Linear(blocks.BLOCK // 50, 51), r), _as_written
        drawn = [r.normal(size=p.value.shape) * 10.0 ** r.integers(-5, 2, p.value.shape) for _, p in layer.parameters()]

        def step() -> tuple[Array, Pullback]:
            optimizer, after = form(kind(layer.parameters(), 0.01, **options)), []
            for t in range(3):
                for (_, p), g in zip(layer.parameters(), drawn, strict=True):
                    p.grad[...] = copy.copy(g) * (1.0 - 0.7 * t)
                optimizer.step()
                after += [p.value.reshape(-1).copy() for _, p in layer.parameters()]
            return np.concatenate(after), lambda dy: ()

        return call(step, module=layer)

    return build


_large("layer", "Adam in three steps", _steps(Adam, betas=(0.8, 0.95)))
_large("layer", "AdamW in three steps", _steps(AdamW, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3))
