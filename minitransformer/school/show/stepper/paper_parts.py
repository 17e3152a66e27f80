"""What paper.py asks of an expression, a value or an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

import numpy as np

from . import elements as ml
from . import expressions as ex
from . import mathml
from .steps import Summarised


def summed(axes: Sequence[str], term: Element) -> Element:
    """∑ over these axes, if there are any."""
    if not axes:
        return term
    letters = ml.row(ml.separated([ml.letter(axis) for axis in reversed(axes)]))
    return ml.row([ml.element("munder", ml.sign("∑", movablelimits="false"), letters), term])


def new_axis(at: str) -> str | None:
    """The letter of the axis along which x[..., None] differs: j the last, i and h before; None for another index."""
    slots = [part for part in at.strip("()").split(", ") if part != "..."]
    if "None" not in slots or not {"None", ":"}.issuperset(slots):
        return None
    kept = [len(slots) - i for i, slot in enumerate(slots) if slot == ":"]
    return "jihb"[(kept[0] if kept else len(slots) + 1) - 1]


def part_in_words(at: str, known: Mapping[str, Any]) -> str:
    """Which part an index takes, "first 3 rows" for (..., :t, :); "" for an index by numbers of its own. known: the
    names of the line, by which sizes become numbers.
    """
    slots = [slot for slot in at.strip("()").split(", ") if slot not in ("None", "...")]
    if not slots or ("..." not in at and ":" not in at):
        return ""
    told = []
    axes = ("columns", "rows", "", "", "") if "..." in at else ("rows",)
    for slot, lines in zip(reversed(slots), axes, strict=False):
        start, colon, end = map(str.strip, slot.partition(":"))
        first, last = _size(start, known), _size(end, known)
        if slot == "::-1":
            told.append(f"{lines} in reverse")
        elif colon and end == "-1" and not start:
            told.append(f"all {lines} but the last")
        elif colon and end and not start:
            told.append(f"first {lines}"[:-1] if last == "1" else f"first {last} {lines}")
        elif colon and end:
            told.append(f"{lines} {first} to {int(last) - 1 if last.isdigit() else last}")
        elif colon and start:
            told.append(f"last {lines}"[:-1] if first == "-1" else f"{lines} from {first}")
        elif not colon:
            told.append({"-1": f"last {lines}"[:-1]}.get(slot, _size(slot, known)))
    return " ".join(", ".join(reversed(told)).replace("_", " ").replace(" * ", "·").split())


def _size(text: str, known: Mapping[str, Any]) -> str:
    """A size or a place as a number, if it is one of those that the line knows."""
    try:
        value = eval(text, dict(known)) if text else None
    except Exception:  # it calls something, or reads what was not recorded
        return text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text


def text_of(element: Element) -> str:
    """The markup of a formula."""
    return tostring(element, encoding="unicode")


def holds_arrays(value: Any) -> bool:
    """Whether it is an array with axes, or a tuple of such arrays."""
    if isinstance(value, tuple):
        return bool(value) and all(map(holds_arrays, value))
    return isinstance(value, np.ndarray | Summarised) and value.ndim > 0


def unmoved(whole: ex.Expression) -> ex.Expression:
    """Without the last change of shape: the numbers and their order are the same."""
    moved = whole.of_array if isinstance(whole, ex.Applied) and whole.name == "reshape" else None
    return whole if moved is None else moved


def names_pullback(part: ex.Expression | None) -> bool:
    """Whether it is the name of a backward function."""
    return isinstance(part, ex.Name) and mathml.is_pullback(part.id)


def is_size(whole: ex.Expression) -> bool:
    """x.shape[-1], or an expression of numbers and such a size."""
    match whole:
        case ex.Operation("[]", (ex.Member(ex.Name(), "shape"), ex.Operation("negative", (ex.Number(1),)))):
            return True
        case ex.Operation(parts=parts):
            return all(is_size(part) or isinstance(part, ex.Number) for part in parts)
        case ex.Applied("sqrt", (part,)):
            return is_size(part)
    return False
