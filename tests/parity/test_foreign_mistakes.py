"""Code in the style of public code: the right one is right for its op, and one wrong line is named."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from foreign_mistakes import Foreign, right, wrong

from minitransformer import verify

WRONG = wrong()
# What a message says of a mistake that has no name: a pattern that tells what it is.
TELLING = re.compile(r"is zero everywhere|times the right one|with the wrong sign|right, but exchanged")


def said(one: Foreign) -> str:
    """What `check_gradients` says; "" if it is satisfied."""
    f, inputs = one.made(np.random.default_rng(0))
    try:
        verify.check_gradients(f, *inputs, op=one.op)
    except AssertionError as error:
        return str(error)
    return ""


def names_in(text: str) -> set[str]:
    """The known mistakes that a message names."""
    named = text.partition("known mistake")[2].partition("\n")[0]
    return set(re.findall(r"\(([a-z0-9]+-[a-z0-9-]+)\)", named))


@pytest.mark.parametrize("one", right(), ids=lambda one: f"{one.kind} {one.op}")
def test_right_code_is_right_for_its_op(one: Foreign) -> None:
    assert said(one) == ""


@pytest.mark.few(12)
@pytest.mark.parametrize("one", WRONG, ids=lambda one: f"{one.kind} {one.op}: {one.edit}")
def test_a_wrong_line_is_refused_and_never_named_falsely(one: Foreign) -> None:
    text = said(one)
    assert text
    assert names_in(text) <= {*one.names}, text


@pytest.mark.slow
def test_nine_of_ten_are_named() -> None:
    texts = [(one.kind, said(one)) for one in WRONG]
    of = Counter(kind for kind, _ in texts)
    named = Counter(kind for kind, text in texts if names_in(text))
    told = Counter(kind for kind, text in texts if names_in(text) or TELLING.search(text))
    assert of["object"] >= 17 and of["function"] >= 16 and of["forward"] >= 59 and of["pair"] >= 67
    assert sum(named.values()) >= 0.9 * len(texts), named
    assert all(told[kind] >= 0.9 * of[kind] for kind in of), (named, told)
    pattern = sum(told.values()) - sum(named.values())
    page = " ".join((Path(__file__).parents[2] / "docs" / "referee.md").read_text(encoding="utf-8").split())
    assert (
        f"{sum(named.values())} of the {len(texts)} are named" in page
        and f"and {pattern} more by their pattern" in page
    )
