"""The results of a function and of an op on the same arguments, how far apart they are, and what explains that.

An explanation is one known mistake, several, or one that only the output shows.

Where nothing is left, a softmax of -inf alone or a mean over no targets is NaN in PyTorch and JAX. Our ops return 0
there, and gradients of 0. NaN is a mistake in an answer to "write softmax"; in a function of these libraries it is
their rule, so it is said, and not counted as a difference. This holds only if all other numbers agree: NaN that spreads
to other rows is a mistake.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import device_of, to_device
from ..trace.values import host_copy, is_array, is_float_array
from ..verify import arguments as given
from ..verify import foreign
from ..verify.mistakes import MISTAKES, Mistake, forget_kept_results
from ..verify.pattern import apart
from .readings import Op, Reading

# The tolerance for equal results, by the least precise dtype in them: of float64, as if something inside, such as a
# table of angles, were in float32.
SINGLE_INSIDE = 1e-6
_TOLERANCES = {"float64": SINGLE_INSIDE, "float32": 1e-4}
_COARSEST = 3e-2

AGAIN = " of another dy"
OUTPUT = "the output"

Results = dict[str, Any]  # the output, the gradients and other results to compare: arrays, or remarks in words


@dataclass
class Trial:
    """The arguments of one call. inputs: the positional ones; names: theirs; options: of f; for_op: of the op.

    found: the results of f, which runs on the device of the inputs. The op runs on the host.
    """

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    for_op: dict[str, Any]
    seed: int

    def __post_init__(self) -> None:
        leaves = [leaf for x in self.inputs for _, leaf in given.leaves_of("", x) if is_array(leaf)]
        self.device = next((name for x in leaves if (name := device_of(x).name) != "numpy"), "numpy")
        self.inputs = tuple(given.with_leaves(x, lambda x: given.to_float64(_on_host(x))) for x in self.inputs)
        self.for_op = {key: given.with_leaves(x, _on_host) for key, x in self.for_op.items()}
        self.names = [f"input {i}" for i in range(len(self.inputs))]
        self.found: Results = {}

    def fits(self, results: Results) -> bool:
        """Whether the output has the shape of f's."""
        return np.shape(results[OUTPUT]) == np.shape(self.found[OUTPUT])

    def of_op(self, op: Op, only_if: Callable[[Results], bool] | None = None) -> Results:
        """The results of an op; only its output, if `only_if` is false of that."""
        return self.of(op, self.for_op, only_if)

    def of(
        self, f: Op, options: dict[str, Any] | None = None, only_if: Callable[[Results], bool] | None = None
    ) -> Results:
        """The results of f, with its own options or these."""
        place, options = ("numpy", options) if options is not None else (self.device, self.options)
        inputs = [given.with_leaves(given.own(x), lambda x: _moved(x, place)) for x in self.inputs]
        rng = np.random.default_rng((self.seed, 3))
        with np.errstate(all="ignore"):
            returned = f(*inputs, **{key: given.own(x) for key, x in options.items()})
            y = returned[0] if isinstance(returned, tuple) and len(returned) == 2 else returned
            if not is_float_array(y):
                raise TypeError(
                    f"{given.name_of(f)} must return (floating-point array, backward), got {given.describe(returned)}"
                )
            results: Results = {OUTPUT: host_copy(y)}
            if only_if is not None and not only_if(results):
                return results
            for again in ("", AGAIN) if y is not returned else ():
                dy = to_device(rng.normal(size=y.shape).astype(y.dtype), device_of(y).name)
                before = host_copy(dy)
                dx = returned[1](dy)
                dx = list(dx) if isinstance(dx, tuple) else [] if dx is None else [dx]
                dx = given.without_spare_nones(list(self.inputs), dx)
                for name, x in zip(self._gradients(len(dx)), dx, strict=True):
                    results[f"{name}{again}"] = host_copy(x) if is_float_array(x) else given.describe(x)
                    if is_float_array(x) and x.dtype != y.dtype:
                        results[f"the dtype of {name}{again}"] = str(x.dtype)
                if not np.array_equal(before, host_copy(dy)):
                    results[f"dy afterwards{again}"] = host_copy(dy)
        for i, (x, own) in enumerate(zip(self.inputs, inputs, strict=True)):
            if is_float_array(x) and not np.array_equal(host_copy(x), host_copy(own), equal_nan=True):
                results[f"input {i} afterwards"] = host_copy(own)
        return results

    def _gradients(self, n: int) -> list[str]:
        names = [f"d{name}" for name, x in zip(self.names, self.inputs, strict=True) if is_float_array(x)]
        return names if len(names) == n else [f"gradient {i}" for i in range(n)]


def _moved(x: Any, device: str) -> Any:
    return to_device(x, device) if is_array(x) else x


def _on_host(x: Any) -> Any:
    return _moved(foreign.copied_array(x), "numpy")


class Comparison:
    """The results of f and the right ones of the op, on one set of inputs. tolerance: relative to the largest entry."""

    def __init__(self, found: Results, right: Results, f: Any) -> None:
        self.found, self.right = found, right
        kinds = [foreign.precision_of(f), *(str(x.dtype) for x in found.values() if isinstance(x, np.ndarray))]
        self.tolerance = max((_TOLERANCES.get(kind, _COARSEST) for kind in kinds), default=_COARSEST)
        arrays = [x for x in right.values() if isinstance(x, np.ndarray)]
        self._largest = max((size(x) for x in arrays), default=1.0) or 1.0

    def alike(self, name: str, others: Results | None = None) -> bool:
        """Whether f agrees in this result with the op, or with `others`, the results of a mistake."""
        return self.distance(name, self.right if others is None else others) <= self.tolerance

    def alike_output(self, results: Results) -> bool:
        """Whether the output is f's."""
        return self.alike(OUTPUT, results)

    def output_explained(self, results: Results) -> bool:
        """Whether a mistake explains f's output."""
        return self.explained_by(results, OUTPUT)

    def differing(self) -> list[str]:
        """The names of the results in which f and the op differ; of two upstream gradients, the first."""
        names = [name for name in {**self.right, **self.found} if not self.alike(name)]
        return [name for name in names if not name.endswith(AGAIN) or name.removesuffix(AGAIN) not in names]

    def explained_by(self, others: Results, name: str) -> bool:
        """Whether a mistake agrees with f in this result, and is far nearer to f than the right op is."""
        of_mistake, of_right = self.distance(name, others), self.distance(name, self.right)
        return of_mistake <= self.tolerance and (of_right <= self.tolerance or 100.0 * of_mistake <= of_right)

    def explained(self, others: Results) -> bool:
        """Whether a mistake has all the results of f."""
        names = {*self.found, *others}
        return names == {*self.found} == {*others} and all(self.explained_by(others, name) for name in names)

    def distance(self, name: str, others: Results) -> float:
        """How far f's result is from the other, relative to the right one; infinite if they cannot be compared."""
        a, b = self.found.get(name), others.get(name)
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            return 0.0 if type(a) is type(b) and a == b else np.inf
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return np.inf
        finite = np.isfinite(a)
        apart = abs(a[finite] - b[finite]).max(initial=0.0)
        right = self.right.get(name)
        of_right = size(right) if isinstance(right, np.ndarray) else 0.0
        return float(apart / max(of_right, 1e-3 * self._largest))


def size(x: np.ndarray) -> float:
    """The largest finite entry, without its sign."""
    return float(abs(x[np.isfinite(x)]).max(initial=0.0))


BY_DESIGN = (
    "Where nothing is left (every score is masked, or every target ignored) it gives NaN, by design; ours gives 0."
)
_MAY_BE_EMPTY = ("softmax", "attention", "cross_entropy")  # in the names of ops in which nothing may be left


class Candidate:
    """One reading of the call, the results of the right op in it, and how far from f they are."""

    def __init__(self, f: Op, op: Op, reading: Reading | None, trials: list[Trial]) -> None:
        self.f, self.reading, self.trials = f, reading, trials
        self.right = [trial.of_op(self.around(op), trial.fits) for trial in trials]
        self.fits = all(trial.fits(y) for trial, y in zip(trials, self.right, strict=True))
        pairs = list(zip(trials, self.right, strict=True))
        found = [
            without_empty_rows(f, given.name_of(op), trial.found, y) if trial.fits(y) else trial.found
            for trial, y in pairs
        ]
        self.by_design = any(one is not trial.found for one, trial in zip(found, trials, strict=True))
        self.comparisons = [Comparison(one, y, f) for one, y in zip(found, self.right, strict=True)]
        self.differing = tuple(dict.fromkeys(name for one in self.comparisons for name in one.differing()))

    def around(self, op: Op) -> Op:
        """The op as f is called."""
        return op if self.reading is None else self.reading.around(op)

    def with_mistake(
        self, mistake: Mistake, way: Op, only_if: Callable[[Comparison, Results], bool]
    ) -> Iterator[tuple[Comparison, Results]]:
        """Each comparison, and the results of the op with the mistake; gradients only if `only_if` holds of its output.

        There are none if they cannot be computed, as with some where sizes differ.
        """
        for trial, comparison in zip(self.trials, self.comparisons, strict=True):
            results: Results = {}
            with mistake.applied(), contextlib.suppress(Exception):
                results = trial.of_op(self.around(way), functools.partial(only_if, comparison))
            yield comparison, results

    @property
    def conventions(self) -> tuple[str, ...]:
        """The conventions of its reading."""
        return () if self.reading is None else self.reading.told

    @property
    def distance(self) -> float:
        """That of the result that is farthest off."""
        return max(one.distance(name, one.right) for one in self.comparisons for name in {**one.right, **one.found})

    @property
    def gap(self) -> float:
        """How far the output is off."""
        return max(one.distance(OUTPUT, one.right) for one in self.comparisons)

    @property
    def remark(self) -> str:
        """What else there is to say about results that count as right."""
        said = [BY_DESIGN] if self.by_design else []
        if not self.differing and all(one.tolerance <= SINGLE_INSIDE for one in self.comparisons):
            agreed = f"They agree to {self.distance:.0e}: something inside computes in float32."
            said += [agreed] if self.distance > 1e-8 else []
        return " ".join(said)

    def told(self) -> str:
        """By how much the output is off, and in which pattern."""
        worst = max(self.comparisons, key=lambda one: one.distance(OUTPUT, one.right))
        return apart(OUTPUT, worst.found[OUTPUT], worst.right[OUTPUT])

    def exchanged(self) -> str:
        """Whether the wrong gradients are the right ones of each other."""
        comparison = self.comparisons[0]
        wrong = [name for name in self.differing if isinstance(comparison.found.get(name), np.ndarray)]
        exchanged = {
            one
            for one, other in itertools.permutations(wrong, 2)
            if comparison.distance(one, {one: comparison.right.get(other)}) <= comparison.tolerance
        }
        if len(exchanged) == len(wrong) > 1 and OUTPUT not in wrong:
            return f"{' and '.join(wrong)} are right, but exchanged: each is returned in the place of the other."
        return ""


def singles(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """The mistakes that explain all results."""

    def explains(mistake: Mistake) -> bool:
        found = candidate.with_mistake(mistake, way, Comparison.output_explained)
        return all(comparison.explained(results) for comparison, results in found)

    return list(filter(explains, known))


def parts(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """Mistakes of which each explains some of the wrong gradients, and all together explain all of them."""
    if OUTPUT in candidate.differing:
        return []
    left = {(i, name) for i, one in enumerate(candidate.comparisons) for name in one.found if not one.alike(name)}
    parts = [(_part(mistake, candidate, way), mistake) for mistake in known]
    found: list[Mistake] = []
    for part, mistake in sorted(parts, key=lambda one: -len(one[0])):
        if part and part <= left:
            left -= part
            found.append(mistake)
    return [] if left else found


def _part(mistake: Mistake, candidate: Candidate, way: Op) -> set[tuple[int, str]]:
    """(trial, result) for each result that the mistake changes; none if f has others than it."""
    part: set[tuple[int, str]] = set()
    for i, (comparison, results) in enumerate(candidate.with_mistake(mistake, way, Comparison.alike_output)):
        beside = Comparison(results, comparison.right, way)
        changed = [name for name in comparison.right if beside.distance(name, beside.right) > comparison.tolerance]
        if results.keys() != comparison.found.keys() or not all(comparison.explained_by(results, x) for x in changed):
            return set()
        part |= {(i, name) for name in changed}
    return part


def of_output(candidate: Candidate, way: Op, known: list[Mistake]) -> list[Mistake]:
    """The mistakes that explain the output."""

    def explains(mistake: Mistake) -> bool:
        found = candidate.with_mistake(mistake, way, lambda comparison, output: False)
        return all(comparison.output_explained(results) for comparison, results in found)

    return list(filter(explains, known)) if OUTPUT in candidate.differing else []


def reachable(op: Callable[..., Any], trials: list[Trial]) -> list[Mistake]:
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


def fails(f: Callable[..., Any], trial: Trial) -> bool:
    """Whether f raises an error on these arguments."""
    try:
        trial.of_op(f)
    except Exception:
        return True
    return False


def without_empty_rows(f: Any, op: str, found: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """The results of f, with 0 in place of NaN in rows where nothing is left, if f is a function of PyTorch or JAX.

    A row lies along the last axis. Such rows are NaN in the output of f, and 0 in the right one. If there are none, the
    answer is `found` itself.
    """
    made_by = str(getattr(given.inside_partial(f), "made_by", ""))
    if not made_by.endswith(("from_torch", "from_jax")) or not any(part in op for part in _MAY_BE_EMPTY):
        return found
    filled = {name: _filled(x, right.get(name)) for name, x in found.items()}
    return found if filled["the output"] is found["the output"] else filled


def _filled(found: Any, right: Any) -> Any:
    if not isinstance(found, np.ndarray) or not isinstance(right, np.ndarray) or found.shape != right.shape:
        return found
    rows, right_rows = (x.reshape(-1, x.shape[-1] if x.ndim else 1) for x in (found, right))
    empty = np.isnan(rows).all(-1) & (right_rows == 0.0).all(-1)
    return np.where(empty[:, None], 0.0, rows).reshape(found.shape).astype(found.dtype) if empty.any() else found
