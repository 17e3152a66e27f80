"""Which cases of the catalogue a quick test runs, and tests of many small cases."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minitransformer.verify import Case


def first_of_each(cases: Iterable[Case], *kinds: str) -> list[Any]:
    """The cases for `parametrize`. All but the first of each op, layer, model and collective, or of those kinds that
    are given, are slow."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for case in cases:
        about = (case.kind, case.covers)
        slow = about in seen or bool(kinds and case.kind not in kinds)
        seen.add(about)
        chosen.append(pytest.param(case, id=case.name, marks=pytest.mark.slow if slow else ()))
    return chosen


def in_one(names: str, *values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `parametrize`, with every combination of the values, but all in one item, whose error names each that failed.

    For cases by the hundred that take a millisecond: pytest and its workers need two for each item.
    """
    keys = names.split(", ")

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        def each(**fixtures: Any) -> None:
            wrong: dict[str, BaseException] = {}
            for case in itertools.product(*values):
                given = [part for one in case for part in (one if isinstance(one, tuple) else (one,))]
                try:
                    test(**dict(zip(keys, given, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[", ".join(x if isinstance(x, str) else repr(x) for x in given)] = error
            if wrong:
                raise AssertionError("; ".join(f"{case}: {error}" for case, error in wrong.items())) from next(
                    iter(wrong.values())
                )

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        each.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # pytest looks for fixtures
        each.__name__, each.__doc__, each.__module__ = test.__name__, test.__doc__, test.__module__
        each.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return each

    return mark
