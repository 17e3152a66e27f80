"""The shapes in the docstrings of the ops are those of the arrays.

A docstring says "x: (..., in); weight: (in, out); y: (..., out)". Every case of the catalogue is called, and one length
for each letter must explain all arrays of the call, and its gradients. Docstrings with a wrong letter must be noticed.
"""

import functools
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from all_ops import OPS as ALL
from tiers import in_one

from minitransformer.verify import CASES

NAMES = r"(?P<names>\w+(?:, \w+)*(?: and (?:the )?\w+)?)(?: = \w+)?"
SHAPE = re.compile(rf"{NAMES}: (?:integers )?\((?P<axes>[^()]*)\)")
ANY = re.compile(r"(?P<names>\w+(?:, \w+)*): any shape|(?P<same>\w+(?:, \w+)* and \w+) have one shape")
BROADCAST = re.compile(r"(?P<names>\w+): [^.:]*?broadcasts? to \((?P<axes>[^()]*)\)")
EQUAL = re.compile(r"where (?P<letter>\w+) = (?P<parameter>\w+)")
GRADIENTS = re.compile(r"\((d[a-z]\w*(?:, d[a-z]\w*)+)\)")
OPS = sorted(ALL.keys() - {"sinusoidal_positions"})  # it returns a table, and no pullback

Shape = tuple[int, ...]


class Call(NamedTuple):
    """What one call of an op took and gave."""

    arrays: dict[str, Shape]
    broadcast: dict[str, Shape]  # masks and the like
    numbers: dict[str, int]  # the arguments that are integers
    output: Shape
    gradients: list[Shape]


def doc_of(name: str) -> str:
    return " ".join((inspect.getdoc(ALL[name]) or "").split())


def axes_of(text: str) -> list[str]:
    return [axis.strip() for axis in text.split(",") if axis.strip()]


def shapes_in(doc: str) -> dict[str, list[str]]:
    """The axes of each array, as written."""
    shapes = {}
    for found in SHAPE.finditer(doc):
        shapes |= {name: axes_of(found["axes"]) for name in re.split(", | and ", found["names"])}
    for found in ANY.finditer(doc):
        shapes |= {name: ["..."] for name in re.split(", | and ", found["names"] or found["same"])}
    return shapes


def broadcasts_in(doc: str) -> dict[str, list[str]]:
    """The axes that each mask, bias or the like broadcasts to, as written."""
    return {found["names"]: axes_of(found["axes"]) for found in BROADCAST.finditer(doc)}


def calls(name: str) -> Iterator[Call]:
    """One call for each case of the catalogue."""
    op = ALL[name]
    for case in (case for case in CASES.values() if case.kind == "op" and case.covers == name):
        setup = case.build(np.random.default_rng(0))
        bound = inspect.signature(op).bind(*setup.inputs, **setup.options).arguments
        arrays = {key: x.shape for key, x in bound.items() if isinstance(x, np.ndarray)}
        numbers = {key: x for key, x in bound.items() if type(x) is int}
        y, backward = op(*setup.inputs, **setup.options)
        gradients = backward(np.ones_like(y))
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        broadcast = {key: arrays.pop(key) for key in list(arrays) if key in broadcasts_in(doc_of(name))}
        yield Call(arrays, broadcast, numbers, y.shape, [gradient.shape for gradient in gradients])


def length(axis: str, letters: dict[str, Any]) -> int:
    """The length of an axis such as "T", "3 H" or "H·d"."""
    return math.prod(int(part) if part.isdigit() else letters[part] for part in re.split("[ ·]", axis))


def problem(doc: str, parameters: list[str], call: Call) -> str:
    """What in this call contradicts the docstring; empty if nothing does."""
    shapes, broadcasts = shapes_in(doc), broadcasts_in(doc)
    (output,) = [key for key in shapes if key not in parameters] or [""]
    letters: dict[str, Any] = {}
    for key, number in call.numbers.items():
        letters[key] = letters[key[0].upper() + key[1:]] = number  # the parameter t_q is the letter T_q
    letters |= {found["letter"]: call.numbers[found["parameter"]] for found in EQUAL.finditer(doc)}
    products = []
    for key, shape in {**call.arrays, output: call.output}.items():
        if key not in shapes:
            return f"{key or 'the output'} has no shape"
        axes = shapes[key]
        if key == output and f"{key}: (), or (...)" in doc and shape:
            axes = ["..."]
        if axes[-1:] == ["*D"]:  # several axes: as many as in the array that has only these
            rows = next((call.arrays[name] for name in call.arrays if shapes.get(name) == ["*D"]), None)
            if rows is None or shape[len(shape) - len(rows) :] != rows:
                return f"{key}: {axes}, but {shape}"
            axes, shape = axes[:-1], shape[: len(shape) - len(rows)]
        if axes[:1] == ["..."]:
            n = len(shape) - len(axes) + 1
            if n < 0 or letters.setdefault("...", shape[:n]) != shape[:n]:
                return f"{key}: {axes}, but {shape}"
            axes, shape = axes[1:], shape[n:]
        if len(axes) != len(shape):
            return f"{key}: {axes}, but {shape}"
        for axis, size in zip(axes, shape, strict=True):
            if not axis.isidentifier():
                products.append((key, axis, size))
            elif letters.setdefault(axis, size) != size:
                return f"{key}: {axis} is {letters[axis]} elsewhere and {size} here"
    for key, axis, size in products:  # a letter that occurs only in a product is what is missing in the product
        unknown = [part for part in re.split("[ ·]", axis) if not part.isdigit() and part not in letters]
        if len(unknown) == 1:
            letters[unknown[0]] = size // length(axis, letters | {unknown[0]: 1})
        if length(axis, letters) != size:
            return f"{key}: {axis} is {length(axis, letters)} elsewhere and {size} here"
    for key, shape in call.broadcast.items():
        if broadcasts[key][-1] not in letters:  # only arrays that broadcast have this axis
            letters[broadcasts[key][-1]] = shape[-1]
        wanted = tuple(n for axis in broadcasts[key] for n in (letters[axis] if axis == "..." else [letters[axis]]))
        if len(shape) > len(wanted) or any(a not in (1, b) for a, b in zip(shape[::-1], wanted[::-1], strict=False)):
            return f"{key} broadcasts to {broadcasts[key]}, but {shape}"
    taken = call.arrays | call.broadcast
    listed = max(GRADIENTS.findall(doc), key=len, default="").split(", ")
    expected = [taken[key[1:]] for key in listed if key[1:] in taken]
    if listed == [""]:  # one gradient: that of the first array of floats
        expected = [taken[key] for key in taken if key != "ids"][:1]
    return "" if call.gradients == expected else f"gradients {listed}: {expected}, but {call.gradients}"


def first_problem(name: str, doc: str, made: list[Call]) -> str:
    parameters = list(inspect.signature(ALL[name]).parameters)
    return next(filter(None, (problem(doc, parameters, call) for call in made)), "")


recorded = functools.cache(lambda name: list(calls(name)))


@in_one("name", OPS)
def test_the_shapes_in_the_docstring_are_those_of_the_arrays(name: str) -> None:
    assert recorded(name)
    assert first_problem(name, doc_of(name), recorded(name)) == ""


def wrong_docstrings(doc: str) -> Iterator[str]:
    """The docstring with one letter of a shape replaced by another of its letters, or with one axis left out.

    "x, y: (...)" in place of "x, y: (..., D)" is not wrong, if no other array has leading axes: it says less.
    """
    leading = [key for key, axes in shapes_in(doc).items() if axes[:1] == ["..."]]
    letters = {axis for axes in shapes_in(doc).values() for axis in axes if axis.isidentifier()}
    for pattern in (SHAPE, BROADCAST):
        for found in pattern.finditer(doc):
            axes = axes_of(found["axes"])
            for i, axis in enumerate(axes):
                others = [[*axes[:i], letter, *axes[i + 1 :]] for letter in sorted(letters - {axis})]
                fewer = [] if re.split(", | and ", found["names"]) == leading else [[*axes[:i], *axes[i + 1 :]]]
                for wrong in (*fewer, *(others if axis != "..." else [])):
                    yield doc[: found.start("axes")] + ", ".join(wrong) + doc[found.end("axes") :]


@in_one("name", OPS)
def test_a_wrong_shape_in_the_docstring_is_noticed(name: str) -> None:
    def noticed(doc: str) -> bool:
        try:
            return first_problem(name, doc, recorded(name)) != ""
        except KeyError:  # a letter that no shape has
            return True

    missed = [doc for doc in wrong_docstrings(doc_of(name)) if not noticed(doc)]
    assert missed == []
