"""An input where a function with a mistake differs from the right one, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..verify.mistakes import Mistake
from .replacing import OWN, library_of, made
from .suite import Function, Suite

DRAWS = 20
_RIGHT: dict[tuple[Function, str, int], dict[str, np.ndarray]] = {}  # for who asks about many mistakes in turn


def shown(suite: Suite, function: Function, namespace: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    """An input where the function with the mistake differs from the right one, and how; empty if none is found.

    by_design: on this input and all others that show it, the suite's own function gives what the mistake gives, or is
    itself not right where the mistake shows, and right elsewhere. An example is a mask of -1e9 in the reference, added
    or put in place: rows with nothing to see are then not 0, whichever numbers they are.
    """
    by_design: dict[str, Any] = {}
    for text, seed in _trials(function):
        here = {"input": text, "seed": seed}
        with np.errstate(all="ignore"):
            right = _RIGHT.get((function, text, seed)) or _results(suite, function, namespace, text, seed)
            _RIGHT[function, text, seed] = right
            try:
                with mistake.applied():
                    wrong = _results(suite, function, namespace, text, seed)
            except Exception as error:
                return here | {"shows": f"it stops with {type(error).__name__}"}
            name, shows = _difference(right, wrong)
            if not shows:
                continue
            own = _own_results(suite, function, namespace, text, seed)
        if name not in own or not (
            _difference({name: own[name]}, wrong)[1] == "" or _as_far(right[name], wrong.get(name), own[name])
        ):
            return here | {"shows": shows}
        by_design = by_design or here | {"shows": shows, "by_design": True}
    return by_design


def _difference(right: dict[str, np.ndarray], wrong: dict[str, np.ndarray]) -> tuple[str, str]:
    """The name of the first array that differs, and how it does; "" if none does."""
    for name, a in right.items():
        b = wrong.get(name)
        if b is None or b.shape != a.shape:
            return name, f"{name} has a different shape or is missing"
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return name, f"{name} is not finite where it should be"
        finite = np.isfinite(a)
        apart = float(abs(a[finite] - b[finite]).max(initial=0.0))
        size = float(abs(a[finite]).max(initial=0.0))
        if apart > 1e-3 * size + 1e-6:
            return name, f"{name} is off by {apart:.2g}, its largest is {size:.2g}"
    return "", ""


def _as_far(right: np.ndarray, wrong: np.ndarray | None, own: np.ndarray) -> bool:
    """Whether the suite's own function is finite, as the mistake is, and not right in the same rows and only there."""
    if wrong is None or not right.shape == wrong.shape == own.shape != () or not np.isfinite(wrong + own).all():
        return False
    near = 1e-3 * float(abs(right[np.isfinite(right)]).max(initial=0.0)) + 1e-6
    shows, apart = (~(abs(array - right) <= near) for array in (wrong, own))
    return np.array_equal(shows.any(axis=-1), apart.any(axis=-1))


def _trials(function: Function) -> Iterator[tuple[str, int]]:
    yield from ((text, seed) for text in function.inputs for seed in range(DRAWS))


def _own_results(
    suite: Suite, function: Function, namespace: dict[str, Any], text: str, seed: int
) -> dict[str, np.ndarray]:
    """Those of the suite's own function; none if it cannot run, as a student's that is yet to be written."""
    try:
        return _results(suite, function, namespace, text, seed, OWN[function.replaces])
    except Exception:
        return {}


def _results(
    suite: Suite, function: Function, namespace: dict[str, Any], text: str, seed: int, own: Any = None
) -> dict[str, np.ndarray]:
    """The outputs and gradients of our function, or of the suite's own, on one input, by name."""
    scope = dict(namespace)
    inputs = eval(text, scope | {"r": np.random.default_rng(seed)})
    run = made(function, namespace) if own is None else own
    if function.probe:
        exec(function.probe, scope)
        found = {name: np.asarray(x, np.float64) for name, x in scope["probe"](run, *inputs).items()}
        return {name: x for name, x in found.items() if function.gradients or name.startswith("the ")}
    if suite.arrays != "numpy":
        of_each: dict[str, np.ndarray] = library_of(suite.arrays).results(
            run, inputs, seed if function.gradients else None
        )
        return of_each
    returned = run(*inputs)
    returned = returned if isinstance(returned, tuple) else (returned,)
    arrays = [x for x in returned if isinstance(x, np.ndarray | float | np.floating)]
    return {f"output {i}" if i else "the output": np.asarray(x, np.float64) for i, x in enumerate(arrays)}
