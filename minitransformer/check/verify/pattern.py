"""In which pattern an array is wrong: a factor, a transpose, some rows, one head, the part above the diagonal.

The place often names the mistake: only the last rows are wrong where the last tile is dropped, only what lies above the
diagonal where a mask is forgotten, all entries by one factor where a scale is missing.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .report import Row

_LOOKED_AT = 256  # entries of a large array, each with two runs of f
_CLOSE = 1e-4
_WORDS = {-1: "column", -2: "row"}


def located(row: Row, hand: np.ndarray, upstream: np.ndarray, step: float, probe: Callable[..., np.ndarray]) -> Row:
    """A wrong row that was checked along directions, with its worst entry of some and the pattern of these.

    probe: from a displacement of the array to the output of f.
    """
    places = _grid(hand.shape)
    found = np.zeros([len(axis) for axis in places])
    for at in np.ndindex(found.shape):
        unit = np.zeros(hand.shape)
        unit[tuple(axis[i] for axis, i in zip(places, at, strict=True))] = step
        found[at] = float(np.vdot(upstream, probe(unit) - probe(-unit))) / (2.0 * step)
    by_hand = hand[np.ix_(*places)]
    error = abs(by_hand - found) / (1.0 + abs(found))
    if not np.isfinite(error).all() or error.max() <= _CLOSE:
        return row
    worst = np.unravel_index(int(error.argmax()), error.shape)
    where = tuple(int(axis[i]) for axis, i in zip(places, worst, strict=True))
    return replace(
        row,
        checked=f"{row.checked}, {found.size} entries",
        where=where,
        hand=float(by_hand[worst]),
        numerical=float(found[worst]),
        error=float(error[worst]),
        pattern=pattern(
            f"d{row.name}", by_hand, found, places, upstream[np.ix_(*places)] if upstream.shape == hand.shape else None
        ),
    )


def pattern(
    name: str,
    found: np.ndarray,
    right: np.ndarray,
    places: list[np.ndarray] | None = None,
    upstream: np.ndarray | None = None,
) -> str:
    """In a sentence, how an array differs from the right one; "" where no pattern shows. No shape may differ.

    places: the indices along each axis, if these are only some entries of a larger array. upstream: dL/dy at them.
    """
    if found.size < 2 or not (np.isfinite(found).all() and np.isfinite(right).all()):
        return ""
    largest = max(float(abs(right).max()), float(abs(found).max()))
    wrong: np.ndarray = np.asarray(abs(found - right) > _CLOSE * largest)
    if not wrong.any() or largest == 0.0:
        return ""
    if not found.any():
        return f"{name} is zero everywhere: nothing flows back."
    if not right.any():
        known = "a straight-through gradient, of what rounds, has no derivative to be compared with"
        return f"{name} should be zero everywhere: no small step changes the output; {known}."
    if said := _factor(name, found, right, largest):
        return said
    if found.ndim > 1 and found.shape[-1] == found.shape[-2] and _near(found, right.swapaxes(-1, -2), largest):
        return f"{name} is right but for a transpose of its last two axes."
    if upstream is not None and upstream.shape == found.shape and _near(right - found, upstream, largest):
        return f"{name} lacks the upstream gradient itself, as that of a residual connection."
    if not wrong.all():
        return _region(name, found, wrong, places or [np.arange(n) for n in found.shape])
    off = found - right
    if found.shape[-1] > 1 and _near(off, off.mean(axis=-1, keepdims=True), largest):
        return f"{name} is off by one number in each row: what is subtracted from a row, such as a mean, is wrong."
    for axis, word in _WORDS.items():
        if found.ndim >= -axis and found.shape[axis] > 2 and found.size > found.shape[axis]:
            others = tuple(i for i in range(found.ndim) if i != found.ndim + axis)
            squares = (right * right).sum(axis=others, keepdims=True)
            factor = (found * right).sum(axis=others, keepdims=True) / np.where(squares == 0.0, 1.0, squares)
            if _near(found, factor * right, largest):
                return f"{name} is off by a factor in each {word}, from {factor.min():.4g} to {factor.max():.4g}."
    return ""


def apart(name: str, found: np.ndarray, right: np.ndarray, meant: str = "expected") -> str:
    """How far two arrays are apart, where most, and in which pattern."""
    if found.shape != right.shape:
        return f"{name} has the shape {found.shape}; {meant}: {right.shape}."
    if not np.array_equal(np.isfinite(found), np.isfinite(right)):
        at = tuple(int(i) for i in np.argwhere(np.isfinite(found) != np.isfinite(right))[0])
        return f"{name}{_index(at)} is {found[at]:.6g}; {meant}: {right[at]:.6g}."
    off = np.where(np.isfinite(right), abs(found - np.where(np.isfinite(right), right, found)), 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    start = f"{name} is off by up to {off[at]:.3g}: {_index(at) or 'it'} is {found[at]:.6g}; {meant}: {right[at]:.6g}."
    return " ".join(filter(None, [start[:1].upper() + start[1:], pattern("It", found, right)]))


def _factor(name: str, found: np.ndarray, right: np.ndarray, largest: float) -> str:
    """Whether every entry is off by one factor."""
    square = float((right * right).sum())
    factor = float((found * right).sum()) / square if square else 0.0
    if not factor or not _near(found, factor * right, largest):
        return ""
    if math.isclose(factor, -1.0, rel_tol=_CLOSE):
        return f"{name} is the right one with the wrong sign."
    return f"{name} is {factor:.4g} times the right one."


def _near(one: np.ndarray, other: np.ndarray, largest: float) -> bool:
    return bool((abs(one - other) <= _CLOSE * largest).all())


def _region(name: str, found: np.ndarray, wrong: np.ndarray, places: list[np.ndarray]) -> str:
    """Where an array is wrong that is right elsewhere."""
    zero = ", where it is zero" if not found[wrong].any() else ""
    if wrong.ndim > 1 and min(wrong.shape[-2:]) > 2:
        rows, columns = np.ix_(places[-2], places[-1])
        for side, where in (("above", columns > rows), ("below", columns < rows), ("on", columns == rows)):
            if (wrong == np.broadcast_to(where, wrong.shape)).all():
                return f"{name} is wrong only {side} the diagonal{zero}."
    said, index = [], []
    axes = range(wrong.ndim)
    hits = [np.asarray(wrong.any(axis=tuple(i for i in axes if i != axis))) for axis in axes]
    for axis, hit in enumerate(hits):
        kept = places[axis][hit]
        index.append(":" if hit.all() else _span(kept))
        if not hit.all():
            word = _WORDS.get(axis - wrong.ndim, f"index of axis {axis}")
            last = " (the last)" if hit[-1] and hit[hit.argmax() :].all() and not hit[0] else ""
            said.append(f"{_told(word, kept)}{last}")
    if not said:
        few = 2 * wrong.sum() < wrong.size
        return f"{name} is wrong in {wrong.sum()} of the {wrong.size} entries looked at{zero}." if few else ""
    size = math.prod(int(hit.sum()) for hit in hits)
    part = "" if wrong.sum() == size else f", in {int(wrong.sum())} of the {size} entries there"
    return f"{name} is wrong only in {', '.join(said)}{part}{zero}: [{', '.join(index)}]."


def _told(word: str, kept: np.ndarray) -> str:
    if len(kept) == 1:
        return f"{word} {kept[0]}"
    plural = word.replace("index", "indices") if "index" in word else f"{word}s"
    together = (np.diff(kept) == 1).all()
    return f"{plural} {kept[0]} to {kept[-1]}" if together else f"{plural} {', '.join(map(str, kept))}"


def _span(kept: np.ndarray) -> str:
    """Indices as Python writes them: 3, 3:6 or [0, 2, 5]."""
    if len(kept) == 1:
        return str(kept[0])
    together = (np.diff(kept) == 1).all()
    return f"{kept[0]}:{kept[-1] + 1}" if together else str([int(i) for i in kept])


def _index(at: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, at)) + "]" if at else ""


def _grid(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Indices along each axis, evenly spread, the first and the last among them: few enough together."""
    sizes = list(shape)
    while math.prod(sizes) > _LOOKED_AT:
        longest = sizes.index(max(sizes))
        sizes[longest] -= 1
    return [np.unique(np.linspace(0, n - 1, m).round().astype(int)) for n, m in zip(shape, sizes, strict=True)]
