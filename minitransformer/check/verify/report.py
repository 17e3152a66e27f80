"""What a gradient check found: a row for each input, parameter and intermediate."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays.boundary import check_flags

HIDDEN = "rounding hides it: shift f towards 0, scale its inputs or its output, or compute in float64"


class Entries(NamedTuple):
    """An array and its gradient, by hand and by finite differences, all of one shape."""

    value: np.ndarray
    by_hand: np.ndarray
    numerical: np.ndarray


@dataclass(frozen=True)
class Row:
    """The check of one array: its worst entry (or direction) with the hand-derived and the numerical derivative.

    error = |hand - numerical| / (1 + |numerical|); infinite for any other problem, such as a wrong shape.
    kinks: how many entries lie at a kink of f, where any slope between those of the two sides is right.
    hidden: how many entries are so small compared with the rounding of f that differences cannot check them. If these
    leave open whether the gradient is right, it cannot be seen: the row is not ok, and not wrong either.
    """

    name: str
    kind: str  # "input", "parameter" or "intermediate"; "output" where the value is wrong, not a gradient
    shape: tuple[int, ...]
    checked: str = ""  # "12 entries" or "4 directions"
    where: tuple[int, ...] | None = None
    hand: float = 0.0
    numerical: float = 0.0
    error: float = 0.0
    ok: bool = True
    kinks: int = 0
    hidden: int = 0
    problem: str = ""
    pattern: str = ""  # in a sentence, where and how a wrong gradient differs: see pattern.py
    full: Entries | None = field(default=None, repr=False, compare=False)

    @property
    def is_hidden(self) -> bool:
        """Whether rounding leaves open if the gradient is right."""
        return not self.ok and self.problem == HIDDEN

    @property
    def is_wrong(self) -> bool:
        """Whether the gradient is known to be wrong."""
        return not self.ok and not self.is_hidden

    @property
    def verdict(self) -> str:
        """In a word: "ok", "WRONG" or "CANNOT BE SEEN"."""
        return "ok" if self.ok else "WRONG" if self.is_wrong else "CANNOT BE SEEN"

    def wrong(self, problem: str, **others: Any) -> Row:
        """The row, wrong for another reason than its numbers."""
        return replace(self, ok=False, error=math.inf, problem=problem, **others)

    def entries(self) -> Entries:
        """The whole array and both its gradients. Raises ValueError if it was checked along directions only."""
        if self.full is None:
            raise ValueError(f"{self.name} was not checked entry by entry; raise `entrywise` above its size")
        return self.full

    def as_dict(self) -> dict[str, Any]:
        """The row as a dict for JSON."""
        return {name: _in_json(x) for name, x in vars(self).items() if name != "full"}

    def cells(self) -> list[str]:
        """The row as a table shows it."""
        verdict = (self.problem or "ok") if self.ok else ": ".join(filter(None, [self.verdict, self.problem]))
        if self.kinks:
            verdict += f" ({self.kinks} at a kink)"
        if self.hidden and not self.problem:
            verdict += f" ({self.hidden} hidden by rounding)"
        place = "" if self.where is None else "[" + ", ".join(map(str, self.where)) + "]"
        numbers = [f"{self.hand:.8g}", f"{self.numerical:.8g}", f"{self.error:.1e}"] if self.checked else ["", "", ""]
        return [self.name, self.kind, str(self.shape), self.checked, place, *numbers, verdict]


def _in_json(x: Any) -> Any:
    """x in a form that JSON can hold: a list for a tuple, None for NaN and infinity."""
    if isinstance(x, tuple):
        return list(x)
    return None if isinstance(x, float) and not math.isfinite(x) else x


_HEADINGS = ["name", "kind", "shape", "checked", "worst at", "by hand", "numerically", "error", ""]


@dataclass(frozen=True)
class Report:
    """The outcome of `verify.gradients`: `.ok`, `.max_error`, rows by name, a table by `str()` and in a notebook."""

    name: str
    rows: tuple[Row, ...] = field(default_factory=tuple)
    note: str = ""  # what the check cannot see
    left_out: tuple[tuple[str, str], ...] = ()  # (what has no row, although f uses it; why)
    inputs: tuple[Any, ...] = field(default=(), repr=False, compare=False)  # if not those given: see anew.py
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the same

    @property
    def ok(self) -> bool:
        """Whether there are rows, none is wrong, and rounding hides no gradient of an input or a parameter.

        Rows may be not checked. An intermediate that cannot be seen does no harm if what backward returns is right.
        """
        return bool(self.rows) and all(row.ok or (row.is_hidden and row.kind == "intermediate") for row in self.rows)

    @property
    def max_error(self) -> float:
        """The largest error of any row."""
        return max((row.error for row in self.rows), default=0.0)

    @property
    def worst(self) -> Row | None:
        """The row with the largest error. Wrong rows come first, then those that cannot be seen."""
        return max(self.rows, key=lambda row: (row.is_wrong, not row.ok, row.error), default=None)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no row {name!r}; the rows are {', '.join(row.name for row in self.rows)}")

    def of_kind(self, kind: str) -> tuple[Row, ...]:
        """The rows of one kind: "input", "parameter" or "intermediate"."""
        return tuple(row for row in self.rows if row.kind == kind)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The names of what was not checked, those of intermediates excepted."""
        rows = [row.name for row in self.rows if row.ok and row.problem and row.kind != "intermediate"]
        return (*rows, *(name for name, _ in self.left_out))

    def assert_ok(self, everything: bool = False) -> None:
        """Raise AssertionError, with the table, unless `ok`; with `everything`, also if something is `unchecked`."""
        check_flags("assert_ok", everything=everything)
        if not self.ok:
            raise AssertionError(f"{self._verdict()}\n{self}")
        if everything and self.unchecked:
            raise AssertionError(f"{self.name}: not everything was checked: {', '.join(self.unchecked)}\n{self}")

    @property
    def verdict(self) -> str:
        """In a word, as of a row: "WRONG" only if a gradient is known to be wrong."""
        return (
            "ok" if self.ok else "CANNOT BE SEEN" if self.rows and not any(r.is_wrong for r in self.rows) else "WRONG"
        )

    def _verdict(self) -> str:
        return self._of_rows() + self.but

    @property
    def but(self) -> str:
        """What was left out, in words: "; not checked: gamma, beta (requires_grad is False)"; "" if nothing was."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.left_out:
            reasons.setdefault(why, []).append(name)
        told = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
        return f"; not checked: {told}" if told else ""

    def _of_rows(self) -> str:
        if not self.rows:
            return f"{self.name}: nothing to check"
        wrong = [row.name for row in self.rows if row.is_wrong]
        unseen = [row.name for row in self.rows if row.is_hidden]
        partly = [row.name for row in self.rows if row.ok and row.hidden]
        left = sum(row.ok and bool(row.problem) for row in self.rows)
        n = len(self.rows)
        told = []
        if wrong:
            told.append(f"{len(wrong)} of {n} gradients are wrong: {', '.join(wrong)}")
        if unseen:
            told.append(f"{len(unseen)} of {n} gradients cannot be seen beside rounding: {', '.join(unseen)}")
        if not told:
            told.append(f"all {n - left} gradients are right, largest error {self.max_error:.1e}")
        if partly and not wrong:
            told.append(f"rounding hides small entries of {', '.join(partly)}")
        if left and not wrong:
            told.append(f"{left} not checked")
        return f"{self.name}: {'; '.join(told)}"

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict for JSON."""
        errors = {
            kind: max((row.error for row in self.of_kind(kind)), default=0.0)
            for kind in ("input", "parameter", "intermediate")
        }
        return {
            "name": self.name,
            "ok": self.ok,
            "max_error": _in_json(self.max_error),
            "max_error_by_kind": {kind: _in_json(error) for kind, error in errors.items()},
            "rows": [row.as_dict() for row in self.rows],
            "not_checked": [{"name": name, "why": why} for name, why in self.left_out],
        }

    def __str__(self) -> str:
        table = [_HEADINGS, *(row.cells() for row in self.rows)]
        widths = [max(len(cells[i]) for cells in table) for i in range(len(_HEADINGS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
        ]
        return "\n".join([self._verdict(), *lines, *filter(None, [self.note])])

    def _repr_html_(self) -> str:
        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(row.cells(), "td") for row in self.rows)
        note = f'<p style="white-space: pre-line">{html.escape(self.note)}</p>' if self.note else ""
        return f"<p>{html.escape(self._verdict())}</p><table>{line(_HEADINGS, 'th')}{body}</table>{note}"
