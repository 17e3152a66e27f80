"""What f and its pullback promise besides right numbers, which finite differences do not show.

The pullback is linear in the upstream gradient, adds to the gradients of parameters, changes no array of the caller and
gives the same result when called again. Results do not depend on the memory layout of arrays, hardly on their
precision, and not on whether a fast twin computes them. gradients.py calls these checks between its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Parameter
from ..trace.values import host_copy, is_array, is_float_array
from . import arguments as given  # `arguments` are those of f
from . import foreign
from .arguments import Named, leaves_of, nearby
from .differences import Differences
from .report import Row

_NEAR = 4  # draws, of which one may move a gradient little by chance
CHANGED = "was changed in place"


@dataclass
class Contract:
    """A function, its named arguments, its options and the parameters that it owns.

    results: what a run gave; upstream: its upstream gradient; differences: around it.
    """

    f: Callable[..., Any]
    arguments: list[Named]
    options: dict[str, Any]
    owned: list[tuple[str, Parameter]]
    seed: int
    results: list[Named] = field(init=False)
    upstream: Array = field(init=False)
    differences: Differences = field(init=False)

    def __post_init__(self) -> None:
        self.textbook, seed = self.f, self.seed
        # For dy and directions, and for the rest. Not default_rng(seed): the inputs may come from it; dy must differ.
        self.dy_rng, self.rng = (np.random.default_rng((seed, i)) for i in (1, 2))
        self.leaves = [leaf for name, x in self.arguments for leaf in leaves_of(name, x)]
        self.names = [name for name, x in self.leaves if is_float_array(x)]
        # Each argument with floating-point leaves needs a gradient; each parameter has one that backward adds to.
        self.wanted = [name for name, x in self.arguments if given.float_leaves(x)]
        self.start = {key: self.rng.normal(size=parameter.value.shape) for key, parameter in self.owned}
        self.written: list[str] = []  # the inputs that f has changed; from then on it gets copies
        self.size = 1.0  # of these and other numbers that are added: rounding would hide a gradient beside larger ones

    def call(self, leaves: list[Any] | None = None) -> Any:
        """Call f with fresh copies of the generators, so that every evaluation draws the same random numbers."""
        values = iter([x for _, x in self.leaves] if leaves is None else leaves)
        lent = given.copied if self.written else given.fresh
        inputs = [given.with_leaves(x, lambda _: lent(next(values))) for _, x in self.arguments]
        result = self.f(*inputs, **{key: given.fresh(value) for key, value in self.options.items()})
        if isinstance(result, tuple) and len(result) == 2 and is_float_array(result[0]) and callable(result[1]):
            return result
        raise TypeError(
            f"{given.name_of(self.f)} must return (floating-point array, backward), got {given.describe(result)}"
        )

    def in_other_forms(self, rows: list[Row]) -> list[Row]:
        """The rows of `run`, marked where results differ for another memory layout or in float32."""
        self.size = min(1.0, self._largest(self.results) or 1.0)
        for layout in (given.transposed, given.strided):
            unlike = self._unlike(self._laid_out(layout))
            rows = marked(rows, unlike, "it differs when arrays are transposed or have gaps in memory")
        try:
            single, double = self._in_single_and_double(0.0)
        except Exception as error:  # f may hold float64 arrays of its own, which an op refuses to mix with float32
            return [*rows, Row("in float32", "input", (), problem=f"not checked: {error}")]
        if not all(np.isfinite(host_copy(x)).all() for _, x in single if is_float_array(x)):
            return rows
        # Compare with float64 on the same rounded numbers. What a relative change of 1e-6 moves may differ in float32.
        with np.errstate(all="ignore"):  # at the end of a domain these may leave it
            beside = self._rerun(
                lambda x: x * (1.0 + 1e-6 * to_device(self.rng.normal(size=x.shape), device_of(x).name))
            )
        unlike = [name for name in self._unlike(single, double, 1e-3) if name not in self._unlike(beside, rtol=1e-4)]
        unlike = [name for name in unlike if name != "the output" and self._is_no_rounding(name, single, double)]
        return marked(rows, unlike, "it differs between float32 and float64")

    def _in_single_and_double(self, move: float) -> tuple[list[Named], list[Named]]:
        """The results on equal numbers of float32, in float32 and in float64. move: how far they are moved before."""
        state = int(self.rng.integers(2**32))

        def moved(x: Array) -> Array:
            noise = move * np.random.default_rng(state).normal(size=x.shape)
            return (x * (1.0 + to_device(noise, device_of(x).name))).astype(np.float32)

        with np.errstate(all="ignore"):
            return self._rerun(moved), self._rerun(lambda x: moved(x).astype(np.float64))

    def _is_no_rounding(self, name: str, single: list[Named], double: list[Named]) -> bool:
        """Whether the error of a result in float32 stays beside: that of rounding, where terms cancel, is another."""
        pairs = [(single, double), *(self._in_single_and_double(1e-5) for _ in range(2))]
        first, *others = (
            np.ravel(host_copy(dict(one)[name]).astype(np.float64) - host_copy(dict(other)[name]))
            for one, other in pairs
        )
        return all(2.0 * first @ error > np.linalg.norm(first) * np.linalg.norm(error) for error in others)

    def as_given(self, rows: list[Row]) -> list[Row]:
        """The rows of `run`, marked where results in the 16 bits of the caller's arrays are farther off than need be.

        They are compared with those in float64, on the same numbers. Rounding each number once moves a result by about
        half an eps of its size, and more if f itself is sensitive to what it is given, or to what it keeps for backward
        (softmax to its output, where that is nearly one-hot); a sum kept in 16 bits drifts.
        A gradient whose terms cancel, such as that of the bias of attention's keys, is rounding and nothing else there.
        """
        as_given = foreign.trait(self.f, "as_given", None)
        if as_given is None:
            return rows
        dtype, narrow, keeping = as_given
        rounded, eps = foreign.rounded_like(dtype), foreign.eps_of(self.f, dtype)
        wide = self._rerun(rounded)
        near = [self._beside(rounded, eps) for _ in range(_NEAR)]
        with keeping():
            near.append(self._rerun(rounded))
        f, owned = self.f, self.owned
        try:
            self.f, self.owned = narrow, given.parameters_of(narrow, None)
            for (_, ours), (_, own) in zip(owned, self.owned, strict=True):
                own.value = ours.value
            found = self._rerun(rounded)
        except (TypeError, ValueError) as error:
            return [*rows, Row(f"in {dtype}", "input", (), problem=f"not checked: {error}")]
        finally:
            self.f, self.owned = f, owned
        largest = max((float(np.linalg.norm(x)) for _, x in wide[1:] if is_float_array(x)), default=0.0)
        for (name, x), (_, other), *beside in zip(wide[1:], found[1:], *(each[1:] for each in near), strict=False):
            if is_float_array(x) and is_float_array(other) and x.shape == other.shape:
                size = float(np.linalg.norm(x)) or 1.0
                if size <= 1e-9 * largest:
                    continue
                off = float(np.linalg.norm(other - x)) / size
                moves = [float(np.linalg.norm((y - x)[np.isfinite(y)])) / size for _, y in beside]
                if not off <= eps + 2.5 * max(moves):
                    why = f"in {dtype} it is off by {off:.1%}, more than rounding each number once"
                    rows = marked(rows, [name], f"{why}; is a sum kept in {dtype}?")
        return rows

    def _beside(self, rounded: Callable[[Array], Array], eps: float) -> list[Named]:
        """The results on numbers within half an eps, towards 0 if f is not defined there: no probability is above 1."""
        for most in (0.5, 0.0):
            found = self._rerun(lambda x: rounded(x) * (1.0 + eps * self.rng.uniform(-0.5, most, size=x.shape)))  # noqa: B023
            if all(np.isfinite(host_copy(x)).all() for _, x in found if is_float_array(x)):
                break
        return found

    def with_twin(self, twin: Callable[..., Any], rows: list[Row]) -> list[Row]:
        """The rows of `run`, marked where the fast twin of f gives different results."""
        self.f = twin
        for layout in (lambda x: x, given.transposed, given.strided):
            unlike = self._unlike(self._rerun(layout))
            rows = marked(rows, unlike, "the fast twin differs from the textbook form")
        return rows

    def _laid_out(self, layout: Callable[[Array], Array]) -> list[Named]:
        """The results of f in another memory layout.

        A function of others may refuse a layout with an error, as `view` of PyTorch does: then nothing is wrong in
        silence. If it is the inputs', that of the upstream gradient is tried alone.
        """
        if not foreign.is_separate(self.f):
            return self._rerun(layout)
        for of_inputs in (layout, lambda x: x):
            with contextlib.suppress(Exception):
                return self._rerun(of_inputs, layout)
        return self.results

    def _rerun(
        self, change: Callable[[Array], Array], of_upstream: Callable[[Array], Array] | None = None
    ) -> list[Named]:
        """The results of f with `change` applied to each floating-point input, parameter and upstream gradient."""
        with self._parameters_as(change):
            y, backward = self.call([change(x) if is_float_array(x) else x for _, x in self.leaves])
            dy = (of_upstream or change)(self.upstream)
            return self._named(y, *self._pull_back(backward, dy if dy.dtype == y.dtype else dy.astype(y.dtype)))

    def _call_elsewhere(self) -> Any:
        """Call f on other numbers: floating-point numbers near the given ones, ids and masks in reverse order."""
        near = [nearby(x, self.rng) for _, x in self.leaves]
        with np.errstate(all="ignore"), self._parameters_as(lambda x: nearby(x, self.rng)):
            try:
                return self.call([given.flipped(x) for x in near])
            except Exception:  # the order may matter, as in a list of lengths
                return self.call(near)

    def _parameters_as(self, change: Callable[[Array], Array]) -> contextlib.AbstractContextManager[None]:
        return given.parameters_as(change, *(parameter for _, parameter in self.owned))

    def _pull_back(
        self, backward: Callable[..., Any], dy: Array, scale: float = 1.0
    ) -> tuple[list[Any], dict[str, Any]]:
        """The gradients that backward returns for the leaves of the inputs, and those it adds to the parameters.

        The parameters' gradients start from nonzero numbers: a pullback must add to them, not overwrite them.
        """
        for key, p in self.owned:
            start = scale * self.size * self.start[key]
            p.grad = to_device(start.astype(p.value.dtype), device_of(p.value).name)
        start = {key: parameter.grad.copy() for key, parameter in self.owned}
        result = backward(dy)
        raw = list(result) if isinstance(result, tuple) else [] if result is None else [result]
        self.raw = given.without_spare_nones([x for _, x in self.arguments], raw)
        asked = [x for name, x in self.arguments if name in self.wanted]
        leaves = [g for x, dx in zip(asked, self.raw, strict=False) for g in given.gradients_of(x, dx)]
        return leaves, {key: parameter.grad - start[key] for key, parameter in self.owned}

    def _drawn(self, y: Array) -> Array:
        drawn = self.size * self.rng.normal(size=y.shape)
        return to_device(drawn.astype(y.dtype), device_of(y).name)

    def _multiples(self, y: Array, backward: Callable[..., Any]) -> list[list[Any]]:
        """The gradients again, three times: from those of two multiples of the upstream gradient, and from two sums."""

        def pulled(dy: Array, factor: float = 1.0) -> list[Any]:
            results = self._named(y, *self._pull_back(backward, factor * dy, factor))
            return [x / factor if is_float_array(x) else x for _, x in results[1:]]

        other = self._drawn(y)
        in_16_bits = foreign.eps_of(self.f) > 1e-4  # which hold no large numbers
        with np.errstate(all="ignore"):
            found = [
                pulled(self.upstream, factor) for factor in ((-2.0, 0.5) if in_16_bits else (-(2.0**60), 2.0**-20))
            ]
            both = zip(pulled(self.upstream + other), pulled(other), strict=True)
            return [*found, [a - b if given.misfit(b, a) == "" else None for a, b in both]]

    def _not_linear(self, multiples: list[list[Any]]) -> list[str]:
        """The names of the gradients that do not scale with the upstream gradient, or are not additive in it."""
        first, *names = (name for name, _ in self.results)
        output = (first, self.results[0][1])
        with np.errstate(all="ignore"):
            again = [self._unlike([output, *zip(names, each, strict=False)], rtol=1e-6) for each in multiples]
        return [name for unlike in again for name in unlike]

    def _named(self, y: Array, returned: list[Any], added: dict[str, Array]) -> list[Named]:
        return [("the output", y), *zip(self.names, returned, strict=False), *added.items()]

    def _unlike(self, others: list[Named], results: list[Named] | None = None, rtol: float = 1e-9) -> list[str]:
        """The names of the results of `run` that another run does not reproduce, up to the order of its sums.

        A sum that should be zero comes out as rounding, so numbers far below all gradients and the output may differ.
        """
        results = self.results if results is None else results
        rtol = max(rtol, foreign.least_rtol(max(foreign.eps_of(self.f), self.differences.precision)))
        largest = self._largest(results)
        pairs = [(name, x, other) for (name, x), (_, other) in zip(results, others, strict=False) if is_float_array(x)]
        return [name for name, x, other in pairs if not _alike(x, other, rtol, 0.01 * rtol * largest)]

    def _largest(self, results: list[Named]) -> float:
        """The size of the largest gradient, or of the output if that counts for more."""
        arrays = [0.1 * self.differences.weighted, *(x for _, x in results[1:] if is_float_array(x))]
        return max(float(abs(host_copy(x)).max(initial=0.0)) for x in arrays)

    def _belongings(self) -> list[Named]:
        """Every array that belongs to the caller: neither f nor its pullback may change it."""
        values = [(key, parameter.value) for key, parameter in self.owned]
        options = [leaf for name, x in self.options.items() for leaf in leaves_of(name, x)]
        return [(name, x) for name, x in [*self.leaves, *options, *values] if is_array(x)]

    def _note_what_is_written(self, before: list[Named]) -> None:
        """Note which inputs f has changed, and restore their numbers, in new arrays: its output may be in the old."""
        kept, changed = dict(before), self._changed(before, self._belongings())
        self.written += [name for name, _ in self.leaves if name in changed]
        restored = ((name, to_device(kept[name], device_of(x).name)) for name, x in self.leaves if name in changed)
        self.leaves = list((dict(self.leaves) | dict(restored)).items())

    def _copies(self, arrays: list[Named]) -> list[Named]:
        return [(name, host_copy(x)) for name, x in arrays]

    def _changed(self, before: list[Named], now: list[Named]) -> list[str]:
        pairs = zip(before, now, strict=False)
        return [name for (name, old), (_, new) in pairs if not np.array_equal(old, host_copy(new))]


def _alike(one: Array, other: Any, rtol: float, slack: float) -> bool:
    """Whether two arrays differ by at most rtol times the largest entry, plus the slack."""
    if not is_float_array(other) or one.shape != other.shape:
        return False
    a, b = host_copy(one), host_copy(other)
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    return bool(np.all(abs(a - b) <= rtol * abs(a).max(initial=0.0) + slack))


def marked(rows: list[Row], names: Iterable[str], problem: str, first: bool = False) -> list[Row]:
    """The rows with `problem` written into those with these names, plus a new row for each name without one.

    A row that is already wrong keeps its own problem, unless `first` is true.
    """
    names = dict.fromkeys(names)
    return [
        row.wrong(problem) if row.name in names and (not row.is_wrong or first) else row
        for row in [*rows, *(Row(name, "input", ()) for name in names if name not in {row.name for row in rows})]
    ]
