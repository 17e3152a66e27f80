"""Which edits of its inputs the page can follow: whether the terms that it has give what Python gives for others.

A term was written out for one run. Where an input decides which way a line goes, such as which expert is chosen, or
where a number has no term, it would give a wrong number for other inputs. So the call runs again, with inputs drawn at
random, and every number that the terms give is compared.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .pairing import partners
from .steps import Steps, is_float

DRAWS = 3
NUMBERS = 40_000  # a larger recording takes too long in a browser
_SIGNS: dict[str, Callable[..., Any]] = {
    "+": lambda *x: sum(x), "*": lambda *x: np.prod(x), "-": operator.sub, "/": operator.truediv, "**": operator.pow,
    "&": lambda a, b: bool(a) and bool(b), ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne, "negative": operator.neg, "max": max, "min": min,
}  # fmt: skip


def followed(recording: Steps, data: dict[str, Any]) -> list[str]:
    """The names of the inputs whose edits the page can follow; [] if arrays are not among them. data: that of the page.

    Every number must come out for DRAWS other inputs as well. Settings are tried one by one: a rate of dropout decides
    what is dropped, and without it all else can be edited.
    """
    sizes = [0 if bound.value.array is None else bound.value.array.size for _, bound in recording.bindings]
    if not isinstance(recording.again, functools.partial) or 0 in sizes or sum(sizes) > NUMBERS:
        return []
    given = _inputs(recording)
    *inputs, upstream = given
    arrays = [*(name for name in inputs if given[name].shape), upstream]
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        if not all(_same(recording, data, given | {n: _other(given[n], rng) for n in arrays}) for _ in range(DRAWS)):
            return []
        settings = [name for name in inputs if name not in arrays]
        return arrays + [n for n in settings if _same(recording, data, given | {n: _other(given[n], rng)})]


def _inputs(recording: Steps) -> dict[str, np.ndarray]:
    """The numbers that can be edited, by name; the last is the gradient of the output."""
    entry = next(step for step in recording.steps if recording.calls[step.call].backward)
    bound = [*recording.steps[0].bound, *entry.bound]
    return {b.name: b.value.array for b in bound if is_float(b) and b.value.array is not None}


def _same(recording: Steps, data: dict[str, Any], drawn: dict[str, np.ndarray]) -> bool:
    """Whether the terms give for these inputs what Python gives."""
    assert isinstance(recording.again, functools.partial)
    f, *given = recording.again.args
    parameters = inspect.signature(f).parameters
    named = dict(zip(parameters, given, strict=False)) | recording.again.keywords
    *names, upstream = drawn
    named |= {name: drawn[name] if drawn[name].shape else float(drawn[name]) for name in names if name in parameters}
    try:
        fresh = recording.again.func(f, **named | {"upstream": drawn[upstream]})
    except Exception:
        return False
    others = partners(recording, fresh)
    values: list[np.ndarray] = []
    entries = {recording.steps[0], next(s for s in recording.steps if recording.calls[s.call].backward)}
    for step, bound in recording.bindings:
        if bound.serial not in others:
            return False
        told = data["steps"][step.index]["bound"][step.bound.index(bound)]
        value, theirs = bound.value.array, others[bound.serial][1].value.array
        if value is None or theirs is None or theirs.shape != value.shape:
            return False
        if step in entries:
            value = theirs
        elif "origin" in told:
            value = values[told["origin"]]
        elif "terms" in told.get("from", {}):
            value = _evaluated(told["from"], data["terms"], values).reshape(value.shape)
        if not np.allclose(value, theirs, 1e-8, 1e-10, equal_nan=True):
            return False
        values.append(value)
    return True


def _other(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other numbers of the same size; a setting, such as an epsilon, stays positive."""
    if not array.shape:
        return array * rng.uniform(0.5, 2.0) if array else np.asarray(rng.uniform(0.1, 0.4))
    return np.asarray(array + rng.normal(size=array.shape) * (array.std() + 0.5), dtype=array.dtype)


def _evaluated(origin: dict[str, Any], terms: list[Any], values: list[np.ndarray]) -> np.ndarray:
    cells = []
    for place, used in zip(origin["terms"], origin["cells"], strict=True):
        numbers = [values[n].flat[i] for n, i in zip(used[::2], used[1::2], strict=True)]
        cells.append(_number(terms[place], numbers))
    return np.array(cells)


def _number(term: Any, numbers: list[Any]) -> Any:
    if isinstance(term, int):
        return numbers[term]
    if isinstance(term, str):
        return np.float64(term)
    function = _SIGNS.get(term[0]) or getattr(np, term[0], None)
    return np.nan if function is None else function(*(_number(part, numbers) for part in term[1:]))
