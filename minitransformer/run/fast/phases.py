# mypy: disable-error-code="no-untyped-def"
"""How several threads share the work of one compiled loop that all of them enter.

The work consists of phases, and a phase of parts. A thread takes the next free part. If none is left, it waits until
all parts are done, and then enters the next phase, which reads what this one wrote. A thread that is late or slow
leaves more parts to the others; a single thread does them all. The result does not depend on which thread computes a
part.

A waiting thread keeps asking instead of sleeping, because a phase may take only 100 µs, and waking up takes 40.
"""

import os
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .loops import CHECKED, compiled

PARTS = 8  # of a phase
LINE = 16  # space for each counter: processors exchange whole cache lines, and fetch them in pairs
PATIENCE = 20_000  # after this many questions a waiting thread gives up its core

_give_way = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())


def counters(n_phases: int) -> np.ndarray:
    """For each phase, how many parts are taken and how many are done."""
    return np.zeros(2 * LINE * n_phases, np.int64)


@intrinsic
def _add(_: Any, counts, i, number):
    """Add to counts[i] and return its previous value, as one indivisible step."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [arguments[1]]), arguments[2], "seq_cst")

    return types.int64(counts, types.int64, types.int64), generate


@compiled()
def _added(counts, i, number):
    if CHECKED and not 0 <= i < counts.size:
        raise IndexError("the phase is out of range")
    return _add(counts, i, number)


@compiled()
def take(counts, phase):
    """The number of the caller's next part; at least the number of parts if none is left."""
    return _added(counts, 2 * LINE * phase, 1)


@compiled()
def done(counts, phase):
    """Count one part of the phase as finished."""
    _added(counts, 2 * LINE * phase + LINE, 1)


@compiled()
def wait(counts, phase, n_parts):
    """Return when the threads have finished all parts of the phase."""
    asked = 0
    while _added(counts, 2 * LINE * phase + LINE, 0) < n_parts:
        asked += 1
        if asked > PATIENCE:
            _give_way()


@intrinsic
def _unowned(_: Any, counts):
    """The same array, as one that nobody owns. Numba never gives back what a generator in a loop was given."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        array.meminfo, array.parent = (cgutils.get_null_value(x.type) for x in (array.meminfo, array.parent))
        return array._getvalue()

    return counts(counts), generate


@njit(nogil=True, error_model="numpy")  # no cache: Numba cannot use a generator that it has read from one
def _parts(counts, phase, n_parts):
    part = take(counts, phase)
    while part < n_parts:
        yield part
        done(counts, phase)
        part = take(counts, phase)
    wait(counts, phase, n_parts)


@njit(inline="always")
def parts_of(counts, phase, n_parts):
    """The parts of a phase that are left to the caller; then it waits for the others."""
    return _parts(_unowned(counts), np.int64(phase), np.int64(n_parts))  # with literals it would compile anew for each


@compiled()
def stretch(size, part, n_parts):
    """The start of a part of range(size), and the start of the next part."""
    return size * part // n_parts, size * (part + 1) // n_parts
