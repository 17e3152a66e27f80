"""An adversary for `verify.gradients`: right functions whose pullbacks are spoilt in many ways. None may pass."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw
from tiers import in_one

from minitransformer import verify

Function = Callable[..., Any]


# ------------------------------------------------------------------------------- right functions, of one input or more


def cube(x: np.ndarray) -> Any:
    return x**3, lambda dy: 3.0 * x**2 * dy


def sine(x: np.ndarray) -> Any:
    return np.sin(x), lambda dy: np.cos(x) * dy


def product(a: np.ndarray, b: np.ndarray) -> Any:
    return a @ b, lambda dy: (dy @ b.T, a.T @ dy)


def softmax(x: np.ndarray) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, lambda dy: y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def total(x: np.ndarray) -> Any:
    return (x * x).sum(), lambda dy: 2.0 * x * dy


def rows(x: np.ndarray) -> Any:
    return x.sum(axis=0) + x[0], lambda dy: np.stack([2.0 * dy, *[dy] * (len(x) - 1)])


def affine(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Any:
    return np.tanh(x @ w + b), functools.partial(affine_backward, x, w, np.tanh(x @ w + b))


def affine_backward(x: np.ndarray, w: np.ndarray, y: np.ndarray, dy: np.ndarray) -> Any:
    dh = dy * (1.0 - y * y)
    return dh @ w.T, x.T @ dh, dh.sum(axis=0)


def small(x: np.ndarray) -> Any:
    return 1e-10 * np.sin(x), lambda dy: 1e-10 * np.cos(x) * dy


def distances(a: np.ndarray, b: np.ndarray) -> Any:
    difference = a[:, None] - b[None]
    y = (difference**2).sum(axis=-1)

    def backward(dy: np.ndarray) -> Any:
        ddifference = 2.0 * difference * dy[..., None]
        return ddifference.sum(axis=1), -ddifference.sum(axis=0)

    return y, backward


RIGHT: dict[str, tuple[Function, tuple[np.ndarray, ...]]] = {
    "cube": (cube, (draw(3, 4),)),
    "sine": (sine, (draw(2, 3, 2),)),
    "product": (product, (draw(3, 4), draw(4, 2, seed=1))),
    "softmax": (softmax, (draw(3, 4),)),
    "total": (total, (draw(5, 3),)),
    "rows": (rows, (draw(4, 3),)),
    "affine": (affine, (draw(3, 4), draw(4, 2, seed=1), draw(2, seed=2))),
    "small": (small, (draw(3, 4),)),
    "distances": (distances, (draw(3, 2), draw(4, 2, seed=1))),
    "large": (cube, (draw(10, 20),)),
}


# ------------------------------------------------------------------------------------------ ways to spoil a pullback

MEMO: dict[Any, Any] = {}
SPOILT: dict[str, Callable[[Function], Function]] = {}


def after(name: str, change: Callable[..., Any]) -> None:
    """The pullback's first gradient becomes change(gradient, dy, x)."""

    def spoil(f: Function) -> Function:
        def spoilt(*inputs: np.ndarray) -> Any:
            y, right = f(*inputs)

            def backward(dy: np.ndarray) -> Any:
                found = right(dy)
                several = found if isinstance(found, tuple) else (found,)
                spoilt = (change(several[0], dy, inputs[0]), *several[1:])
                return spoilt if len(spoilt) > 1 else spoilt[0]

            return y, backward

        return spoilt

    SPOILT[name] = spoil


def before(name: str, change: Callable[[Any], Any]) -> None:
    """The pullback gets change(dy)."""

    def spoil(f: Function) -> Function:
        def spoilt(*inputs: np.ndarray) -> Any:
            y, right = f(*inputs)
            return y, lambda dy: right(change(dy))

        return spoilt

    SPOILT[name] = spoil


def one_entry(dx: np.ndarray, dy: Any, x: np.ndarray) -> np.ndarray:
    dx = dx.copy()
    dx[(-1,) * dx.ndim] *= 1.5
    return dx


def written(dx: np.ndarray, target: np.ndarray) -> np.ndarray:
    target[...] = 2.0 * target
    return dx


def kept(dx: np.ndarray, key: str) -> np.ndarray:
    return MEMO.setdefault((key, dx.shape, dx.dtype), dx)


def in_a_buffer(dx: np.ndarray, dy: Any, x: np.ndarray) -> np.ndarray:
    buffer = MEMO.setdefault(("buffer", dx.shape, dx.dtype), np.empty_like(dx))
    buffer[...] = dx
    return buffer


def each_time(dx: np.ndarray, dy: Any, x: np.ndarray) -> np.ndarray:
    MEMO["times"] = MEMO.get("times", 0) + 1
    return dx * MEMO["times"]


def only_if(condition: Callable[[np.ndarray, Any, np.ndarray], Any]) -> Callable[..., np.ndarray]:
    return lambda dx, dy, x: np.where(condition(dx, dy, x), 1.25, 1.0).astype(dx.dtype) * dx


after("a sign", lambda dx, dy, x: -dx)
after("a factor", lambda dx, dy, x: 2.0 * dx)
after("a factor near one", lambda dx, dy, x: (1.0 + 1e-4 * (abs(dx).max() > 1e-6) + 0.1 * (abs(dx).max() < 1e-6)) * dx)
after("nothing", lambda dx, dy, x: 0.0 * dx)
after("a term more", lambda dx, dy, x: dx + 0.3 * abs(dx).max())
after("the input", lambda dx, dy, x: x.copy())
after("upside down", lambda dx, dy, x: dx[::-1].copy())
after("shifted by one", lambda dx, dy, x: np.roll(dx, 1))
after("one entry", one_entry)
after("the first row alone", lambda dx, dy, x: np.concatenate([dx[:1], 0.0 * dx[1:]]))
after("the mean", lambda dx, dy, x: dx - dx.mean())
after("divided by the rows", lambda dx, dy, x: dx / len(dx))
after("an axis summed", lambda dx, dy, x: np.broadcast_to(dx.sum(axis=0), dx.shape).copy())
after("transposed", lambda dx, dy, x: dx.T)
after("reshaped as transposed", lambda dx, dy, x: dx.T.reshape(dx.shape))
after("float32", lambda dx, dy, x: dx.astype(np.float32))
after("integers", lambda dx, dy, x: dx.astype(int))
after("none", lambda dx, dy, x: None)
after("NaN", lambda dx, dy, x: dx * np.nan)
after("clipped", lambda dx, dy, x: np.clip(dx, -2.0 * abs(dx).max() / (1 + abs(dx).max()), 1.0))
after("clipped far out", lambda dx, dy, x: np.clip(dx, -1e3, 1e3))
after("rectified", lambda dx, dy, x: np.maximum(dx, 0.0))
after("the size alone", lambda dx, dy, x: abs(dx))
after("normalised", lambda dx, dy, x: dx / np.linalg.norm(dx))
after("writes dy", lambda dx, dy, x: written(dx, np.atleast_1d(dy)))
after("writes x", lambda dx, dy, x: written(dx, x))
after("keeps the first gradient", lambda dx, dy, x: kept(dx, "gradient"))
after("one buffer", in_a_buffer)
after("more each time", each_time)
after("wrong in float32", lambda dx, dy, x: dx * (1.0 if x.dtype == np.float64 else 1.5))
after("wrong for views of x", lambda dx, dy, x: dx * (1.0 if x.flags.c_contiguous else 1.5))
after("wrong where x is negative", only_if(lambda dx, dy, x: x < 0.0))
after("wrong where dx is negative", only_if(lambda dx, dy, x: dx < 0.0))
after("wrong where small", only_if(lambda dx, dy, x: abs(dx) < np.median(abs(dx))))
before("a constant", lambda dy: np.ones_like(dy))
before("dy squared", lambda dy: dy * dy)
before("dy rounded", lambda dy: np.round(dy, 1))
before("dy and a bit", lambda dy: dy + 1e-3)
before("dy by its size", lambda dy: dy / (1.0 + abs(dy)))
before("dy in the order of memory", lambda dy: dy.ravel(order="K").reshape(dy.shape) if np.ndim(dy) > 1 else 1.5 * dy)


def remembers_first(f: Function) -> Function:
    def spoilt(*inputs: np.ndarray) -> Any:
        y, right = f(*inputs)
        return y, MEMO.setdefault(("first", y.dtype), right)

    return spoilt


def remembers_last(f: Function) -> Function:
    def spoilt(*inputs: np.ndarray) -> Any:
        y, MEMO["last"] = f(*inputs)
        return y, lambda dy: MEMO["last"](dy)

    return spoilt


def too_few(f: Function) -> Function:
    def spoilt(*inputs: np.ndarray) -> Any:
        y, right = f(*inputs)
        return y, lambda dy: right(dy)[1:] if len(inputs) > 1 else None

    return spoilt


def exchanged(f: Function) -> Function:
    def spoilt(*inputs: np.ndarray) -> Any:
        y, right = f(*inputs)
        return y, lambda dy: tuple(reversed(right(dy))) if len(inputs) > 1 else right(dy)[..., ::-1].copy()

    return spoilt


SPOILT |= {"remembers the first": remembers_first, "remembers the last": remembers_last}
SPOILT |= {"too few": too_few, "exchanged": exchanged}

# What changes nothing: the gradient of softmax has the mean 0 and ignores a shift; that of a sum does not depend on x.
NO_MISTAKE = {("softmax", "the mean"), ("softmax", "dy and a bit")}
NO_MISTAKE |= {("rows", "remembers the first"), ("rows", "remembers the last")}


@in_one("name", RIGHT)
def test_the_right_function_passes(name: str) -> None:
    f, inputs = RIGHT[name]
    verify.gradients(f, *inputs).assert_ok()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_spoilt_pullback_passes(name: str) -> None:
    f, inputs = RIGHT[name]
    survivors = []
    for way, spoil in SPOILT.items():
        MEMO.clear()
        try:
            passed = verify.gradients(spoil(f), *[x.copy() for x in inputs], intermediates=False).ok
        except (ValueError, TypeError):
            passed = False
        if passed and (name, way) not in NO_MISTAKE:
            survivors.append(way)
    assert survivors == []


def test_they_are_many() -> None:
    assert len(RIGHT) * len(SPOILT) >= 400
