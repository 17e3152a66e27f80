"""The box for a prediction, with a field for each thing that can be compared exactly.

What it should be is "name: answer; name: answer", from the lines "#:" of a notebook's source. An answer is

    (3, 4)      numbers in order: a shape, a row; 1/7, nan and inf are numbers too
    0.71        one number, which is compared to as many places
    + - 0       signs in order
    yes, no     a choice, as is any answer with "|": central | one-sided, the first of them right
"""

from __future__ import annotations

import html
import itertools
import re

from .questions import ASK, lettered

_SIGNS = re.compile(r"[-+0](?: [-+0])+")
_COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
_PLACES = re.compile(r"\.(\d+)")


def question(name: str, answer: str) -> str:
    """The box. Without an answer it has room only for words, which the reader compares."""
    fields = "".join(map(_field, answer.split("; "))) if answer else ""
    ask = f" {ASK}" if 'class="options"' in fields else ""
    words = "In your own words; compare them with what follows" if fields else "Your prediction"
    return (
        f'<form class="predict" data-question="{name}" hidden>\n<div class="fields">{fields}</div>\n'
        f'<label>{words}<textarea rows="2"></textarea></label>\n'
        '<div class="buttons"><button>Compare and continue</button>'
        f'<button value="skip">Continue without an answer</button>{ask}</div>\n'
        '<p class="verdict" role="status"></p></form>\n'
    )


def poll(answer: str) -> str:
    """The same for a class: the choices with letters. If there are none, the lecturer types what the class says."""
    parts = [part.partition(": ")[::2] for part in answer.split("; ")]
    lists = "".join(
        f"<li>{html.escape(name)}{lettered(_choices(answer))}</li>"
        for name, answer in parts
        if kind(answer) == "choice"
    )
    return f'<div class="polls"><ul>{lists}</ul>{ASK}</div>'


def kind(answer: str) -> str:
    """What an answer is: "choice", "signs", "numbers" or "number"."""
    if "|" in answer or answer in ("yes", "no"):
        return "choice"
    return "signs" if _SIGNS.fullmatch(answer) else "numbers" if answer.startswith("(") else "number"


def _field(part: str) -> str:
    name, _, answer = part.partition(": ")
    what, letters = kind(answer), ""
    if what == "choice":
        choices = _choices(answer)
        options = "".join(f"<option>{html.escape(choice)}</option>" for choice in ["", *choices])
        hint, box = "", f"<select {_data(name, what, answer.split(' | ')[0])}>{options}</select>"
        letters = lettered(choices, hidden=True)  # for a class
    else:
        hint = {"signs": "signs, such as + - 0", "number": "a number"}.get(what) or _several(answer)
        if places := max((len(digits) for digits in _PLACES.findall(answer)), default=0):
            hint += f", to {places} place{'s' if places > 1 else ''}"
        box = f'<input {_data(name, what, answer)} autocomplete="off" spellcheck="false">'
    return f'<label>{html.escape(name)} <span class="note">{hint}</span>{box}</label>\n{letters}'


def _choices(answer: str) -> list[str]:
    return ["yes", "no"] if "|" not in answer else sorted(answer.split(" | "))


def _several(answer: str) -> str:
    """The hint for several numbers: how many, with an example as long that tells nothing of the answer."""
    count = answer.count(",") + 1
    example = ("7", "5", "9") if re.fullmatch(r"[-\d, ()]+", answer) else ("0.1", "0.2", "0.7")
    return (
        f"{_COUNTS.get(count, count)} numbers, such as {', '.join(itertools.islice(itertools.cycle(example), count))}"
    )


def _data(*values: str) -> str:
    pairs = zip(("name", "kind", "expected"), values, strict=True)
    return " ".join(f'data-{key}="{html.escape(value, quote=True)}"' for key, value in pairs)
