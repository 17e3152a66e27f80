"""Put our ops in the place of a suite's functions, count their calls, and find an input that shows a mistake there."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..verify.catalogue import known_ops
from ..verify.mistakes import Mistake
from .suite import Function, Suite, numbered

DRAWS = 20
CALLS: Counter[str] = Counter()  # of our ops, by the place of the function that calls them
OWN: dict[str, Any] = {}  # the suite's own functions, by their place
_PLACES: list[tuple[Any, str, Any]] = []  # what was replaced: its holder, its name there, and what it was
_RIGHT: dict[tuple[Function, str, int], dict[str, np.ndarray]] = {}  # for who asks about many mistakes in turn


def namespace_of(suite: Suite) -> dict[str, Any]:
    """The names that `call` can use."""
    ops = known_ops()
    plain = {"np": np, "ops": types.SimpleNamespace(**ops)}
    if suite.arrays == "numpy":
        return ops | plain
    library = library_of(suite.arrays)
    return {name: library.adapted(f) for name, f in ops.items()} | plain | library.names()


def library_of(arrays: str) -> Any:
    """The file that knows this library's arrays."""
    from . import jax_arrays, tensors

    return {"torch": tensors, "jax": jax_arrays}[arrays]


def replace(suite: Suite, namespace: dict[str, Any]) -> None:
    """Replace every function of the suite by ours, because the tests of one may call another.

    A package often has a function under several names, as `pkg.softmax` and `pkg.nn.softmax`: each is replaced.
    """
    described = {function.replaces for function in suite.functions}  # each of these has a replacement of its own
    for function in suite.functions:
        if not function.replaces or function.replaces in OWN:
            continue
        module, _, path = function.replaces.partition(":")
        holder = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            holder = getattr(holder, part)
        own, ours = getattr(holder, name), made(function, namespace)
        OWN[function.replaces] = own
        places = [(m, key) for m, key, value in _held_by(module.partition(".")[0]) if value is own]
        places = [(m, key) for m, key in places if f"{m.__name__}:{key}" not in described]
        for place, key in [(holder, name), *places]:
            _PLACES.append((place, key, own))
            setattr(place, key, ours)


def _held_by(package: str) -> list[tuple[Any, str, Any]]:
    """(module, name, value) of all that the modules of a package hold."""
    modules = [m for key, m in list(sys.modules.items()) if key.partition(".")[0] == package]
    return [(m, key, value) for m in modules for key, value in list(getattr(m, "__dict__", {}).items())]


def put_back() -> None:
    """Undo what `replace` did."""
    while _PLACES:
        setattr(*_PLACES.pop())
    OWN.clear()


def made(function: Function, namespace: dict[str, Any]) -> Any:
    """What stands in the place of a function: its `call`, in which our ops count their calls."""
    scope = dict(namespace)
    for op in function.ops:
        scope[op] = _counted(scope[op], function.replaces)
    plain = {op: _counted(f, function.replaces) for op, f in known_ops().items() if op in function.ops}
    scope["ops"] = types.SimpleNamespace(**{**vars(namespace["ops"]), **plain})
    if "\n" not in function.call.strip():
        return eval(function.call, scope)
    exec(function.call, scope)
    return scope["replacement"]


def _counted(op: Callable[..., Any], place: str) -> Callable[..., Any]:
    @functools.wraps(op)
    def call(*inputs: Any, **options: Any) -> Any:
        CALLS[place] += 1
        return op(*inputs, **options)

    return call


def shown(suite: Suite, function: Function, namespace: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    """An input where the function with the mistake differs from the right one, and how; empty if none is found.

    by_design: on this input and all others that show it, the suite's own function gives what the mistake gives, or is
    itself not right where the mistake shows, and right elsewhere. An example is a mask of -1e9 in the reference, added
    or put in place: rows with nothing to see are then not 0, whichever numbers they are.
    """
    by_design: dict[str, Any] = {}
    results = functools.partial(_results, suite, function, namespace)
    for text, seed in itertools.product(function.inputs, range(DRAWS)):
        here, own = {"input": text, "seed": seed}, dict[str, np.ndarray]()
        with np.errstate(all="ignore"):
            right = _RIGHT.get((function, text, seed)) or results(text, seed)
            _RIGHT[function, text, seed] = right
            try:
                with mistake.applied():
                    wrong = results(text, seed)
            except Exception as error:
                return here | {"shows": f"it stops with {type(error).__name__}"}
            name, shows = _difference(right, wrong)
            if not shows:
                continue
            with contextlib.suppress(Exception):  # it may not run, as a student's that is yet to be written
                own = results(text, seed, OWN[function.replaces])
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
        found = library_of(suite.arrays).results(run, inputs, seed if function.gradients else None)
        return dict(found)
    returned = run(*inputs)
    returned = returned if isinstance(returned, tuple) else (returned,)
    return numbered([x for x in returned if isinstance(x, np.ndarray | float | np.floating)])
