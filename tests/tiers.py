"""Which cases of the catalogue a quick test runs, and tests of many small cases."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minitransformer.verify import Case

ALL = "all"
_VARIANT = re.compile(" of rank | has it, (with|padded)")


def first_of_each(cases: Iterable[Case], *kinds: str, variants: bool = True) -> list[Any]:
    """The cases for `parametrize`. All but the first of each op, layer, model and collective, or of those kinds that
    are given, are slow. Without variants, those that differ from another in the rank of arrays alone are a sweep, and
    so are those of a family's model with a cache or with padding."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for case in cases:
        about = (case.kind, case.covers)
        slow = about in seen or bool(kinds and case.kind not in kinds)
        seen.add(about)
        marks = [pytest.mark.slow] if slow else []
        if slow and not variants and _VARIANT.search(case.name):
            marks = [pytest.mark.sweep]
        chosen.append(pytest.param(case, id=case.name, marks=marks))
    return chosen


def in_one(
    names: str, *values: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `parametrize`, with every combination of the values, but all in one item, whose error names each that failed.
    ids: the names of all cases, or a function of the first value of each.

    For cases by the hundred that take a millisecond: pytest and its workers need two for each item. A case that is
    named, `pytest "tests/test_x.py::test_y[case]"`, is an item of its own and fails with its own error (conftest.py).
    """
    keys = names.split(", ")
    cases: dict[str, dict[str, Any]] = {}
    named = iter(() if callable(ids) else ids)
    for case in itertools.product(*values):
        given = [part for one in case for part in (one if isinstance(one, tuple) else (one,))]
        told = [x if isinstance(x, str) else getattr(x, "__name__", None) or repr(x) for x in given]
        label = ids(given[0]) if callable(ids) else next(named, ", ".join(told))
        label = " ".join(label.split())
        cases[f"{label} {len(cases)}" if label in cases else label] = dict(zip(keys, given, strict=True))

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        def each(case: str, **fixtures: Any) -> None:
            if case != ALL:
                return test(**cases[case], **fixtures)
            wrong: dict[str, BaseException] = {}
            for label, given in cases.items():
                try:
                    test(**given, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[label] = error
            if wrong:
                said = "\n".join(f"[{label}]: {error}" for label, error in wrong.items())
                raise AssertionError(f"{len(wrong)} of {len(cases)} cases:\n{said}") from next(iter(wrong.values()))

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        case = inspect.Parameter("case", inspect.Parameter.KEYWORD_ONLY)
        each.__signature__ = signature.replace(parameters=[*others, case])  # type: ignore[attr-defined]  # for pytest
        each.__name__, each.__doc__, each.__module__ = test.__name__, test.__doc__, test.__module__
        each.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        each.cases = cases  # type: ignore[attr-defined]
        return each

    return mark
