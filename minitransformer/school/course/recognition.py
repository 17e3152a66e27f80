"""What a wrong answer is, where no known mistake of the exercise explains it: the right one, changed in one thing.

Tried are, in this order: inputs in another order; the solution with one change in it (`altered.py`); inputs and outputs
whose entries are arranged in another way; and a formula of the right output and another array. What is said must give
the student's numbers in every trial.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from .altered import Change, altered
from .comparison import Compared
from .formulas import combined, related

_PAIRS = 60  # changes of a solution; with more, two at once are not tried
_ONE = "One change in the solution gives these numbers:"
_TWO = "Two changes in the solution give these numbers:"
Outputs = Callable[[int], list[Any]]  # from the number of a trial
Candidate = tuple[str, Outputs]  # what it is, in words
What = TypeVar("What")


def recognised(compared: Compared, wrong: list[int], twice: bool = False) -> dict[int, str]:
    """For each of these outputs that one thing explains, or with `twice` two changes: a sentence that says which.

    An output is left out that is wrong only in the last trial, or where it is one number or not finite: that has many
    causes.
    """
    everything, wrong = set(range(len(compared.got))), [i for i in wrong if _tells(compared, i)]
    said: dict[int, str] = {}

    def look(candidates: Iterator[Candidate], for_all: bool = False) -> None:
        left = {i for i in wrong if i not in said}
        found = _sentences(best(compared, everything if for_all else left, candidates)) if left else {}
        if not for_all or found.keys() == everything:
            said.update(found)

    if twice:
        look(_changed_twice(compared))
    else:
        look(_exchanged(compared), for_all=True)
        look(_changed(compared))
        look(_changed_together(compared, set(said.values())))
        look(_arranged(compared))
        for i in [i for i in wrong if i not in said]:
            said |= _sentences(best(compared, {i}, _followed(compared, i)))
    for i in wrong:
        if i not in said and (formula := (combined if twice else related)(compared, i)):
            said[i] = formula
    return said


def _tells(compared: Compared, i: int) -> bool:
    sizes = [right.size for right in compared.expected[i]]
    return any(
        j != compared.last and compared.finite(i, j) and (sizes[j] > 1 or max(sizes) == 1) for j in compared.places(i)
    )


def best(
    compared: Compared, left: set[int], candidates: Iterator[tuple[What, Outputs]]
) -> dict[int, tuple[What, bool]]:
    """By output: the candidate that explains most of these outputs and contradicts fewest of the others, and whether it
    holds in the last trial, too, whose numbers are extreme. One that does goes before one that does not.
    """
    found = []
    first = min((compared.places(i)[0] for i in left if compared.places(i)), default=0)
    usual = [first, *(j for j in range(compared.last) if j != first)]
    for what, outputs in candidates if left else ():
        alike = set(range(len(compared.got)))
        for trial in usual:
            alike &= _alike(compared, trial, outputs)
            if not alike & left:
                break
        if explained := alike & left:
            everywhere = explained & _alike(compared, compared.last, outputs)
            found.append((len(everywhere), len(alike), everywhere, (what, True)))
            if first != compared.last:
                found.append((0, len(alike), explained, (what, False)))
    chosen: dict[int, tuple[What, bool]] = {}
    for _, _, explained, told in sorted(found, key=lambda one: one[:2], reverse=True):
        for i in explained:
            chosen.setdefault(i, told)
    return chosen


def _sentences(found: dict[int, tuple[str, bool]]) -> dict[int, str]:
    return {
        i: said if holds else f"For all inputs but the last: {said[:1].lower()}{said[1:]}"
        for i, (said, holds) in found.items()
    }


def _alike(compared: Compared, trial: int, outputs: Outputs) -> set[int]:
    """The outputs that these are in a trial."""
    try:
        return {i for i, value in enumerate(outputs(trial)) if compared.alike(i, trial, value)}
    except Exception:  # many changes fail on some shapes
        return set()


def _exchanged(compared: Compared) -> Iterator[Candidate]:
    """Inputs in another order: two exchanged, or one moved to another place."""
    names, n = compared.exercise.arguments, len(compared.exercise.arguments)
    said: dict[tuple[int, ...], str] = {}
    for a, b in itertools.combinations(range(n), 2):
        order = tuple(b if j == a else a if j == b else j for j in range(n))
        said[order] = f"with {names[a]} and {names[b]} exchanged"
    for a, b in itertools.permutations(range(n), 2):
        rest = [j for j in range(n) if j != a]
        order = (*rest[:b], a, *rest[b:])
        said.setdefault(order, f"for the arguments in the order {', '.join(names[j] for j in order)}")
    for order, how in said.items():

        def outputs(trial: int, order: tuple[int, ...] = order) -> list[Any]:
            inputs: list[Any] = list(compared.trials[trial])
            for place, j in enumerate(order):  # the student's argument `j` is the exercise's at that place
                inputs[j] = compared.trials[trial][place]
            return altered(compared.exercise).run({}, tuple(inputs))

        yield f"It is right {how}: the order is {', '.join(names)}.", outputs


def _changed(compared: Compared) -> Iterator[Candidate]:
    for change in altered(compared.exercise).changes:
        yield f"{_ONE} {change.said}.", _with(compared, change)


def _changed_together(compared: Compared, said: set[str]) -> Iterator[Candidate]:
    """The changes that were found in several outputs, for one in which all of them are."""
    found = [change for change in altered(compared.exercise).changes if f"{_ONE} {change.said}." in said]
    for one, other in itertools.combinations(found, 2):
        both = Change(f"{one.said}; and {other.said}", one.at | other.at)
        yield f"{_TWO} {both.said}.", _with(compared, both)


def _followed(compared: Compared, i: int) -> Iterator[Candidate]:
    """Output i, computed as the solution does from other outputs as they were returned."""
    names = compared.exercise.outputs
    others = [j for j in range(len(names)) if j != i and compared.places(j)]
    for count in (1, 2):
        for chosen in itertools.combinations(others, count):

            def outputs(trial: int, chosen: tuple[int, ...] = chosen) -> list[Any]:
                given = {names[j]: compared.got[j][trial] for j in chosen}
                return altered(compared.exercise).run({}, compared.trials[trial], given)

            them = " and ".join(names[j] for j in chosen)
            yield f"It follows from your {them}, and is right but for what is wrong there.", outputs


def _changed_twice(compared: Compared) -> Iterator[Candidate]:
    likely = [change for change in altered(compared.exercise).changes if change.likely]
    several = all(right.size > 1 for right in compared.expected[0][:-2])  # of one number there are too few to tell
    for one, other in itertools.combinations(likely, 2) if several and len(likely) <= _PAIRS else ():
        if not one.at.keys() & other.at.keys():
            said = f"{one.said}; and {other.said}" if one.said != other.said else f"{one.said}, in two places"
            yield f"{_TWO} {said}.", _with(compared, Change(said, one.at | other.at))


def _with(compared: Compared, change: Change) -> Outputs:
    return lambda trial: altered(compared.exercise).run(change.at, compared.trials[trial])


def _arranged(compared: Compared) -> Iterator[Candidate]:
    """Inputs, outputs or both with their entries in another arrangement."""
    for (said, there, back), where in itertools.product(_ARRANGEMENTS, ("inputs", "outputs", "inputs and outputs")):

        def outputs(trial: int, there: Any = there, back: Any = back, where: str = where) -> list[Any]:
            inputs = compared.trials[trial]
            if "inputs" in where:
                inputs = tuple(there(x) if _arranges(x) else x for x in inputs)
            values = altered(compared.exercise).run({}, inputs)
            return [back(x) if "outputs" in where and _arranges(x) else x for x in values]

        yield f"It is right if the {where} are arranged in another way: {said}.", outputs


def _arranges(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim > 1 and x.dtype.kind == "f"


def _to_neighbours(x: np.ndarray) -> np.ndarray:
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)


def _to_halves(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)


def _backwards(x: np.ndarray) -> np.ndarray:
    return x[::-1]


_ARRANGEMENTS = (
    ("neighbours form a pair, where a number of the first half and one of the second do", _to_halves, _to_neighbours),
    ("a number of the first half and one of the second form a pair, where neighbours do", _to_neighbours, _to_halves),
    ("the first axis runs backwards", _backwards, _backwards),
)
