"""The results of a function and of an op on the same arguments, and how far apart they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import device_of, to_device
from ..trace.values import host_copy, is_array, is_float_array
from ..verify import arguments as given
from ..verify import foreign

# The tolerance for equal results, by the least precise dtype in them.
_TOLERANCES = {"float64": 1e-8, "float32": 1e-4}
_COARSEST = 3e-2
# As far apart as results may be if something inside, such as a table of angles, is in float32.
SINGLE_INSIDE = 1e-6

AGAIN = " of another dy"
OUTPUT = "the output"

Results = dict[str, Any]  # the output, the gradients and other results to compare: arrays, or remarks in words
Op = Callable[..., Any]


@dataclass
class Trial:
    """The arguments of one call. inputs: the positional ones; names: theirs; options: of f; for_op: of the op.

    found: the results of f.
    """

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    for_op: dict[str, Any]
    seed: int

    def __post_init__(self) -> None:
        self.inputs = tuple(
            given.with_leaves(x, lambda x: given.to_float64(foreign.copied_array(x))) for x in self.inputs
        )
        self.for_op = {key: given.with_leaves(x, foreign.copied_array) for key, x in self.for_op.items()}
        self.names = [f"input {i}" for i in range(len(self.inputs))]
        self.found: Results = {}

    def of(self, f: Op) -> Results:
        """The results of f."""
        return self._results(f, self.options)

    def of_op(self, f: Op, only_if: Callable[[Results], bool] = lambda output: True) -> Results:
        """The results of an op; only its output, if `only_if` is false of that."""
        return self._results(f, self.for_op, only_if)

    def fits(self, results: Results) -> bool:
        """Whether the output has the shape of f's."""
        return np.shape(results[OUTPUT]) == np.shape(self.found[OUTPUT])

    def _results(
        self, f: Op, options: dict[str, Any], only_if: Callable[[Results], bool] = lambda output: True
    ) -> Results:
        inputs = [_own(x) for x in self.inputs]
        rng = np.random.default_rng((self.seed, 3))
        with np.errstate(all="ignore"):
            returned = f(*inputs, **{key: _own(x) for key, x in options.items()})
            y = returned[0] if isinstance(returned, tuple) and len(returned) == 2 else returned
            if not is_float_array(y):
                raise TypeError(
                    f"{given.name_of(f)} must return (floating-point array, backward), got {given.describe(returned)}"
                )
            results: Results = {OUTPUT: host_copy(y)}
            if not only_if(results):
                return results
            for again in ("", AGAIN) if y is not returned else ():
                dy = to_device(rng.normal(size=y.shape).astype(y.dtype), device_of(y).name)
                before = host_copy(dy)
                dx = returned[1](dy)
                dx = dx if isinstance(dx, tuple) else () if dx is None else (dx,)
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

    def farthest(self, name: str) -> float:
        """How far this result is from the right one, for either upstream gradient."""
        return max(self.distance(each, self.right) for each in (name, name.removesuffix(AGAIN) + AGAIN))

    def explained_by(self, others: Results, name: str) -> bool:
        """Whether a mistake agrees with f in this result, and is far nearer to f than the right op is."""
        enough = max(self.tolerance, SINGLE_INSIDE)
        of_mistake, of_right = self.distance(name, others), self.distance(name, self.right)
        return of_mistake <= enough and (of_right <= enough or 100.0 * of_mistake <= of_right)

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


def _own(x: Any) -> Any:
    """A copy that a function may change."""
    if isinstance(x, np.random.Generator):
        return given.fresh(x)
    return given.with_leaves(x, lambda leaf: leaf.copy() if is_array(leaf) else copy.copy(leaf))
