"""The form: a plain text file with a blank for every answer, which a student fills in and returns.

    worksheet: softmax-backward
    seed: 7
    size: 3
    student: Ada

    E:      # E = e^(x − smallest of the row)
      _  _  _
      _  _  _

The student replaces each _ by a number: 3, -0.25, 1/3. A remaining _ is an unanswered question.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .kinds import make
from .sheet import UNITS, Sheet, number

_HEADER = ("worksheet", "seed", "size", "student")
_LONGEST = 100_000  # characters


@dataclass(frozen=True)
class Form:
    """A returned form: its sheet, and the value of each step; NaN for a blank."""

    sheet: Sheet
    values: dict[str, np.ndarray]


def to_form(sheet: Sheet, filled: bool = False) -> str:
    """The form of a sheet, empty or filled in with the answers."""
    lines = [
        *(f"{name}: {value}" for name, value in sheet.head.items()),
        "",
        "# Replace each _ by a number, such as 3, -0.25 or 1/3. Lines like this one are not read.",
    ]
    for step in sheet.task.steps:
        without = f" (only the factor before · {step.unit})" if step.unit else ""
        lines += ["", f"{step.name}:      # {step.formula}{without}"]
        for row in sheet.boxes(step.name):
            lines.append("  " + "  ".join(number(x) if filled else "_" for x in row))
    return "\n".join(lines) + "\n"


def read_form(text: str) -> Form:
    """Read a completed form. Raises ValueError, which names the line, for anything but a form with numbers."""
    if len(text) > _LONGEST:
        raise ValueError(f"this is not an answer form: it has {len(text)} characters")
    header: dict[str, str] = {}
    matrices: dict[str, list[tuple[int, list[float]]]] = {}
    rows: list[tuple[int, list[float]]] | None = None
    for place, line in enumerate(text.splitlines(), start=1):
        name, colon, rest = line.partition(":")
        if rows is None and colon and name.strip() in _HEADER:
            header[name.strip()] = rest.strip()  # unchanged: a name may contain a #
            continue
        content = line.partition("#")[0].strip()
        if content.endswith(":"):
            rows = matrices.setdefault(content[:-1].strip(), [])
            if rows:
                raise ValueError(f"line {place}: {content} occurs twice")
        elif content and rows is None:
            raise ValueError(f"line {place}: expected the name of a step, such as `dx:`, got {content!r}")
        elif content and rows is not None:
            rows.append((place, [_number(word, place) for word in content.replace(",", " ").split()]))
    sheet = _sheet(header)
    known = [step.name for step in sheet.task.steps]
    for name in matrices:
        if name not in known:
            raise ValueError(f"this worksheet has no step {name!r}; its steps are {', '.join(known)}")
    values = {}
    for step in sheet.task.steps:
        boxes = _matrix(step.name, matrices.get(step.name, []), sheet.boxes(step.name).shape)
        values[step.name] = (boxes * UNITS[step.unit]).reshape(sheet.answers[step.name].shape)
    return Form(sheet, values)


def _sheet(header: dict[str, str]) -> Sheet:
    for name in ("worksheet", "seed", "size"):
        if name not in header:
            raise ValueError(f"this is not an answer form: its line `{name}: ...` is missing")
    for name in ("seed", "size"):
        if not re.fullmatch(r"[0-9]{1,18}", header[name]):
            raise ValueError(f"the form's {name} must be a whole number, got {header[name]!r}")
    return make(header["worksheet"], int(header["seed"]), int(header["size"]), header.get("student", ""))


def _matrix(name: str, rows: list[tuple[int, list[float]]], shape: tuple[int, ...]) -> np.ndarray:
    if not rows:
        return np.full(shape, np.nan)
    for place, row in rows:
        if len(row) != shape[1]:
            raise ValueError(f"line {place}: a row of {name} has {shape[1]} numbers, got {len(row)}")
    if len(rows) != shape[0]:
        raise ValueError(f"line {rows[-1][0]}: {name} has {shape[0]} rows, got {len(rows)}")
    return np.array([row for _, row in rows])


def _number(word: str, place: int) -> float:
    """The number in a word; NaN for a blank."""
    if set(word) == {"_"}:
        return math.nan
    plain = word.replace("−", "-")
    try:
        if re.fullmatch(r"[-+./0-9]{1,26}", plain):
            return float(Fraction(plain))
    except ZeroDivisionError as error:
        raise ValueError(f"line {place}: {word!r} divides by zero") from error
    except ValueError:
        pass
    raise ValueError(f"line {place}: {word!r} is not a number; write e.g. 3, -0.25 or 1/3 (with a decimal point)")
