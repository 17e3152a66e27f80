"""What to do about an error of a student's code, from the message that Python or NumPy gives: the table advice.txt."""

import functools
import re
from importlib import resources


def advice(error: str, shown: str) -> str:
    """One or two sentences on a traceback, or "". shown: the exercise's arguments in this trial, with their shapes."""
    last = error.strip().rpartition("\n")[2]
    cases, in_numpy = _table()
    for pattern, said in cases.items():
        if match := re.search(pattern, last):
            found = match.groupdict()
            name = found.get("name", "")
            here = f" In NumPy it is {in_numpy[name]}." if name in in_numpy else ""
            shapes = _broadcast(found["a"], found["b"], shown) if "a" in found else ""
            return said.format(shown=shown, name=name, here=here, shapes=shapes)
    return ""


@functools.cache
def _table() -> tuple[dict[str, str], dict[str, str]]:
    """The advice by pattern, and what NumPy calls the functions of PyTorch."""
    cases, in_numpy = dict[str, str](), dict[str, str]()
    text = resources.files(__package__).joinpath("advice.txt").read_text(encoding="utf-8")
    for part in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        first, *lines = part.split("\n")
        if lines[0].startswith(" "):
            cases[first] = " ".join(map(str.strip, lines))
        else:
            pairs = [line.split(" = ") for line in (first, *lines)]
            in_numpy |= {name: what for names, what in pairs for name in names.split(", ")}
    return cases, in_numpy


def _broadcast(one: str, other: str, shown: str) -> str:
    a, b = sorted((tuple(map(int, text.split(","))) for text in (one, other)), key=len, reverse=True)
    for axis in range(len(a)):
        if a[:axis] + a[axis + 1 :] == b:
            kept = (*a[:axis], 1, *a[axis + 1 :])
            return (
                f"Is keepdims=True missing? A sum, mean or maximum of {_shape(a)} over axis {axis} is {_shape(b)}, "
                f"which does not fit any more; with keepdims=True it is {_shape(kept)}, and each row gets its own."
            )
    product = "\nFor a product of matrices write @; *, + and - go entry by entry."
    return (
        f"NumPy compares the shapes {_shape(a)} and {_shape(b)} from their last axes: two lengths must be equal, or "
        f"one of them 1. Compare with your inputs: {shown}."
    ) + (product if len(a) > 1 and len(b) > 1 and {*a[-2:]} & {*b[-2:]} else "")


def _shape(shape: tuple[int, ...]) -> str:
    return str(shape).replace(" ", "")
