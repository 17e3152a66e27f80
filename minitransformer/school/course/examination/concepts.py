"""A test of concepts: twenty questions without numbers to compute, and what each wrong answer reveals.

Given before the course and after it, with the options in another order, it shows which ideas have changed. The
questions are in concepts.gift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from ..worksheets.numbers import Draw

_LETTERS = "ABCD"


@dataclass(frozen=True)
class Concept:
    """A question. right: the right answer. wrong: the other answers, each with the belief that it reveals."""

    week: int
    text: str
    right: str
    wrong: Mapping[str, str]


def _read(gift: str) -> Iterator[Concept]:
    """The questions of a file in GIFT, in which each option has a line; a category is a week."""
    week = 0
    for part in gift.split("\n\n"):
        if part.startswith("$CATEGORY: week "):
            week = int(part.split()[-1])
        elif not part.startswith("//"):
            question, right, *wrong = re.sub(r"\\(.)", r"\1", part).removesuffix("\n}").split("\n")
            reveals = dict(option.removeprefix("~ ").split(" # ") for option in wrong)
            yield Concept(week, question.removesuffix(" {"), right.removeprefix("= "), reveals)


CONCEPTS = tuple(_read(resources.files(__package__).joinpath("concepts.gift").read_text(encoding="utf-8").rstrip()))


def concepts_paper(seed: int, answers: bool = False) -> str:
    """The test as Markdown. The seed decides the order of the options, so that letters cannot be remembered."""
    draw = Draw(f"concepts/{seed}")
    parts = [
        f"# A test of concepts{': answers' if answers else ''}",
        f"Version {seed}. Mark one answer of each question; a guess is better than none.",
    ]
    for i, concept in enumerate(CONCEPTS, 1):
        options = draw.several([concept.right, *concept.wrong], 1 + len(concept.wrong))
        parts.append(f"## {i}{f' (week {concept.week})' if answers else ''}\n\n{concept.text}")
        for letter, option in zip(_LETTERS, options, strict=True):
            parts.append(f"{letter}. {option}")
            if answers:
                parts.append("> Right." if option == concept.right else f"> Reveals: {concept.wrong[option]}")
    return "\n\n".join(parts) + "\n"
