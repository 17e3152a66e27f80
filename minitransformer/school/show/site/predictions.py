"""The box for a prediction, with a field for each thing that can be compared exactly.

What it should be is "name: answer; name: answer", from the lines "#:" of a notebook's source. An answer is

    (3, 4)      numbers in order: a shape, a row; 1/7, nan and inf are numbers too
    0.71        one number, which is compared to as many places
    + - 0       signs in order
    yes, no     a choice, as is any answer with "|": central | one-sided, the first of them right
"""

import itertools
import re
from typing import Any

from .frame import template

_SIGNS = re.compile(r"[-+0](?: [-+0])+")
_COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
_PLACES = re.compile(r"\.(\d+)")


def question(name: str, answer: str) -> str:
    """The box. Without an answer it has room only for words, which the reader compares."""
    return template("predict", name=name, fields=fields_of(answer))


def poll(answer: str) -> str:
    """The same for a class: the choices with letters. If there are none, the lecturer types what the class says."""
    return template("poll", fields=fields_of(answer))


def kind(answer: str) -> str:
    """What an answer is: "choice", "signs", "numbers" or "number"."""
    if "|" in answer or answer in ("yes", "no"):
        return "choice"
    return "signs" if _SIGNS.fullmatch(answer) else "numbers" if answer.startswith("(") else "number"


def fields_of(answers: str) -> list[dict[str, Any]]:
    """The fields of a box. choices: of a choice, in an order that does not tell which is right."""
    fields = []
    for name, answer in (part.partition(": ")[::2] for part in answers.split("; ") if part):
        what, choices, hint = kind(answer), [], ""
        if what == "choice":
            choices = ["yes", "no"] if "|" not in answer else sorted(answer.split(" | "))
        else:
            hint = {"signs": "signs, such as + - 0", "number": "a number"}.get(what) or _several(answer)
            if places := max((len(digits) for digits in _PLACES.findall(answer)), default=0):
                hint += f", to {places} place{'s' if places > 1 else ''}"
        expected = answer.split(" | ")[0] if choices else answer
        fields.append({"name": name, "kind": what, "expected": expected, "hint": hint, "choices": choices})
    return fields


def _several(answer: str) -> str:
    """The hint for several numbers: how many, with an example as long that tells nothing of the answer."""
    count = answer.count(",") + 1
    example = ("7", "5", "9") if re.fullmatch(r"[-\d, ()]+", answer) else ("0.1", "0.2", "0.7")
    return (
        f"{_COUNTS.get(count, count)} numbers, such as {', '.join(itertools.islice(itertools.cycle(example), count))}"
    )
