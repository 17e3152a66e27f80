"""Suspects: mistakes that a student can run, and cannot read off the notebook."""

import re
from pathlib import Path

import numpy as np
import pytest

from minitransformer import course, ops, verify
from minitransformer.school.course.suspects import INNOCENT, label

SOURCES = sorted((Path(__file__).parent.parent / "notebooks" / "source").glob("*.py"))
X = np.random.default_rng(0).normal(size=(2, 3))


def test_every_wrong_variant_has_a_label_of_its_own_that_does_not_name_it() -> None:
    labels = {label(name) for name in [*course.MISTAKES, INNOCENT]}
    assert len(labels) == len(course.MISTAKES) + 1
    for name in course.MISTAKES:
        assert name not in repr(course.suspect(label(name)))


def test_a_suspect_runs_its_mistake_for_a_while_and_reveals_it_when_asked() -> None:
    suspect = course.suspect(label("softmax-no-sum"))
    with suspect.applied():
        assert not verify.gradients(ops.softmax, X).ok
    assert verify.gradients(ops.softmax, X).ok
    variant = course.MISTAKES["softmax-no-sum"]
    where, *code = suspect.reveal().splitlines()
    assert where == f"in {variant.target}: {variant.sentence}"
    assert [line.split()[0] for line in code] == ["-", "+"]


def test_the_innocent_suspect_changes_nothing() -> None:
    suspect = course.suspect(label(INNOCENT))
    with suspect.applied():
        assert verify.gradients(ops.softmax, X).ok
    assert suspect.reveal() == "nothing is wrong here"


@pytest.mark.parametrize("unknown", ["", "softmax-no-sum", "zzzzzz"])
def test_an_unknown_label_is_refused(unknown: str) -> None:
    with pytest.raises(ValueError, match="unknown suspect"):
        course.suspect(unknown)


def test_the_notebooks_ask_for_suspects_that_exist() -> None:
    lines = [line for path in SOURCES for line in path.read_text(encoding="utf-8").splitlines()]
    given = " ".join(line for line in lines if line.startswith(("labels = ", "line_up = ")))
    asked = set(re.findall(r"\b[0-9a-f]{6}\b", given))
    assert len(asked) == 4 + 3 + 12
    for found in asked:
        course.suspect(found)
