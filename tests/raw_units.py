"""Functions with numbers in raw units, from 1e-6 to 1e8: right gradients of them, and wrong ones of the common kinds.

`verdicts` counts what the checker says: of right gradients none may be called wrong, and of wrong ones none right.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitransformer import verify

WRONG: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {  # from the terms of a gradient to a wrong gradient
    "sign": lambda one, other: -(one + other),
    "twice": lambda one, other: 2.0 * (one + other),
    "one term": lambda one, other: one,
    "zero": lambda one, other: 0.0 * one,
}
UNITS = (1e-6, 1e-3, 1.0, 1e3, 1e6, 1e8)


def right(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum of the two terms of a gradient."""
    return one + other


Terms = Callable[[np.ndarray, np.ndarray], np.ndarray]


def offset(c: float, s: float, terms: Terms) -> Callable[..., Any]:
    """y = c + s x + s sin(x): small changes beside a large number."""

    def f(x: np.ndarray) -> Any:
        one, two = (x.dtype.type(number) for number in (c, s))
        return one + two * x + two * np.sin(x), lambda dy: terms(dy * two, dy * two * np.cos(x)).astype(x.dtype)

    return f


def regression(x: np.ndarray, t: np.ndarray, terms: Terms) -> Callable[..., Any]:
    """The mean of (x w + b - t)², with dw = 2/n xᵀ(x w + b) - 2/n xᵀ t."""

    def f(w: np.ndarray, b: np.ndarray) -> Any:
        x_, t_ = x.astype(w.dtype), t.astype(w.dtype)
        fit, n = x_ @ w + b, w.dtype.type(len(t))
        e = fit - t_

        def backward(dy: np.ndarray) -> Any:
            dw = terms(2 / n * dy * (x_.T @ fit), -2 / n * dy * (x_.T @ t_))
            return dw.astype(w.dtype), np.asarray(2 * dy * e.mean(), w.dtype)

        return np.asarray((e * e).mean(), w.dtype), backward

    return f


def logarithm(c: float, terms: Terms) -> Callable[..., Any]:
    """y = log(x) + x / c, for positive numbers of about c."""

    def f(x: np.ndarray) -> Any:
        scale = x.dtype.type(c)
        return np.log(x) + x / scale, lambda dy: terms(dy / x, dy / scale).astype(x.dtype)

    return f


def cases(rng: np.random.Generator, terms: Terms) -> Iterator[tuple[str, Callable[..., Any], list[np.ndarray]]]:
    """(name, function, inputs) for all units."""
    for c, s in itertools.product((0.0, *UNITS), UNITS):
        yield f"{c:g} + {s:g} (x + sin x)", offset(c, s, terms), [rng.normal(size=3)]
    for of_x, of_t in itertools.product(UNITS, UNITS):
        x, t = of_x * rng.normal(size=(20, 3)), of_t * (1.0 + rng.normal(size=20))
        yield f"regression, x {of_x:g}, t {of_t:g}", regression(x, t, terms), [rng.normal(size=3), np.array(0.3)]
        w = rng.normal(size=3) * of_t / of_x
        yield f"fitted regression, x {of_x:g}, t {of_t:g}", regression(x, t, terms), [w, np.array(0.1 * of_t)]
    for c in UNITS:
        yield f"log x + x / {c:g}", logarithm(c, terms), [c * rng.uniform(0.5, 2.0, size=3)]


def in_float32(f: Callable[..., Any]) -> Callable[..., Any]:
    """f as a function that computes in float32 alone."""
    return verify.from_pair(lambda *inputs: f(*inputs), lambda dy, backward: backward(dy), dtype="float32")


def verdict(report: verify.Report) -> str:
    """What the report says in the end: right, wrong, or unseen."""
    if report.ok:
        return "right"
    return "wrong" if any(row.is_wrong for row in report.rows) else "unseen"


def is_seen(one: np.ndarray, other: np.ndarray, name: str) -> bool:
    """Whether this wrong gradient is far from the right one: the term that it lacks may be nothing beside the other."""
    apart = abs(WRONG[name](one, other) - right(one, other)).max()
    return bool(apart > 0.05 * max(abs(one + other).max(), 1e-300))


def verdicts(dtype: str, kinds: tuple[str, ...] = ("right", *WRONG), every: int = 1) -> tuple[Counter[Any], list[str]]:
    """How often each kind of gradient gets each verdict, and the names of the cases where it is a mistake."""
    found: Counter[Any] = Counter()
    mistaken = []
    for kind in kinds:
        other = [True]

        def terms(one: np.ndarray, two: np.ndarray, kind: str = kind, other: list[bool] = other) -> np.ndarray:
            if kind == "right":
                return right(one, two)
            other[0] = other[0] and is_seen(np.asarray(one, float), np.asarray(two, float), kind)
            return WRONG[kind](one, two)

        for i, (name, f, inputs) in enumerate(cases(np.random.default_rng(0), terms)):
            if i % every:
                continue
            other[0] = True
            with np.errstate(all="ignore"):
                said = verdict(verify.gradients(f if dtype == "float64" else in_float32(f), *inputs))
            if not other[0]:
                continue
            found[kind, said] += 1
            if said == ("wrong" if kind == "right" else "right"):
                mistaken.append(f"{kind}: {name}")
    return found, mistaken


if __name__ == "__main__":
    for dtype in ("float64", "float32"):
        counts, mistaken = verdicts(dtype)
        print(dtype, dict(sorted(counts.items())), *mistaken, sep="\n  ")
