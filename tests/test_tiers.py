"""A test of many cases in one item names each case that fails, and runs one alone where it is named."""

import inspect
import subprocess
import sys

import pytest
from tiers import ALL, in_one

from minitransformer.school.course.examination import QUESTIONS

RAN: list[str] = []


@in_one("n, word, letter", [(1, "one"), (2, "two")], "ab")
def cases(n: int, word: str, letter: str, tmp_path: str) -> None:
    RAN.append(f"{n}{word}{letter}{tmp_path}")
    assert n == 1, f"not {n}"
    if letter == "b":
        with pytest.raises(ValueError):
            pass


def test_every_case_runs_and_each_that_fails_is_named() -> None:
    RAN.clear()
    assert list(inspect.signature(cases).parameters) == ["tmp_path", "case"]  # what pytest fills in
    said = r"(?s)^3 of 4 cases:\n\[1, one, b\]: DID NOT .*\n\[2, two, a\]: not 2.*\n\[2, two, b\]: not 2"
    with pytest.raises(AssertionError, match=said) as found:
        cases(case=ALL, tmp_path=".")
    assert RAN == ["1onea.", "1oneb.", "2twoa.", "2twob."]
    assert isinstance(found.value.__cause__, pytest.fail.Exception)


def test_a_case_alone_fails_with_its_own_error() -> None:
    RAN.clear()
    with pytest.raises(AssertionError, match=r"^not 2"):
        cases(case="2, two, a", tmp_path=".")
    assert RAN == ["2twoa."]


@pytest.mark.slow
def test_a_case_is_chosen_on_the_command_line() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n", "0"]
    name = "tests/test_examination.py::test_numbers_differ_by_seed_and_stay_for_a_seed"
    for chosen in ("", f"[{next(iter(QUESTIONS))}]"):
        found = subprocess.run([*command, f"{name}{chosen}"], capture_output=True, text=True)
        assert f"{name}{chosen or '[all]'}" in found.stdout and "1 test collected" in found.stdout, (
            found.stdout + found.stderr
        )


def test_cases_have_the_names_that_are_given_or_those_of_their_values() -> None:
    def named(values: list[object], **ids: object) -> list[str]:
        return list(in_one("x", values, **ids)(lambda x: None).cases)

    assert named([1, 2], ids=["one", "two"]) == ["one", "two"]
    assert named([1, 2], ids=lambda x: f"n{x}") == ["n1", "n2"]
    assert named([len, "a\n b", 2, 2]) == ["len", "a b", "2", "2 3"]
