"""What a mistake changes: record the same call once more, with the mistake in the code, and find the different numbers.

The page offers the known mistakes in every function that the recording shows. It holds only the numbers and the lines
that differ.
"""

import inspect
import itertools
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ....check.trace.calls import Binding
from ....check.verify.gradients import Progress
from ....check.verify.mistakes import MISTAKES, Mistake
from ..page import packed
from .mathml import as_lists
from .page_data import Table, code_of, is_expandable, is_frozen, line_of, written_out
from .pairing import paired_calls, partners
from .paper import inlined
from .steps import Step, Steps

NUMBERS = 40_000  # a recording with more numbers than this has no mistakes unless they are asked for
MOST = 48  # mistakes that a page offers, unless they are asked for: a longer menu is not read
ROOM = 500_000  # limit for the number of mistakes times the numbers of the recording
TOLERANCE = 1e-9  # relative to 1 + |right|: two numbers that differ by less differ by rounding alone

# What most people get wrong first, in this order.
CLASSICS = """
attention-not-scaled attention-mask-after-softmax attention-scaled-after-softmax attention-dk-not-transposed
attention-dv-reshaped attention-dq-not-scaled attention-no-softmax-in-backward softmax-no-sum softmax-diagonal-only
linear-weight-reshaped linear-dbias-mean layer-norm-statistics-constant cross-entropy-not-divided
multi-head-dx-from-query-only post-norm-identity-dropped pre-norm-identity-dropped embedding-repeated-tokens-lost
""".split()

Partners = dict[int, tuple[Step, Binding]]  # by the serial of a binding in the right code: its partner in the wrong


def bugs_data(
    recording: Steps, names: Iterable[str] | None, data: dict[str, Any], progress: Progress
) -> list[dict[str, Any]]:
    """For each mistake: its sentence, the numbers it changes, and the lines that differ; or why it changes none.

    names: names in verify.mistakes.MISTAKES; None for all that fit, if the recording is small. Raises ValueError for an
    unknown name, and if the call gives other numbers when run again because its arrays have changed.
    """
    chosen = [mistake for mistakes in _made_in(recording).values() for mistake in mistakes]
    if names is None:
        chosen = _fitting(recording, chosen) if recording.again is not None else []
    else:
        wanted = set(names)
        if unknown := sorted(wanted - MISTAKES.keys()):
            known = "minitransformer.check.verify.mistakes.MISTAKES"
            raise ValueError(f"to_html: unknown mistake {unknown[0]!r}; see {known}")
        chosen = [mistake for mistake in chosen if mistake.name in wanted]
    if not chosen:
        return []
    if recording.again is None:
        raise ValueError("to_html: only a recording made by step() can show mistakes; pass bugs=()")
    page = _Page(recording, data)
    if page.differences(partners(recording, recording.again())):
        raise ValueError(
            "to_html: the recorded call gives other numbers when run again; make the page before changing its arrays"
        )
    return [page.bug(mistake) for mistake in progress(chosen)]


def _made_in(recording: Steps) -> dict[str, list[Mistake]]:
    """The mistakes in each function that was called, by target, in the order of the first calls."""
    first = {call.code: call.index for call in reversed(recording.calls)}
    targets: dict[str, list[Mistake]] = {}
    for mistake in MISTAKES.values():
        targets.setdefault(mistake.target, []).append(mistake)
    called = {target: first[code] for target in targets if (code := _running_code(target)) in first}
    return {target: targets[target] for target in sorted(called, key=called.__getitem__)}


def _running_code(target: str) -> Any:
    """The code of "core.ops.softmax:softmax", a function or a method of the package; None where it is not loaded."""
    name, _, path = target.partition(":")
    module = sys.modules.get(f"minitransformer.{name}")
    return None if module is None else inspect.unwrap(operator.attrgetter(path)(module)).__code__


def _fitting(recording: Steps, mistakes: Sequence[Mistake]) -> list[Mistake]:
    """As many mistakes as there is room for, the classics first, then in turns from all functions; in their order."""
    arrays = [bound.value.array for step in recording.steps for bound in step.bound if bound.value.array is not None]
    numbers = sum(array.size for array in arrays)
    if numbers > NUMBERS:
        return []
    by_target = [list(group) for _, group in itertools.groupby(mistakes, lambda mistake: mistake.target)]
    in_turns = [m for round_ in itertools.zip_longest(*by_target) for m in round_ if m is not None]
    in_turns.sort(key=lambda mistake: mistake.name not in CLASSICS)
    kept = {mistake.name for mistake in in_turns[: min(MOST, ROOM // max(numbers, 1))]}
    return [mistake for mistake in mistakes if mistake.name in kept]


def differ(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Where two arrays hold different numbers, rounding aside."""
    with np.errstate(invalid="ignore"):
        near = np.isfinite(right) & (np.abs(wrong - right) <= TOLERANCE * (1.0 + np.abs(right)))
    return ~(near | (wrong == right) | (np.isnan(wrong) & np.isnan(right)))


class _Page:
    """The page of the right code; each mistake adds its new entries to the page's tables."""

    def __init__(self, recording: Steps, data: dict[str, Any]) -> None:
        self.recording = recording
        self.lines, self.terms, self.changes, self.sources = (
            Table(data[name]) for name in ("lines", "terms", "changes", "sources")
        )
        inside = {step.index: inlined(recording, step) for step in recording.steps}
        self.inside = {index: as_lists(formula) for index, formula in inside.items() if formula is not None}
        self.source_by_label = {call["label"]: call["source"] for call in data["calls"]}

    def bug(self, mistake: Mistake) -> dict[str, Any]:
        """The mistake as data for the page. refused: what it raises. numbers: those it changes, or []."""
        name = mistake.target.partition(":")[2].removesuffix(".__call__")
        out: dict[str, Any] = {"name": mistake.name, "in": name, "mistake": mistake.sentence, "by": mistake.caught_by}
        if mistake.name in CLASSICS:
            out["classic"] = CLASSICS.index(mistake.name)
        assert self.recording.again is not None
        try:
            with mistake.applied(), np.errstate(all="ignore"):
                wrong = self.recording.again()
        except Exception as error:  # such as shapes that do not fit: nobody can miss this mistake here
            return out | {"refused": str(error).split("\n")[0]}
        others = partners(self.recording, wrong)
        numbers = [
            [step, name, self.changes.add([cells, packed(changed, "<f8")])]  # one array often has several names
            for step, name, cells, changed in self.differences(others)
        ]
        if not numbers:
            return out | {"numbers": []}
        lines, origins = self._changed(wrong, others)
        return out | {"numbers": numbers, "lines": lines, "from": origins, "sources": dict(self._sources(wrong))}

    def differences(self, others: Partners) -> list[tuple[int, int, list[int] | None, np.ndarray]]:
        """(step, which of its names, the flat indices of the cells that differ, or None for all, their numbers)."""
        found = []
        for step, bound in self.recording.bindings:
            right, wrong = bound.value.array, others[bound.serial][1].value.array if bound.serial in others else None
            if right is None or wrong is None or wrong.shape != right.shape:
                continue
            right, wrong = right.astype(np.float64), wrong.astype(np.float64)  # a mask or ids may differ, too
            cells = np.flatnonzero(differ(right, wrong))
            if cells.size:
                places = None if cells.size == right.size else cells.tolist()
                found.append((step.index, step.bound.index(bound), places, wrong.ravel()[cells]))
        return found

    def _changed(self, wrong: Steps, others: Partners) -> tuple[list[list[Any]], list[list[Any]]]:
        """[step, line] for each step whose line has another text, another place in the file or another formula; and for
        those with another text, [step, which of its names, where its numbers come from].
        """
        number_of = {there.serial: self.recording.number_of[serial] for serial, (_, there) in others.items()}
        changed: dict[int, int] = {}
        origins = []
        edited = {
            self.recording.calls[step.call].backward
            for step, bound in self.recording.bindings
            if bound.serial in others and others[bound.serial][0].source != step.source
        }
        for step, bound in self.recording.bindings:
            if bound.serial not in others:
                continue
            other, there = others[bound.serial]
            inside = inlined(wrong, other) if step.index in self.inside else None
            moved = inside is not None and as_lists(inside) != self.inside[step.index]  # the mistake is in a pullback
            if (other.source, other.line) == (step.source, step.line) and not moved:
                continue
            # A pullback that only follows a mistake in forward has another formula, too, but is not where it is.
            line = line_of(wrong, other) | {"wrong": other.source != step.source or (moved and edited != {False})}
            changed[step.index] = self.lines.add(line)
            few = bound.value.array is not None and bound.value.array.size <= 64
            if line["wrong"] and few and there in other.bound and is_expandable(there):
                origin = written_out(wrong, other, there, number_of, self.terms)
                if "terms" in origin and is_frozen(wrong, other, there, number_of):
                    origin["frozen"] = True
                origins.append([step.index, step.bound.index(bound), origin])
        return [[index, line] for index, line in changed.items()], origins

    def _sources(self, wrong: Steps) -> Iterator[tuple[str, int]]:
        """The label and the code of each call that has the mistake in it."""
        for call, other in paired_calls(self.recording, wrong):
            code = code_of(wrong.calls[other.forward_call])
            if self.sources.items[self.source_by_label[call.label]] != code:
                yield call.label, self.sources.add(code)
