"""Every op of the core and of the rooms around it, by name, and the calls of it that the catalogue's cases make."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np

from minitransformer.verify import CASES
from minitransformer.verify.catalogue import Setup, known_ops
from minitransformer.verify.mistakes import MISTAKES

OPS = known_ops()
# The ops of ideas in folders of their own, by name: each with its folder in later/, whose name its test file has, too.
IDEAS = {name: path[2] for name, f in OPS.items() if (path := f.__module__.split("."))[1] == "later" and len(path) == 4}
# sinusoidal_positions returns a table, and no pullback; the others have tests of their own.
TABLED = set(OPS) - {"sinusoidal_positions", "clamped_swiglu", *IDEAS}
# A case's name, and the op that it is about. The first case of each op looks at every entry.
CALLS = {name: case.covers for name, case in CASES.items() if case.kind == "op"}
FIRST = {op: name for name, op in reversed(CALLS.items())}
# The known mistakes of all ops that finite differences find.
WRONG = [m for m in MISTAKES.values() if m.caught_by == "gradients" and m.target.partition(":")[2] in OPS]


def setup_of(case: str) -> Setup:
    """The call of a case, always with the same numbers; generators are the caller's to use."""
    return copy.deepcopy(CASES[case].build(np.random.default_rng(0)))


def arguments_of(case: str) -> dict[str, Any]:
    """What a case calls its op with, by name."""
    setup = setup_of(case)
    bound = inspect.signature(inspect.unwrap(setup.f)).bind(*setup.inputs, **setup.options)
    return dict(bound.arguments)
