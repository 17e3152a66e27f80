"""The catalogue has all that the boundary lets through: every rank of input and mask, every value of an option.

Nothing is listed here. A case of the catalogue is called again with axes taken away or put before, with the mask cut
down to fewer axes, with an option changed; what an op or layer then accepts must have a case of its own.
"""

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from all_ops import OPS
from tiers import in_one

from minitransformer.check.verify.catalogue import Case, Setup
from minitransformer.check.verify.mistakes import Mistake
from minitransformer.verify import CASES

RANKS = (1, 2, 3, 4)


def of_kind(*kinds: str) -> dict[str, list[Case]]:
    """The cases of each op or layer."""
    found: dict[str, list[Case]] = {}
    for case in CASES.values():
        if case.kind in kinds:
            found.setdefault(case.covers, []).append(case)
    return found


def build(case: Case) -> Setup:
    return case.build(np.random.default_rng(0))


def accepts(setup: Setup, inputs: tuple[Any, ...], options: dict[str, Any]) -> bool:
    try:
        setup.f(*inputs, **options)
    except (ValueError, TypeError, IndexError):
        return False
    return True


def of_rank(x: np.ndarray, rank: int) -> np.ndarray:
    """x with its first axes taken away, or such put before that repeat it."""
    return x[(0,) * (x.ndim - rank)] if rank <= x.ndim else np.stack([of_rank(x, rank - 1)] * 2)


def rank_of(setup: Setup) -> int:
    return next(x.ndim for x in setup.inputs if isinstance(x, np.ndarray))


def accepted_ranks(case: Case) -> set[int]:
    """The ranks of the first array with which a call works, other arrays having as many axes more or fewer, or not."""
    setup = build(case)
    arrays = [i for i, x in enumerate(setup.inputs) if isinstance(x, np.ndarray)]
    options = {name: option for name, option in setup.options.items() if not isinstance(option, np.ndarray)}
    found = set()
    for rank in RANKS:
        change = rank - rank_of(setup)
        for moved in itertools.product([True, False], repeat=len(arrays) - 1):
            inputs = list(setup.inputs)
            for i, moves in zip(arrays, (True, *moved), strict=True):
                if moves and inputs[i].ndim + change >= 0:
                    inputs[i] = of_rank(inputs[i], inputs[i].ndim + change)
            if accepts(setup, tuple(inputs), options):
                found.add(rank)
    return found


# A function around a layer fixes what the layer is called with, and a table is no input of a batch, nor are sizes.
OF_NO_BATCH = ("learned_positions", "RelativeBias")
INPUTS_OF_A_BATCH = {name: cases for name, cases in of_kind("op", "layer").items() if name not in OF_NO_BATCH}


@in_one("name", INPUTS_OF_A_BATCH)
def test_every_rank_that_is_accepted_has_a_case(name: str) -> None:
    cases = INPUTS_OF_A_BATCH[name]
    accepted = set().union(*(accepted_ranks(case) for case in cases))
    covered = {rank_of(build(case)) for case in cases}
    assert accepted & set(RANKS)
    assert accepted - covered == set()


def masks_of(setup: Setup) -> Iterator[tuple[str | int, np.ndarray]]:
    given = [*enumerate(setup.inputs), *setup.options.items()]
    yield from ((place, x) for place, x in given if isinstance(x, np.ndarray) and x.dtype == np.bool_)


@in_one("name", [name for name, cases in of_kind("op").items() if any(dict(masks_of(build(c))) for c in cases)])
def test_every_rank_of_mask_that_is_accepted_has_a_case(name: str) -> None:
    accepted, covered = set(), set()
    for case in of_kind("op")[name]:
        setup = build(case)
        for place, mask in masks_of(setup):
            covered.add(mask.ndim)
            for rank in range(5):
                inputs = tuple(of_rank(mask, rank) if i == place else x for i, x in enumerate(setup.inputs))
                options = {key: of_rank(mask, rank) if key == place else x for key, x in setup.options.items()}
                if accepts(setup, inputs, options):
                    accepted.add(rank)
    assert accepted - covered == set()
    assert len(accepted) >= 3


SURVIVED = [
    ("core.layers.embedding:LearnedPositions.__call__", "axis=tuple(range(dy.ndim - 2))", "axis=0", "LearnedPositions"),
    ("core.layers.normalization:LayerNorm.__call__", "+= dgamma", "+= dgamma * (x.ndim > 1)", "LayerNorm"),
    ("core.layers.normalization:LayerNorm.__call__", "return dx", "return dx * (1 + (self.eps <= 1e-6))", "LayerNorm"),
    ("core.ops.attention:attention", "dq = (", "dq = (1 + (mask is not None and mask.ndim == 1)) * (", "attention"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "old", "new", "name"), SURVIVED)
def test_mutations_that_survived_every_check_are_found(target: str, old: str, new: str, name: str) -> None:
    """By a wrong gradient, or because the op's own boundary refuses it: `minitransformer check` counts both."""
    cases = [case for cases in of_kind("op", "layer").values() for case in cases if case.covers == name]
    with Mistake("mutation", target, ((old, new),), "It survived.").applied():
        found = []
        for case in cases:
            try:
                found.append(case.run().ok)
            except ValueError:
                found.append(False)
    assert not all(found)
    before = [ok for case, ok in zip(cases, found, strict=True) if not case.along_directions]
    assert all(before)  # the cases that look at every entry do not have it


def bound_options(case: Case) -> dict[str, Any]:
    """The options that a case calls its op with, by name, defaults included."""
    setup = build(case)
    op = inspect.unwrap(OPS[case.covers])
    if inspect.unwrap(setup.f) is not op:
        return {}
    bound = inspect.signature(op).bind(*setup.inputs, **setup.options)
    bound.apply_defaults()
    return dict(bound.arguments)


def candidates(op: Callable[..., Any], name: str, default: Any) -> list[tuple[str, Any, Callable[[Any], bool]]]:
    """What else an option might be: (in words, a value to try, whether another value is of that sort)."""
    if isinstance(default, bool):
        return [(str(value), value, lambda x, value=value: x is value) for value in (True, False)]
    if isinstance(default, str):
        values = set(re.findall(r'"(\w+)"', inspect.getsource(inspect.unwrap(op))))
        return [(value, value, functools.partial(str.__eq__, value)) for value in sorted(values)]
    if isinstance(default, float):
        below = default / 10 if default else -0.1
        return [
            ("its default", default, lambda x: x == default),
            ("below its default", below, lambda x: x < default),
            ("above its default", 0.1 if not default else 10 * default, lambda x: x > default),
        ]
    if isinstance(default, int):
        return [("other than its default", default + 1, lambda x: x != default)]
    return []


OPTIONS = [
    (name, option.name, option.default)
    for name, op in OPS.items()
    for option in inspect.signature(inspect.unwrap(op)).parameters.values()
    if option.default is not inspect.Parameter.empty and name in of_kind("op")
]


@in_one("name, option, default", OPTIONS)
def test_every_sort_of_value_that_an_option_accepts_has_a_case(name: str, option: str, default: Any) -> None:
    values = [bound[option] for case in of_kind("op")[name] if option in (bound := bound_options(case))]
    assert values
    for words, value, is_such in candidates(OPS[name], option, default):
        accepted = False
        for case in of_kind("op")[name]:
            setup = build(case)
            if inspect.unwrap(setup.f) is inspect.unwrap(OPS[name]):
                accepted = accepted or accepts(setup, setup.inputs, setup.options | {option: value})
        if accepted:
            assert any(is_such(x) for x in values if isinstance(x, type(value))), (
                f"{name}: no case has {option} {words}"
            )
    if default is None:
        assert any(x is not None for x in values) and any(x is None for x in values), f"{name}: {option}"


def test_layers_with_an_epsilon_have_small_and_large_ones() -> None:
    for name in ("LayerNorm", "RMSNorm"):
        sizes = [math.log10(build(case).module.eps) for case in of_kind("layer")[name]]
        assert min(sizes) <= -12 and max(sizes) >= -2 and {-6.0} <= {round(size, 6) for size in sizes}
