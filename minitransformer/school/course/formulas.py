"""A wrong output as a formula of other arrays: the right output, the inputs, and what lies between them.

What is said must give the student's numbers in every trial, or in all but the last.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

from .altered import altered
from .comparison import Compared, close

_ROUNDING = 1e-9
_RIGHT = "what it should be"


def related(compared: Compared, i: int) -> str:
    """A formula that gives output i in every trial, from the right output, the inputs and what lies between."""
    wrong = compared.places(i)
    left: list[str] | None = None
    for trial in sorted(range(len(compared.trials)), key=lambda j: (j == compared.last, j not in wrong)):
        formulas = dict(_formulas(compared, i, trial))
        tried = formulas if left is None else [said for said in left if said in formulas]
        holding = [said for said in tried if _gives(formulas[said], compared, i, trial)]
        if not holding and left and trial == compared.last:
            return f"For all inputs but the last it is {left[0]}."
        if not holding:
            return ""
        left = holding
    return f"It is {left[0]}." if left else ""


def combined(compared: Compared, i: int) -> str:
    """Output i as a sum of at most three arrays with other factors, the same arrays in every trial."""
    trials = [j for j in compared.places(i) if compared.comparable(i, j) and compared.expected[i][j].size > 6]
    known = [_finite(_known(compared, i, j)) | {_RIGHT: compared.expected[i][j]} for j in trials]
    pairs = [(one, compared.expected[i][j].shape) for one, j in zip(known, trials, strict=True)]
    alike = [
        name for name in (known or [{}])[0] if all(name in one and one[name].shape == shape for one, shape in pairs)
    ]
    counts = ((1, False), (1, True), (2, False), (2, True), (3, False))[: 5 if len(alike) < 12 else 2]
    for count, constant in counts if len(trials) > 3 else ():
        for names in itertools.combinations(alike, count):
            found = _factors(compared, i, trials, known, names, constant)
            if not found:
                continue
            matrix, factors = found
            if names == (_RIGHT,) and abs(factors[1:]).sum() < _ROUNDING:
                return ""  # a mere factor, of which more can be said
            said, right = f"For the inputs below it is {_sum(factors, names)}", compared.expected[i][trials[0]]
            if _RIGHT in names:
                return f"{said}."
            wanted = np.linalg.lstsq(matrix, right.ravel(), rcond=None)[0]
            if close((matrix @ wanted).reshape(right.shape), right, compared.scales[i][trials[0]]):
                return f"{said}; it should be {_sum(wanted, names)}."
            return f"{said}; what it should be is no such sum."
    return ""


def _factors(
    compared: Compared,
    i: int,
    trials: list[int],
    known: list[dict[str, np.ndarray]],
    names: tuple[str, ...],
    constant: bool,
) -> tuple[np.ndarray, np.ndarray] | None:
    """If output i is a sum of these arrays in all trials: the arrays of the first as columns, and their factors."""
    found = []
    for one, j in zip(known, trials, strict=True):
        got = np.asarray(compared.got[i][j])
        columns = [one[name].ravel() for name in names] + [np.ones(got.size)] * constant
        matrix = np.stack(columns, axis=1)
        factors = np.linalg.lstsq(matrix, got.ravel(), rcond=None)[0]
        if not compared.alike(i, j, (matrix @ factors).reshape(got.shape)):
            return None
        found.append((matrix, factors))
    return found[0]


def _sum(factors: np.ndarray, names: tuple[str, ...]) -> str:
    terms = [f"{factor:+.3g} · {name}" for factor, name in zip(factors, names, strict=False)]
    terms += [f"{factor:+.3g}" for factor in factors[len(names) :]]
    return " ".join(f"{term[0]} {term[1:]}" for term in terms).removeprefix("+ ")


def off_by_multiples(compared: Compared, i: int) -> str:
    """Whether each row of output i is off by a multiple of one vector, or of its row in an array; or each column."""
    shapes = [right.shape[-2:] for right in compared.expected[i]]
    trials = [j for j in compared.places(i) if compared.comparable(i, j) and len(shapes[j]) == 2 and min(shapes[j]) > 1]
    for word in ("row", "column") if len(trials) > 3 else ():
        left: set[str] | None = None
        for j in trials:
            off = compared.got[i][j] - compared.expected[i][j]
            off = (off if word == "row" else off.swapaxes(-1, -2)).reshape(-1, off.shape[-1 if word == "row" else -2])
            vectors = _rows_like(off, compared, i, j, word)
            known = vectors if left is None else {name: vectors[name] for name in left if name in vectors}
            left = {
                name
                for name, x in known.items()
                if close(off, (off * x).sum(-1, keepdims=True) * x / _squares(x), compared.scales[i][j])
            }
        if left:
            return f"It is right but for a multiple of {min(left)} in each {word}."
    return ""


def _rows_like(off: np.ndarray, compared: Compared, i: int, trial: int, word: str) -> dict[str, np.ndarray]:
    """The vectors as long as the rows of `off`, and the arrays of the output's shape, in the shape of `off`."""
    right, known = compared.expected[i][trial], _finite(_known(compared, i, trial))
    found = {name: x for name, x in known.items() if x.shape == off.shape[1:]}
    alike = {name: x for name, x in known.items() if x.shape == right.shape and x.ndim > 1}
    alike |= {f"what it should be, minus {name}": right - x for name, x in found.items() if x.shape == right.shape[-1:]}
    for name, x in alike.items():
        found[name] = (x if word == "row" else x.swapaxes(-1, -2)).reshape(off.shape)
    return found


def _squares(x: np.ndarray) -> np.ndarray:
    squares = np.asarray((x * x).sum(axis=-1, keepdims=True))
    return np.where(squares == 0.0, 1.0, squares)


def _known(compared: Compared, i: int, trial: int) -> dict[str, np.ndarray]:
    """The arrays of the solution but output i, by name; also what the given pullbacks return for the inputs."""
    inputs = dict(zip(compared.exercise.arguments, compared.trials[trial], strict=True))
    known = altered(compared.exercise).values(compared.trials[trial])
    known.pop(compared.exercise.outputs[i], None)
    for (f, pullback), (name, x) in itertools.product(inputs.items(), list(known.items())):
        if f.endswith("backward") and callable(pullback) and name in inputs:
            known[f"{f}({name})"] = pullback(x)
    return known


def _finite(known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: x for name, x in known.items() if isinstance(x, np.ndarray) and np.isfinite(x).all()}


def _gives(formula: Callable[[], Any], compared: Compared, i: int, trial: int) -> bool:
    try:
        return compared.alike(i, trial, np.asarray(formula()))
    except Exception:  # the shapes do not fit, or the function is not defined there
        return False


def _formulas(compared: Compared, i: int, trial: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What output i may be, in words, and how to compute it in this trial."""
    right = compared.expected[i][trial]
    inputs = dict(zip(compared.exercise.arguments, compared.trials[trial], strict=True))
    known: dict[str, Any] = dict(_known(compared, i, trial))
    functions, with_right, entry_by_entry = _table()
    for name, x in known.items():
        said = f"the input {name}, unchanged" if name in inputs else f"{name}, a value on the way to it"
        yield said, partial(np.asarray, x)
    for name, x in ({_RIGHT: right} | known).items():
        for said, function in functions.items():
            yield said.format(name), partial(function, x)
    for size, n in altered(compared.exercise).sizes(compared.trials[trial]).items():
        known |= {size: float(n), f"√({size})": math.sqrt(abs(n)), f"({size})²": float(n * n)}
    known |= {name: x for name, x in inputs.items() if isinstance(x, float)}
    for name, x in known.items():
        for said, together in with_right.items():
            yield said.format(name), partial(together, right, x)
    got = np.shape(compared.got[i][trial])
    arrays = [(name, x) for name, x in known.items() if isinstance(x, np.ndarray) and 0 < x.ndim <= len(got)]
    for (a, x), (b, y) in itertools.product([(a, x) for a, x in arrays if x.shape == got], arrays):
        for said, together in entry_by_entry.items():
            yield said.format(a, b), partial(together, x, y)
    matrices = [(name, x) for name, x in arrays if x.ndim > 1]
    turned = [*matrices, *((f"{name}ᵀ", x.swapaxes(-1, -2)) for name, x in matrices)]
    for (a, x), (b, y) in itertools.product(turned, turned):
        if (x.shape[-2], x.shape[-1], y.shape[-1]) == (got[-2], y.shape[-2], got[-1]):
            yield f"the product {a} @ {b}", partial(np.matmul, x, y)


def _softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@functools.cache
def _table() -> list[dict[str, Callable[..., Any]]]:
    """The three parts of formulas.txt: functions by what is said of them."""
    text = resources.files(__package__).joinpath("formulas.txt").read_text(encoding="utf-8")
    known, found = {"np": np, "softmax": _softmax}, []
    for part in text.strip().split("\n\n")[1:]:
        arguments, *lines = part.splitlines()
        pairs = [line.split(" | ") for line in lines]
        found.append({said: eval(f"lambda {arguments}: {formula}", known) for said, formula in pairs})
    return found
