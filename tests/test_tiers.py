"""A test of many cases in one item names each case that fails."""

from __future__ import annotations

import inspect

import pytest
from tiers import in_one


def test_every_case_runs_and_each_that_fails_is_named() -> None:
    ran = []

    @in_one("n, word, letter", [(1, "one"), (2, "two")], "ab")
    def test(n: int, word: str, letter: str, tmp_path: str) -> None:
        ran.append(f"{n}{word}{letter}{tmp_path}")
        assert n == 1, f"not {n}"
        if letter == "b":
            with pytest.raises(ValueError):
                pass

    assert list(inspect.signature(test).parameters) == ["tmp_path"]  # the fixtures that pytest fills in
    with pytest.raises(
        AssertionError, match=r"(?s)^1, one, b: DID NOT .*; 2, two, a: not 2.*; 2, two, b: not 2"
    ) as found:
        test(tmp_path=".")
    assert ran == ["1onea.", "1oneb.", "2twoa.", "2twob."]
    assert isinstance(found.value.__cause__, pytest.fail.Exception)
