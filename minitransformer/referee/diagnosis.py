"""Name a mistake by its effect: run a function and every known mistake of an op, and compare all results.

    verify.diagnose(f, "attention")                          on the inputs that the catalogue has for the op
    verify.diagnose(f, "attention", q, k, v, causal=True)    on these inputs

A mistake is named if the function's output and all its gradients equal those of the op with this mistake. On other
inputs the two may differ; inputs of unequal sizes distinguish mistakes best.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..arrays.backend import device_of, to_device
from ..trace.values import host_copy, is_float_array
from ..verify import arguments as given
from ..verify import foreign
from ..verify.catalogue import CASES, known_ops
from ..verify.mistakes import MISTAKES, Mistake
from ..verify.mistakes.mistake import forget_kept_results
from .by_design import SAID, without_empty_rows

# The tolerance for equal results, by the least precise dtype in them.
_TOLERANCES = {"float64": 1e-8, "float32": 1e-4}
_COARSEST = 3e-2
# These compute the same in another way, which allows other mistakes.
_OTHER_WAYS = {"attention": "flash_attention", "flash_attention": "attention"}
_TILES = (1, 2, 3, 4, 8, 16, 32, 64, 128)
# More inputs than the catalogue's, which has none for ops without a gradient, and none for which exp overflows.
_MORE: dict[str, Callable[[np.random.Generator], Any]] = {
    "sinusoidal_positions": lambda r: [((7, 6), {}), ((4, 10), {"base": 50.0})],
    "softmax": lambda r: [((r.normal(size=(3, 4)) + 800.0,), {})],
    "attention": lambda r: [
        ((r.normal(size=(2, 3, 4)), r.normal(size=(2, 5, 4)), r.normal(size=(2, 5, 6))), {"causal": True}),
        ((r.normal(size=(3, 4)) * 300.0, r.normal(size=(5, 4)) * 10.0, r.normal(size=(5, 2))), {}),
    ],
}

_AGAIN = " of another dy"

Results = dict[str, Any]  # the output, the gradients and other results to compare: arrays, or remarks in words


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    mistakes: those with the same results as the function, the op's own first; empty if the function is right or its
    mistake is unknown. differing: the names of the results that differ from the right ones, such as "the output", "dk".
    trials: on how many inputs the function ran; tried: how many known mistakes it was compared with. remark: what
    differs by design.
    """

    name: str
    op: str
    mistakes: tuple[Mistake, ...]
    differing: tuple[str, ...]
    trials: int
    tried: int
    remark: str = ""

    @property
    def right(self) -> bool:
        """Whether the function does what the op does."""
        return not self.differing

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as a dict for JSON."""
        known = [{"name": mistake.name, "sentence": mistake.sentence} for mistake in self.mistakes]
        return {**vars(self), "differing": list(self.differing), "mistakes": known, "right": self.right}

    def __str__(self) -> str:
        where = "on these inputs" if self.trials == 1 else f"on {self.trials} inputs"
        if self.right:
            return ". ".join(filter(None, [f"{self.name} does what {self.op} does {where}", self.remark]))
        which = " and ".join(filter(None, [", ".join(self.differing[:-1]), self.differing[-1]]))
        start = f"{self.name} differs from {self.op} in {which}"
        if not self.mistakes:
            end = f". {self.remark}" if self.remark else ""
            return f"{start}; none of the {self.tried} known mistakes does the same{end}"
        told = "\n  or  ".join(f"{mistake.name}: {mistake.sentence}" for mistake in self.mistakes[:3])
        return f"{start}. It does what a known mistake does {where}:\n      {told}"


def diagnose(f: Callable[..., Any], op: str, *inputs: Any, seed: int = 0, **options: Any) -> Diagnosis:
    """Which known mistake of the op f has, if any. Compares `f(*inputs, **options)` with the op, right and wrong.

    f: a function of our form, (*arrays) -> (output, backward), such as `from_torch`, `from_jax` and `from_pair` return.
    An option that f does not take is passed only to the op, for example where f is always causal. Without inputs, those
    of the catalogue are drawn from the seed, as many as f takes. A function that computes in float32 is compared to
    four digits.

    During the call the mistakes run in all threads. Raises ValueError for an unknown op, or if f runs on none of the
    inputs, and TypeError if f returns something else.
    """
    if op not in (all_ops := known_ops()):
        raise ValueError(f"diagnose: there is no op {op!r}; expected one of {', '.join(sorted(all_ops))}")
    right = all_ops[op]
    if inputs:
        trials = [
            _Trial(inputs, {key: x for key, x in options.items() if _takes(f, inputs, key, others=True)}, options, seed)
        ]
    else:
        trials = [_Trial(*each, each[1], seed) for each in _drawn(op, seed) if _takes(f, each[0], *each[1])]
    trials, others = _where_it_runs(f, trials)
    wanted = [trial.of_op(right) for trial in trials]
    remark = ""
    for trial, results in zip(trials, wanted, strict=True):
        filled = without_empty_rows(f, op, trial.found, results)
        trial.found, remark = filled, remark if filled is trial.found else SAID
    names = dict.fromkeys(name for trial, one in zip(trials, wanted, strict=True) for name in (*one, *trial.found))
    comparisons = [_Comparison(trial.found, results, f) for trial, results in zip(trials, wanted, strict=True)]
    differing = [name for name in names if not all(comparison.alike(name) for comparison in comparisons)]
    found: list[Mistake] = []
    tried: set[str] = set()
    for way in _ways(op, right, trials, wanted) if differing else ():
        known = _reachable(way, trials)
        tried |= {mistake.name for mistake in known}
        found = [mistake for mistake in known if _explains(mistake, way, trials, comparisons)]
        if found:  # where f does not run, a mistake that does not run either is a better match
            failures = [sum(_fails(mistake.inside(way), trial) for trial in others) for mistake in found]
            found = [mistake for mistake, n in zip(found, failures, strict=True) if n == max(failures)]
            break
    differing = [
        name for name in differing if name.removesuffix(_AGAIN) == name or name[: -len(_AGAIN)] not in differing
    ]
    return Diagnosis(given.name_of(f), op, tuple(found), tuple(differing), len(trials), len(tried), remark)


def known_mistakes(op: str, seed: int = 0) -> list[Mistake]:
    """The known mistakes in what an op calls, with the inputs and options that the catalogue has for it."""
    right = known_ops()[op]
    trials = [_Trial(*each, each[1], seed) for each in _drawn(op, seed)]
    for trial in trials:
        trial.names = given.input_names(right, trial.inputs)
    return _reachable(right, trials)


class _Trial:
    """One set of inputs, with options for f and for the op; `found` is the result of f."""

    def __init__(self, inputs: Any, options: dict[str, Any], for_op: dict[str, Any], seed: int) -> None:
        self.inputs = tuple(given.with_leaves(x, lambda x: given.to_float64(foreign.copied_array(x))) for x in inputs)
        self.for_op = {key: given.with_leaves(x, foreign.copied_array) for key, x in for_op.items()}
        self.options, self.seed = options, seed
        self.found: Results = {}

    def of(self, f: Callable[..., Any]) -> Results:
        """The results of f."""
        return self._results(f, self.options)

    def of_op(self, f: Callable[..., Any]) -> Results:
        """The results of an op."""
        return self._results(f, self.for_op)

    def _results(self, f: Callable[..., Any], options: dict[str, Any]) -> Results:
        inputs = [_own(x) for x in self.inputs]
        rng = np.random.default_rng((self.seed, 3))
        with np.errstate(all="ignore"):
            returned = f(*inputs, **{key: _own(x) for key, x in options.items()})
            y = returned[0] if isinstance(returned, tuple) and len(returned) == 2 else returned
            if not is_float_array(y):
                raise TypeError(
                    f"{given.name_of(f)} must return (floating-point array, backward), got {given.describe(returned)}"
                )
            results: Results = {"the output": host_copy(y)}
            for again in ("", _AGAIN) if y is not returned else ():
                dy = to_device(rng.normal(size=y.shape).astype(y.dtype), device_of(y).name)
                before = host_copy(dy)
                dx = returned[1](dy)
                dx = dx if isinstance(dx, tuple) else () if dx is None else (dx,)
                for name, x in zip(self._gradients(len(dx)), dx, strict=True):
                    results[f"{name}{again}"] = _told(x)
                    if is_float_array(x) and x.dtype != y.dtype:
                        results[f"the dtype of {name}{again}"] = str(x.dtype)
                if not np.array_equal(before, host_copy(dy)):
                    results[f"dy afterwards{again}"] = host_copy(dy)
        for i, (x, own) in enumerate(zip(self.inputs, inputs, strict=True)):
            if is_float_array(x) and not np.array_equal(host_copy(x), host_copy(own)):
                results[f"input {i} afterwards"] = host_copy(own)
        return results

    def _gradients(self, n: int) -> list[str]:
        names = [f"d{name}" for name, x in zip(self.names, self.inputs, strict=True) if is_float_array(x)]
        return names if len(names) == n else [f"gradient {i}" for i in range(n)]

    names: list[str]


class _Comparison:
    """The results of f and the right ones of the op, on one set of inputs."""

    def __init__(self, found: Results, right: Results, f: Any) -> None:
        self.found, self.right = found, right
        kinds = [foreign.precision_of(f), *(str(x.dtype) for x in found.values() if isinstance(x, np.ndarray))]
        self.tolerance = max((_TOLERANCES.get(kind, _COARSEST) for kind in kinds), default=_COARSEST)
        arrays = [x for x in right.values() if isinstance(x, np.ndarray)]
        self._largest = max((_size(x) for x in arrays), default=1.0) or 1.0

    def alike(self, name: str, others: Results | None = None) -> bool:
        """Whether f agrees in this result with the op, or with `others`, the results of a mistake."""
        return self._distance(name, self.found, self.right if others is None else others) <= self.tolerance

    def explained(self, others: Results) -> bool:
        """Whether a mistake agrees with f in all results, and is far nearer to f than the right op is."""
        names = {*self.found, *others}
        return names == {*self.found} == {*others} and all(
            self.alike(name, others)
            and (
                self.alike(name)
                or 100.0 * self._distance(name, self.found, others) <= self._distance(name, self.found, self.right)
            )
            for name in names
        )

    def _distance(self, name: str, one: Results, other: Results) -> float:
        """How far two results are apart, relative to the right one; infinite if they cannot be compared."""
        a, b = one.get(name), other.get(name)
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            return 0.0 if type(a) is type(b) and a == b else np.inf
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return np.inf
        finite = np.isfinite(a)
        apart = abs(a[finite] - b[finite]).max(initial=0.0)
        right = self.right.get(name)
        size = _size(right) if isinstance(right, np.ndarray) else 0.0
        return float(apart / max(size, 1e-3 * self._largest))


def _size(x: np.ndarray) -> float:
    return float(abs(x[np.isfinite(x)]).max(initial=0.0))


def _own(x: Any) -> Any:
    """A copy that a function may change."""
    return given.fresh(x) if isinstance(x, np.random.Generator) else x.copy() if hasattr(x, "copy") else copy.copy(x)


def _told(x: Any) -> Any:
    return host_copy(x) if is_float_array(x) else given.describe(x)


def _takes(f: Callable[..., Any], inputs: Any, *names: str, others: bool = False) -> bool:
    """Whether f can be called with these inputs and options of these names. others: it may require more than these."""
    try:
        signature = inspect.signature(f)
        (signature.bind_partial if others else signature.bind)(*inputs, **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return not names
    return True


def _drawn(op: str, seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(inputs, options) of each case that the catalogue has for the op."""
    yield from _MORE.get(op, lambda r: [])(np.random.default_rng(seed))
    for case in CASES.values():
        if case.kind == "op" and case.covers == op:
            setup = case.build(np.random.default_rng(seed))
            yield setup.inputs, setup.options


def _where_it_runs(f: Callable[..., Any], trials: list[_Trial]) -> tuple[list[_Trial], list[_Trial]]:
    """The trials on which f runs, with its results, and the other trials. Raises ValueError if it never runs."""
    ran: list[_Trial] = []
    others: list[_Trial] = []
    problem = "it takes different arguments from the op"
    for trial in trials:
        try:
            trial.names = given.input_names(f, trial.inputs)
            trial.found = trial.of(f)
            ran.append(trial)
        except TypeError as error:
            if "must return" in str(error):
                raise
            problem = f"{type(error).__name__}: {error}"
            others.append(trial)
        except Exception as error:  # a function of someone else may raise anything
            problem = f"{type(error).__name__}: {error}"
            others.append(trial)
    if not ran:
        raise ValueError(f"diagnose: {given.name_of(f)} runs on none of the inputs: {problem}")
    return ran, others


def _ways(
    op: str, right: Callable[..., Any], trials: list[_Trial], wanted: list[Results]
) -> Iterator[Callable[..., Any]]:
    """The op, then other ways to compute the same, if their results agree on all trials."""
    yield right
    other = known_ops().get(_OTHER_WAYS.get(op, ""))
    if other is None:
        return
    longest = max(x.shape[-2] for trial in trials for x in trial.inputs[:2])
    for way in [partial(other, tile=tile) for tile in _TILES if tile <= longest] if op == "attention" else [other]:
        try:
            results = [trial.of_op(way) for trial in trials]
        except Exception:  # for example, it needs a mask of another rank
            continue
        pairs = [_Comparison(one, right_ones, way) for one, right_ones in zip(results, wanted, strict=True)]
        if all(pair.alike(name) for pair in pairs for name in pair.right):
            yield way


def _reachable(op: Callable[..., Any], trials: list[_Trial]) -> list[Mistake]:
    """The known mistakes in what the op calls, those in the op itself first."""
    called: dict[types.CodeType, None] = {}

    def note(frame: types.FrameType, event: str, arg: Any) -> None:
        called.setdefault(frame.f_code)

    forget_kept_results()  # or a kept result would hide a call
    before = sys.gettrace()
    sys.settrace(note)
    try:
        for trial in trials:
            trial.of_op(op)
    finally:
        sys.settrace(before)
    order = {code: i for i, code in enumerate(called)}
    files = {code.co_filename for code in order}
    found = [mistake for mistake in MISTAKES.values() if any(file.startswith(mistake.file) for file in files)]
    found = [mistake for mistake in found if mistake.function.__code__ in order]
    return sorted(found, key=lambda mistake: order[mistake.function.__code__])


def _fails(f: Callable[..., Any], trial: _Trial) -> bool:
    try:
        trial.of_op(f)
    except Exception:
        return True
    return False


def _explains(mistake: Mistake, op: Callable[..., Any], trials: list[_Trial], comparisons: list[_Comparison]) -> bool:
    with mistake.applied():
        for trial, comparison in zip(trials, comparisons, strict=True):
            try:
                results = trial.of_op(op)
            except Exception:  # where sizes differ, some mistakes cannot be computed
                return False
            if not comparison.explained(results):
                return False
    return True
