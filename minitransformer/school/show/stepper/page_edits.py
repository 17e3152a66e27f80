"""Which edits of its inputs the page can follow: whether the terms that it has give what Python gives for others.

A term was written out for one run. Where an input decides which way a line goes, such as which expert is chosen, or
where a number has no term, it would give a wrong number for other inputs. So the call runs again, with inputs drawn at
random, and the terms that are written out then have to be those of the page, for every number.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core.arrays.backend import device_of, to_device
from .page_data import Table, written_out
from .steps import Step, Steps, is_float

DRAWS = 3
NUMBERS = 40_000  # a larger recording takes too long in a browser


def followed(recording: Steps, data: dict[str, Any]) -> list[str]:
    """The names of the inputs whose edits the page can follow; [] if arrays are not among them. data: that of the page.

    The terms must be the same with DRAWS other inputs. Settings are tried one by one: a rate of dropout decides
    what is dropped, and without it all else can be edited.
    """
    sizes = [0 if bound.value.array is None else bound.value.array.size for _, bound in recording.bindings]
    if not isinstance(recording.again, functools.partial) or 0 in sizes or sum(sizes) > NUMBERS:
        return []
    given = inputs_of(recording)
    if any(array.dtype != float for array in given.values()):  # browsers compute in float64
        return []
    *inputs, upstream = given
    arrays = [*(name for name in inputs if given[name].shape), upstream]
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        draws = [given | {name: other_numbers(given[name], rng) for name in arrays} for _ in range(DRAWS)]
        if not all(_same(recording, data, drawn) for drawn in draws):
            return []
        settings = [name for name in inputs if name not in arrays]
        return arrays + [n for n in settings if _same(recording, data, given | {n: other_numbers(given[n], rng)})]


def inputs_of(recording: Steps) -> dict[str, np.ndarray]:
    """The numbers that can be edited, by name; the last is the gradient of the output."""
    bound = [*recording.steps[0].bound, *entry_of(recording).bound]
    return {b.name: b.value.array for b in bound if is_float(b) and b.value.array is not None}


def entry_of(recording: Steps) -> Step:
    """Where the pullback of the whole begins."""
    return next(step for step in recording.steps if recording.calls[step.call].backward)


def with_inputs(recording: Steps, numbers: Mapping[str, np.ndarray]) -> Steps:
    """Record the same call with other numbers for some of its arguments and the gradient of its output, by name."""
    assert isinstance(recording.again, functools.partial)
    f, *given = recording.again.args
    names = inspect.signature(f).parameters
    named = dict(zip(names, given, strict=False)) | recording.again.keywords
    device = device_of(named["upstream"]).name
    placed = {name: to_device(x, device) if np.ndim(x) else float(x) for name, x in numbers.items()}
    named |= {name: x for name, x in placed.items() if name in names}
    upstream = entry_of(recording).bound[0].name
    if upstream in numbers:
        named["upstream"] = to_device(numbers[upstream], device)
    return recording.again.func(f, **named)


def _same(recording: Steps, data: dict[str, Any], drawn: dict[str, np.ndarray]) -> bool:
    """Whether with these inputs every line has the terms that the page has, and what has none has its numbers."""
    try:
        fresh = with_inputs(recording, drawn)
    except Exception:
        return False
    if [bound.title for _, bound in fresh.bindings] != [bound.title for _, bound in recording.bindings]:
        return False
    entries = {recording.steps[0], entry_of(recording)}
    terms = Table(list(data["terms"]))
    for (step, bound), (there, other) in zip(recording.bindings, fresh.bindings, strict=True):
        ours, theirs = bound.value.array, other.value.array
        told = data["steps"][step.index]["bound"][step.bound.index(bound)]
        origin = None if other.origin is None else fresh.number_of.get(other.origin)
        if origin != told.get("origin"):
            return False
        if step in entries or "origin" in told:
            continue
        if "terms" in told.get("from", {}):
            if written_out(fresh, there, other, fresh.number_of, terms) != told["from"]:
                return False
        elif ours is None or theirs is None or not np.array_equal(ours, theirs):
            return False
    return True


def other_numbers(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other numbers of the same size; a setting, such as an epsilon, stays positive."""
    if not array.shape:
        return array * rng.uniform(0.5, 2.0) if array else np.asarray(rng.uniform(0.1, 0.4))
    return np.asarray(array + rng.normal(size=array.shape) * (array.std() + 0.5), dtype=array.dtype)
