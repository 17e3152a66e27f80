"""Questions without much to compute: five for each chapter, and what each wrong answer reveals.

Twenty of them are the test of the whole course. Given before it and after it, with the options in another order, it
shows which ideas have changed. The questions are in concepts.gift.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from ..worksheets.numbers import Draw

LETTERS = "ABCD"
# How many of the first questions of each chapter belong to the test of the course.
_IN_THE_TEST = {1: 2, 2: 2, 3: 1, 4: 1, 5: 1, 6: 3, 7: 2, 8: 1, 9: 1, 11: 1, 12: 1, 14: 1, 16: 1, 18: 1, 19: 1}


@dataclass(frozen=True)
class Concept:
    """A question. right: the right answer. wrong: the other answers, each with the belief that it reveals."""

    chapter: int
    text: str
    right: str
    wrong: Mapping[str, str]

    def options(self, draw: Draw) -> list[str]:
        """All answers, in an order that is drawn."""
        return draw.several([self.right, *self.wrong], 1 + len(self.wrong))


def _read(gift: str) -> Iterator[Concept]:
    """The questions of a file in GIFT, in which each option has a line; a category is a chapter."""
    chapter = 0
    for part in gift.split("\n\n"):
        if part.startswith("$CATEGORY: chapter "):
            chapter = int(part.split()[-1])
        elif not part.startswith("//"):
            question, right, *wrong = re.sub(r"\\(.)", r"\1", part).removesuffix("\n}").split("\n")
            reveals = dict(option.removeprefix("~ ").split(" # ") for option in wrong)
            yield Concept(chapter, question.removesuffix(" {"), right.removeprefix("= "), reveals)


CONCEPTS = tuple(_read(resources.files(__package__).joinpath("concepts.gift").read_text(encoding="utf-8").rstrip()))


def of_chapter(number: int) -> list[Concept]:
    """The questions of a chapter."""
    return [concept for concept in CONCEPTS if concept.chapter == number]


def concepts_paper(seed: int, answers: bool = False) -> str:
    """The test as Markdown. The seed decides the order of the options, so that letters cannot be remembered."""
    draw = Draw(f"concepts/{seed}")
    parts = [
        f"# A test of concepts{': answers' if answers else ''}",
        f"Version {seed}. Mark one answer of each question; a guess is better than none.",
    ]
    asked = [concept for chapter, count in _IN_THE_TEST.items() for concept in of_chapter(chapter)[:count]]
    for i, concept in enumerate(asked, 1):
        parts.append(f"## {i}{f' (chapter {concept.chapter})' if answers else ''}\n\n{concept.text}")
        for letter, option in zip(LETTERS, concept.options(draw), strict=True):
            parts.append(f"{letter}. {option}")
            if answers:
                parts.append("> Right." if option == concept.right else f"> Reveals: {concept.wrong[option]}")
    return "\n\n".join(parts) + "\n"
