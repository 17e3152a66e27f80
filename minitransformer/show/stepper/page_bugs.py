"""What a mistake changes: the same call recorded once more, with a wrong variant of the code, and which numbers differ.

Only the differing numbers go into the page, and the lines that read differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...course.mistakes import MISTAKES, Mistake
from .page_data import Table, is_expandable, line_of, listing, plain, written_out
from .recording import Bound, Recording, Step

# Softmax without its sum, the scale 1/√d_k left out in three places, a transpose that is missing or done by a reshape,
# and LayerNorm without each and both of its mean terms.
BUGS = (
    "softmax-no-sum",
    "attention-not-scaled",
    "attention-dq-not-scaled",
    "attention-dk-not-scaled",
    "attention-dk-not-transposed",
    "attention-dk-reshaped",
    "attention-dv-not-transposed",
    "layer-norm-no-shift",
    "layer-norm-no-stretch",
    "layer-norm-statistics-constant",
)
NUMBERS = 40_000  # of a recording with more numbers than this no mistakes are shown unless they are asked for
TOLERANCE = 1e-9  # of the difference, relative to 1 + |right|: below it two numbers differ by rounding alone


def bugs_data(recording: Recording, names: Iterable[str] | None, data: dict[str, Any]) -> list[dict[str, Any]]:
    """For each mistake that changes a number: its sentence, the numbers it changes, and the lines that differ.

    names: those of verify.wrong_variants.MISTAKES; None for the usual ones, where the recording is small. Raises
    ValueError for an unknown name, and where the call, run again, gives other numbers: its arrays have changed.
    """
    if names is None:
        numbers = sum(
            bound.value.array.size for s in recording.steps for bound in s.bound if bound.value.array is not None
        )
        names = BUGS if recording.again is not None and numbers <= NUMBERS else ()
    chosen = [_variant(name) for name in names]
    called = {call.label.partition("#")[0] for call in recording.calls}
    chosen = [variant for variant in chosen if _label(variant) in called]
    if not chosen:
        return []
    if recording.again is None:
        raise ValueError("to_html: only a recording made by step() can show mistakes; pass bugs=()")
    if _differences(recording, _by_key(recording.again())):
        raise ValueError(
            "to_html: run again, the recorded call gives other numbers; make the page before changing arrays"
        )
    found = (_bug(recording, variant, data) for variant in chosen)
    return [bug for bug in found if bug is not None]


def _variant(name: str) -> Mistake:
    if name not in MISTAKES:
        raise ValueError(f"to_html: unknown mistake {name!r}; see minitransformer.verify.wrong_variants.MISTAKES")
    return MISTAKES[name]


def _label(variant: Mistake) -> str:
    """How the recording calls the variant's target: "softmax", "LayerNorm", "Residual._pre"."""
    return variant.target.partition(":")[2].removesuffix(".__call__")


def _bug(recording: Recording, variant: Mistake, data: dict[str, Any]) -> dict[str, Any] | None:
    out = {"name": variant.name, "mistake": variant.sentence, "by": variant.caught_by}
    assert recording.again is not None
    try:
        with variant.applied():
            wrong = recording.again()
    except (ValueError, TypeError) as error:  # shapes that do not fit: the mistake cannot go unnoticed here
        return out | {"refused": str(error).split("\n")[0]}
    others = _by_key(wrong)
    numbers = _differences(recording, others)
    if not numbers:
        return None
    lines, origins = _changed(recording, wrong, others, data)
    changes = Table(data["changes"])  # one array often has several names
    places = [[step, name, changes.add([cells, changed])] for step, name, cells, changed in numbers]
    return out | {"numbers": places, "lines": lines, "from": origins, "sources": _sources(wrong, data)}


Key = tuple[str, int]  # a title, and the how manieth time it is bound


def _by_key(recording: Recording) -> dict[Key, tuple[Step, Bound]]:
    times: dict[str, int] = {}
    found = {}
    for step in recording.steps:
        for bound in step.bound:
            times[bound.title] = times.get(bound.title, 0) + 1
            found[bound.title, times[bound.title]] = (step, bound)
    return found


def _differences(recording: Recording, others: dict[Key, tuple[Step, Bound]]) -> list[list[Any]]:
    """[step, which of its names, the flat indices of the cells that differ (None for all), their numbers] for each."""
    found = []
    for key, (step, bound) in _by_key(recording).items():
        if key not in others or bound.value.array is None or bound.value.array.dtype.kind != "f":
            continue
        right, wrong = bound.value.array, others[key][1].value.array
        if wrong is None or wrong.shape != right.shape:
            continue
        cells = np.flatnonzero(differ(right, wrong))
        if cells.size:
            places = None if cells.size == right.size else cells.tolist()
            found.append([step.index, step.bound.index(bound), places, plain(wrong.ravel()[cells])])
    return found


def differ(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Where two arrays hold different numbers, rounding aside."""
    with np.errstate(invalid="ignore"):
        near = np.abs(wrong - right) <= TOLERANCE * (1.0 + np.abs(right))
    return ~(near | (wrong == right) | (np.isnan(wrong) & np.isnan(right)))


def _changed(
    recording: Recording, wrong: Recording, others: dict[Key, tuple[Step, Bound]], data: dict[str, Any]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """[step, line] for the steps whose line reads differently with the mistake, or stands elsewhere in the file; and
    [step, which of its names, where its numbers come from] for those that read differently.
    """
    lines, terms = Table(data["lines"]), Table(data["terms"])
    right = _by_key(recording)
    numbers = {bound.serial: i for i, bound in enumerate(bound for step in recording.steps for bound in step.bound)}
    number_of = {others[key][1].serial: numbers[bound.serial] for key, (_, bound) in right.items() if key in others}
    changed: dict[int, int] = {}
    origins = []
    for key, (step, bound) in right.items():
        other, there = others.get(key, (step, bound))
        if (other.source, other.line) != (step.source, step.line):
            line = line_of(wrong, other) | {"wrong": other.source != step.source}
            changed[step.index] = lines.add(line)
            if (
                line["wrong"]
                and is_expandable(there)
                and bound.value.array is not None
                and bound.value.array.size <= 64
            ):
                origin = written_out(wrong, other, there, number_of, terms)
                origins.append([step.index, step.bound.index(bound), origin])
    return [[index, line] for index, line in changed.items()], origins


def _sources(wrong: Recording, data: dict[str, Any]) -> dict[str, int]:
    """By label, the code of the calls that have the mistake in them."""
    table = Table(data["sources"])
    right = {call["label"]: call["source"] for call in data["calls"]}
    found = {}
    for call in wrong.calls:
        forward = wrong.calls[call.forward_call]
        place = table.add({"first": forward.first_line, "lines": listing(forward.source)})
        if call.label in right and right[call.label] != place:
            found[call.label] = place
    return found
