"""Which cases of the catalogue a quick test runs."""

from __future__ import annotations

from collections.abc import Iterable
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
