"""What explains the results of a function: one known mistake, several, or one that only the output shows."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..verify import arguments as given
from ..verify.mistakes import MISTAKES, Mistake
from ..verify.mistakes.mistake import forget_kept_results
from ..verify.pattern import apart
from .by_design import without_empty_rows
from .readings import Reading
from .results import OUTPUT, SINGLE_INSIDE, Comparison, Op, Results, Trial


class Candidate:
    """One reading of the call, the results of the right op in it, and how far from f they are."""

    def __init__(self, f: Op, op: Op, reading: Reading | None, trials: list[Trial], whole: bool = True) -> None:
        self.f, self.reading, self.trials = f, reading, trials
        self.right = [trial.of_op(self.around(op), _always if whole else trial.fits) for trial in trials]
        self.fits = all(trial.fits(y) for trial, y in zip(trials, self.right, strict=True))
        pairs = list(zip(trials, self.right, strict=True))
        found = [
            without_empty_rows(f, given.name_of(op), trial.found, y) if trial.fits(y) else trial.found
            for trial, y in pairs
        ]
        self.by_design = any(one is not trial.found for one, trial in zip(found, trials, strict=True))
        self.comparisons = [Comparison(one, y, f) for one, y in zip(found, self.right, strict=True)]
        far = {name for one in self.comparisons for name in one.differing() if one.farthest(name) >= SINGLE_INSIDE}
        self.differing = tuple(
            dict.fromkeys(name for one in self.comparisons for name in one.differing() if name in far)
        )

    def around(self, op: Op) -> Op:
        """The op as f is called."""
        return op if self.reading is None else self.reading.around(op)

    @property
    def conventions(self) -> tuple[str, ...]:
        """The conventions of its reading."""
        return () if self.reading is None else self.reading.told

    @property
    def distance(self) -> float:
        """That of the result that is farthest off."""
        return max(one.distance(name, one.right) for one in self.comparisons for name in {**one.right, **one.found})

    @property
    def gap(self) -> float:
        """How far the output is off."""
        return max(one.distance(OUTPUT, one.right) for one in self.comparisons)


def _always(results: Results) -> bool:
    return True


def singles(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """The mistakes that explain all results."""
    return [mistake for mistake in known if _explains(mistake, candidate, way)]


def _explains(mistake: Mistake, candidate: Candidate, way: Op) -> bool:
    for trial, comparison in zip(candidate.trials, candidate.comparisons, strict=True):
        results = _mistaken(mistake, candidate, way, trial, comparison.output_explained)
        if not comparison.explained(results):
            return False
    return True


def parts(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """Mistakes of which each explains some of the wrong gradients, and all together explain all of them."""
    if OUTPUT in candidate.differing:
        return []
    left = {(i, name) for i, one in enumerate(candidate.comparisons) for name in one.found if not one.alike(name)}
    parts: list[tuple[set[tuple[int, str]], Mistake]] = []
    for mistake in known:
        part: set[tuple[int, str]] = set()
        for i, (trial, comparison) in enumerate(zip(candidate.trials, candidate.comparisons, strict=True)):
            results = _mistaken(mistake, candidate, way, trial, comparison.alike_output)
            changed = {
                name
                for name in comparison.right
                if Comparison(results, comparison.right, way).distance(name, comparison.right) > comparison.tolerance
            }
            if results.keys() != comparison.found.keys() or not all(
                comparison.explained_by(results, name) for name in changed
            ):
                part = set()
                break
            part |= {(i, name) for name in changed}
        if part and part <= left:
            parts.append((part, mistake))
    found: list[Mistake] = []
    for part, mistake in sorted(parts, key=lambda one: -len(one[0])):
        if part <= left:
            left -= part
            found.append(mistake)
    return [] if left else found


def of_output(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """The mistakes that explain the output."""
    if OUTPUT not in candidate.differing:
        return []
    pairs = list(zip(candidate.trials, candidate.comparisons, strict=True))
    return [
        mistake
        for mistake in known
        if all(
            one.explained_by(_mistaken(mistake, candidate, way, trial, lambda y: False), OUTPUT) for trial, one in pairs
        )
    ]


def _mistaken(
    mistake: Mistake, candidate: Candidate, way: Op, trial: Trial, only_if: Callable[[Results], bool]
) -> Results:
    """The results of the op with the mistake; none if it cannot be computed, as some where sizes differ."""
    with mistake.applied():
        try:
            return trial.of_op(candidate.around(way), only_if)
        except Exception:
            return {}


def gap(candidate: Candidate) -> str:
    """By how much the output is off, and in which pattern."""
    worst = max(candidate.comparisons, key=lambda one: one.distance(OUTPUT, one.right))
    return apart(OUTPUT, worst.found[OUTPUT], worst.right[OUTPUT])


def exchanged(candidate: Candidate) -> str:
    """Whether the wrong gradients are the right ones of each other."""
    comparison = candidate.comparisons[0]
    wrong = [name for name in candidate.differing if isinstance(comparison.found.get(name), np.ndarray)]
    exchanged = {
        one
        for one, other in itertools.permutations(wrong, 2)
        if comparison.distance(one, {one: comparison.right.get(other)}) <= comparison.tolerance
    }
    if len(exchanged) == len(wrong) > 1 and OUTPUT not in wrong:
        return f"{' and '.join(wrong)} are right, but exchanged: each is returned in the place of the other."
    return ""


def reachable(op: Callable[..., Any], trials: list[Trial]) -> list[Mistake]:
    """The known mistakes in what the op calls, those in the op itself first."""
    called: dict[types.CodeType, None] = {}

    def note(frame: types.FrameType, event: str, arg: Any) -> None:
        called.setdefault(frame.f_code)

    forget_kept_results()  # or a kept result would hide a call
    before = sys.gettrace()
    sys.settrace(note)
    try:
        for trial in trials:
            trial.of_op(op)
    finally:
        sys.settrace(before)
    order = {code: i for i, code in enumerate(called)}
    files = {code.co_filename for code in order}
    found = [mistake for mistake in MISTAKES.values() if any(file.startswith(mistake.file) for file in files)]
    found = [mistake for mistake in found if mistake.function.__code__ in order]
    return sorted(found, key=lambda mistake: order[mistake.function.__code__])


def fails(f: Callable[..., Any], trial: Trial) -> bool:
    """Whether f raises an error on these arguments."""
    try:
        trial.of_op(f)
    except Exception:
        return True
    return False
