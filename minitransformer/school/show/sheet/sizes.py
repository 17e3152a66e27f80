"""An example in other sizes: its arrays are drawn anew, with the lengths that someone gives by the letters of the axes.

    q: (T_q, d_k)      with T_q=5 has 5 rows

The letters of an op are those of its declaration; its leading axes, `...`, are N, or N1, N2 and so on. Of a layer the
rows can change: T of its first input, T_k of its second. Its widths are in its parameters.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....check.verify.catalogue.case import Random, Setup
from ....core.layers import Module
from ..stepper.examples import Example

LARGEST = 16  # a longer sum is not one that a class reads
Axes = tuple[tuple[int, str], ...]  # of each axis a factor and a letter: 4 H


def sizes_of(example: Example) -> dict[str, int]:
    """The sizes that can be changed, by their letters."""
    setup = example.build(np.random.default_rng(0))
    return {} if example.upstream is not None else _lengths(setup)


def resized(example: Example, name: str, sizes: Mapping[str, int]) -> Example:
    """The example with other sizes. Raises ValueError that names the sizes it has, or those that are allowed."""
    has = sizes_of(example)
    told = ", ".join(f"{letter}={length}" for letter, length in has.items()) or "no size that can be changed"
    for letter, length in sizes.items():
        if letter not in has:
            raise ValueError(f"sheet: {name} has {told}; got {letter}={length}")
        if not 1 <= length <= LARGEST:
            raise ValueError(f"sheet: a size must be from 1 to {LARGEST}, got {letter}={length}")
    if not sizes:
        return example
    lengths = {letter: sizes.get(letter, length) for letter, length in has.items()}

    def build(rng: Random) -> Setup:
        setup = example.build(rng)
        inputs = tuple(_drawn(x, axes, lengths, rng) for x, axes in zip(setup.inputs, _axes(setup), strict=True))
        return dataclasses.replace(setup, inputs=inputs)

    title = f"{name}: {', '.join(f'{letter} = {length}' for letter, length in lengths.items())}"
    return dataclasses.replace(example, title=title, build=build, tokens=())


def _lengths(setup: Setup) -> dict[str, int]:
    found: dict[str, int] = {}
    for x, axes in zip(setup.inputs, _axes(setup), strict=True):
        for (factor, letter), length in zip(axes, np.shape(x) or (x,), strict=False):
            if letter:
                found.setdefault(letter, int(length) // factor)
    return found


def _axes(setup: Setup) -> list[Axes]:
    """For each input the letters of its axes; of a number that is a length, this letter alone."""
    declaration = getattr(setup.f, "declaration", None)
    if declaration is None:
        letters = ("T", "T_k") if isinstance(setup.f, Module) else ()
        return [((1, letters[i]),) if i < len(letters) and np.ndim(x) == 2 else () for i, x in enumerate(setup.inputs)]
    arrays = {array.name: array for array in (*declaration.floats, *declaration.integers)}
    single = dict(re.findall(r"(?:^|; )(\w+): (\w+)(?=;|$)", declaration.text))
    return [
        _letters(arrays[name].axes, np.ndim(x)) if name in arrays else ((1, single[name]),) if name in single else ()
        for name, x in zip(declaration.names, setup.inputs, strict=False)
    ]


def _letters(axes: tuple[str, ...], n_axes: int) -> Axes:
    n_leading = n_axes - len(axes) + 1
    leading = ["N"] if n_leading == 1 else [f"N{i + 1}" for i in range(n_leading)]
    written = [*leading, *axes[1:]] if axes[:1] == ("...",) else list(axes)
    parts = [re.fullmatch(r"(?:(\d+)[ ·])?(\w+)", axis) for axis in written]
    return tuple((int(part[1] or 1), part[2]) if part else (1, "") for part in parts)


def _drawn(x: Any, axes: Axes, lengths: Mapping[str, int], rng: Random) -> Any:
    """Numbers like those of the example, in the new shape."""
    if not any(letter in lengths for _, letter in axes):
        return x
    if np.ndim(x) == 0:
        return lengths[axes[0][1]]
    both = zip(axes, np.shape(x), strict=False)
    shape = tuple(factor * lengths[letter] if letter in lengths else length for (factor, letter), length in both)
    shape += np.shape(x)[len(axes) :]
    if x.dtype.kind == "i":  # ids or targets, which are below the size of what they choose from
        return rng.integers(0, lengths.get("V", int(x.max()) + 1), size=shape)
    numbers = rng.normal(size=shape).round(1)
    return abs(numbers) + 0.1 if (x > 0).all() else numbers
