# mypy: disable-error-code="no-untyped-def"
"""How several threads share the work of one compiled loop that all of them enter.

The work is made of phases, and a phase of parts. A thread takes the next part that nobody has taken, and when there is
none left, it waits until all parts are done before it goes on to the next phase: what one phase writes the next one
reads. So a thread that comes late, or is held up, leaves more parts to the others, and one alone does them all. Which
thread computes a part makes no difference to the result.

To wait, a thread asks again and again, since a phase may take 100 µs, and to fall asleep and be woken up takes 40.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from .loops import CHECKED, compiled

LINE = 16  # counters for each that is used: processors exchange whole cache lines, and fetch them in pairs
PATIENCE = 20_000  # questions, after which a waiting thread lets others have its core

_give_way = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())


def counters(n_phases: int) -> np.ndarray:
    """For each phase how many parts have been taken, and how many are done."""
    return np.zeros(2 * LINE * n_phases, np.int64)


@intrinsic
def _add(_: Any, counts, i, number):
    """Add to counts[i] and return what it was, before any other thread does the same."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [arguments[1]]), arguments[2], "seq_cst")

    return types.int64(counts, types.int64, types.int64), generate


@compiled()
def _added(counts, i, number):
    if CHECKED and not 0 <= i < counts.size:
        raise IndexError("there is no such phase")
    return _add(counts, i, number)


@compiled()
def take(counts, phase):
    """The part that is now the caller's; there may be no such part any more."""
    return _added(counts, 2 * LINE * phase, 1)


@compiled()
def done(counts, phase):
    _added(counts, 2 * LINE * phase + LINE, 1)


@compiled()
def wait(counts, phase, n_parts):
    asked = 0
    while _added(counts, 2 * LINE * phase + LINE, 0) < n_parts:
        asked += 1
        if asked > PATIENCE:
            _give_way()


@compiled()
def stretch(size, part, n_parts):
    """Where a part of range(size) begins, and where the next one does."""
    return size * part // n_parts, size * (part + 1) // n_parts
