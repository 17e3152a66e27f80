"""Every op of the core and of the rooms around it, by name, and the calls of it that the catalogue's cases make."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minitransformer.check.verify.catalogue import Setup, known_ops
from minitransformer.check.verify.mistakes import MISTAKES, Mistake
from minitransformer.run.fast.large_cases import LARGE
from minitransformer.verify import CASES, gradients

OPS = known_ops()
# The ops of ideas in folders of their own, by name: each with its folder in ideas/, whose name its test file has, too.
IDEAS = {name: path[3] for name, f in OPS.items() if (path := f.__module__.split("."))[1] == "ideas" and len(path) == 5}
# sinusoidal_positions returns a table, and no pullback; the others have tests of their own.
TABLED = set(OPS) - {"sinusoidal_positions", *IDEAS}
# A case's name, and the op that it is about. The first case of each op looks at every entry.
CALLS = {name: case.covers for name, case in CASES.items() if case.kind == "op"}
FIRST = {op: name for name, op in reversed(CALLS.items())}
# The known mistakes of all ops that finite differences find.
WRONG = [m for m in MISTAKES.values() if m.caught_by == "gradients" and m.target.partition(":")[2] in OPS]
_COARSE: Any = {"entrywise": 4, "directions": 1, "intermediates": False}


def setup_of(case: str, seed: int = 0) -> Setup:
    """The call of a case; generators are the caller's to use."""
    return copy.deepcopy((CASES | LARGE)[case].build(np.random.default_rng(seed)))


def arguments_of(case: str, seed: int = 0) -> dict[str, Any]:
    """What a case calls its op with, by name."""
    setup = setup_of(case, seed)
    bound = inspect.signature(inspect.unwrap(setup.f)).bind(*setup.inputs, **setup.options)
    return dict(bound.arguments)


def in_dtype(arguments: dict[str, Any], dtype: str, size: float = 1.0, offset: float = 0.0) -> dict[str, Any]:
    """The arguments with floats of this dtype; the first array of them `size` times as large, and moved by `offset`."""
    changed = {name: arguments[name] for name in floats(arguments)}
    changed |= {name: size * x + offset for name, x in list(changed.items())[:1]}
    return arguments | {name: x.astype(dtype) for name, x in changed.items()}


def floats(arguments: dict[str, Any]) -> list[str]:
    """The names of the arrays that a gradient flows into."""
    return [name for name, x in arguments.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"]


def results(y: Any, gradients: Any) -> list[Any]:
    """The output and all gradients."""
    return [y, *(gradients if isinstance(gradients, tuple) else (gradients,))]


# How an array may lie in memory: row by row, column by column, with gaps, or with the heads of each position together.
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: np.array(x, order="C"),
    "columns": lambda x: np.array(x, order="F"),
    "gaps": lambda x: np.repeat(x[..., None], 2, axis=-1)[..., 0],
    "heads": lambda x: x.swapaxes(-2, -3).copy().swapaxes(-2, -3) if x.ndim > 2 else x.copy(),
}


def laid_out(arguments: dict[str, Any], layout: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """The arguments with every array in another layout."""
    return {name: layout(x) if isinstance(x, np.ndarray) else x for name, x in arguments.items()}


def assert_accepted_as(form: Callable[[Any], Any], case: str) -> None:
    """The checker accepts the op of a case in the form of others, such as a function of tensors."""
    setup = setup_of(case)
    gradients(form(setup.f), *setup.inputs, **_COARSE, **setup.options).assert_ok()


def assert_rejected_as(form: Callable[[Any], Any], mistake: Mistake) -> None:
    """The checker rejects an op with a mistake in the form of others; what cannot run there, it refuses in words."""
    setup = setup_of(mistake.cases[0], seed=1)
    with np.errstate(all="ignore"):
        try:
            assert not gradients(form(mistake.inside(setup.f)), *setup.inputs, **_COARSE, **setup.options).ok
        except ValueError as error:
            assert "does not run" in str(error) or "not finite" in str(error)
