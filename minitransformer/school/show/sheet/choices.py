"""Lines that choose, number by number: `xp.where(x < 0.0, a, b)` as a term that keeps the test and both sides.

The stepper writes out the side that was taken, because that is what a reader of one run wants to see. A sheet whose
inputs change needs both: IF(x<0,a,b).
"""

from __future__ import annotations

import dataclasses
import functools

from ..stepper import expressions as ex
from ..stepper.expansion import NotExpandable, term_of
from ..stepper.steps import Steps
from ..stepper.terms import Term
from ..stepper.walk import Walk


def with_choices(recording: Steps) -> Steps:
    """The same recording, whose terms keep both sides of a choice that depends on its numbers."""
    copy = dataclasses.replace(recording)
    for step in copy.steps:
        copy.kept(step.index, functools.partial(_Choosing, copy, step))
    return copy


class _Choosing(Walk):
    def _applied(self, whole: ex.Applied, index: ex.Index) -> Term:
        if whole.name == "where" and len(whole.operands) == 3:
            try:
                test, *sides = (self.under(part, index) for part in whole.operands)
                if self._depends(test):
                    return ex.Applied("where", (test, *sides))
            except NotExpandable:
                pass  # a test that is not written out, such as a mask that was given, does not depend on the numbers
        return super()._applied(whole, index)

    def _depends(self, test: Term) -> bool:
        """Whether a test was computed from recorded numbers."""
        if isinstance(test, ex.Number) and test.serial is not None:
            test = term_of(self.recording, *self.recording.binding(test.serial), test.index)
            return not isinstance(test, ex.Number) and self._depends(test)
        return any(number.serial is not None for number in ex.numbers(test))
