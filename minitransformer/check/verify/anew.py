"""Numbers that hide terms of a gradient, and a second look where they are drawn anew.

With γ = 1 nobody can tell γ · mean(dh) from mean(γ · dh); with B = 0 every gradient that passes through B is 0. So
arrays that are constant or one-hot are replaced by random ones, and the gradients are compared once more, along random
directions: a term that is wrong shows there. Each row of an array keeps its sum, unless it is 0, since weights or
targets may have to sum to 1. Of a constant mask, or of constant lengths, the last entry is made another one.

Ids that are all different hide that the gradients of a repeated one must be added. They are tried with one twice; but
places may have to differ, so what is wrong then is only told. So it is with an axis of length 1, which hides sums: a
bias that is added to a single row gets that row of dy. Arrays with length 1 along the same axis are made longer there,
all but those whose gradients keep length 1, since these are shared by what lies along it. One head, or one group, hides
how they are split and merged: where an argument is the integer 1, it is tried with 2.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Parameter
from ..trace.values import host_copy, is_array, is_float_array
from . import arguments as given
from .arguments import MISFIT, Named
from .report import Row

Look = Callable[[list[Named], bool], list[Row]]  # from arguments, and whether to look finely, to rows
TWICE = "where one occurs twice"
COARSE: dict[str, Any] = {"entrywise": 0, "directions": 2, "entries_at_kinks": False}


def hides(x: Any) -> bool:
    """Whether x is an array that hides terms: all entries equal, or one-hot; a single number only if it is 0 or 1."""
    if not is_array(x) or x.size == 0 or x.dtype.kind not in "fiub":
        return False
    value = host_copy(x)
    if x.dtype.kind != "f":
        return value.size > 1 and value.flat[0] >= 0 and bool((value == value.flat[0]).all())
    if value.size == 1:
        return bool(value.item() in (0.0, 1.0))
    return bool(np.isfinite(value).all()) and (bool((value == value.flat[0]).all()) or _one_hot_axis(value) is not None)


def _one_hot_axis(value: np.ndarray) -> int | None:
    if not ((value == 0.0) | (value == 1.0)).all():
        return None
    axes = reversed(range(value.ndim))
    return next((axis for axis in axes if value.shape[axis] > 1 and (value.sum(axis) == 1.0).all()), None)


def drawn(x: Array, rng: np.random.Generator) -> Array:
    """Random numbers in place of an array that hides terms: of any sign for zeros, else of x's sign, with its sums.

    Of a mask, ids or lengths only the last entry changes: it is then hidden, or one less.
    """
    value = host_copy(x)
    if value.dtype.kind != "f":
        fresh = value.copy()
        fresh.flat[-1] = not value.flat[0] if value.flat[0] <= 1 else value.flat[0] - 1
    elif not value.any():
        fresh = rng.normal(size=value.shape)
    else:
        axis = _one_hot_axis(value)
        fresh = rng.uniform(0.5, 1.5, value.shape) * (value.flat[0] if axis is None else 1.0)
        axis = -1 if axis is None else axis
        if value.ndim and value.shape[axis] > 1:
            fresh *= value.sum(axis, keepdims=True) / fresh.sum(axis, keepdims=True)
    return to_device(fresh.astype(value.dtype), device_of(x).name)


def twice(x: Any, lengths: set[int]) -> Any:
    """Ids that are all different, with the second like the first; any other value unchanged.

    So is an order of what an array of one of these lengths holds: with a number twice it is none.
    """
    if not is_array(x) or x.dtype.kind not in "iu" or x.size < 2:
        return x
    value = host_copy(x)
    sorted_ones = np.sort(value.ravel())
    is_order = value.size in lengths and np.array_equal(sorted_ones, np.arange(value.size))
    if is_order or (np.diff(sorted_ones) == 0).any():
        return x
    value.flat[1] = value.flat[0]
    return to_device(value, device_of(x).name)


class SecondLook(NamedTuple):
    """What came of it: left_out names what could not be looked at.

    If some rows are wrong, they are here, with the names of the arrays drawn anew and the arguments used.
    """

    left_out: list[tuple[str, str]]
    rows: list[Row] = []  # noqa: RUF012
    names: list[str] = []  # noqa: RUF012
    arguments: list[Named] = []  # noqa: RUF012

    @property
    def note(self) -> str:
        """A note on the rows; "" without them."""
        if not self.rows:
            return ""
        are = "is" if len(self.names) == 1 else "are"
        return (
            f"With the given numbers all gradients are right, because {', '.join(self.names)} {are} constant or "
            "one-hot, which hides terms; the table is for random numbers in their place."
        )


def second_look(look: Look, arguments: list[Named], parameters: list[tuple[str, Parameter]], seed: int) -> SecondLook:
    """Look again, with other numbers in place of those that hide terms; without these nothing runs.

    First all arrays that hide terms are drawn anew; if f does not run then, those of integers stay as they are, and
    then all but the parameters. Values and gradients of the parameters are restored afterwards.
    """
    inputs = [leaf for argument in arguments for leaf in given.leaves_of(*argument) if hides(leaf[1])]
    hiding = [(name, parameter) for name, parameter in parameters if hides(parameter.value)]
    owned, tried = [name for name, _ in hiding], [list[str]()]
    for kinds in ("fiub", "f", ""):
        redrawn = [name for name, x in inputs if x.dtype.kind in kinds]
        if redrawn + owned in tried:
            continue
        tried.append(redrawn + owned)
        rng = np.random.default_rng((seed, 4))

        def anew(x: Any, kinds: str = "f") -> Any:
            return drawn(x, rng) if hides(x) and x.dtype.kind in kinds else x  # noqa: B023

        moved = [(name, given.with_leaves(x, lambda leaf: anew(leaf, kinds))) for name, x in arguments]  # noqa: B023
        try:
            with np.errstate(all="ignore"), given.parameters_as(anew, *(parameter for _, parameter in hiding)):
                rows = look(moved, False)
                rows = rows if not any(row.is_wrong for row in rows) else look(moved, True)
        except Exception:  # f is somebody's, and may need these very numbers
            continue
        left_out = _unseen([name for name, _ in inputs if name not in redrawn])
        if any(row.is_wrong for row in rows):
            return SecondLook(left_out, rows, redrawn + owned, moved)
        break
    else:
        left_out = _unseen([name for name, _ in inputs] + owned)
    told = [*_repeated(look, arguments), *_counted_to_two(look, arguments), *_made_longer(look, arguments)]
    return SecondLook(left_out + told)


def _repeated(look: Look, arguments: list[Named]) -> list[tuple[str, str]]:
    """What is wrong where one of several ids, or places, occurs twice."""
    lengths = {length for _, x in arguments for leaf in given.float_leaves(x) for length in leaf.shape}
    moved = [(name, given.with_leaves(x, lambda leaf: twice(leaf, lengths))) for name, x in arguments]
    leaves = [leaf for argument in arguments for leaf in given.leaves_of(*argument)]
    changed = [name for name, x in leaves if twice(x, lengths) is not x]
    wrong: list[str] = []
    if changed:
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            wrong = [f"d{row.name}" for row in look(moved, False) if row.is_wrong]
    return [(f"repeated {' and '.join(changed)}", f"{TWICE}, {_are_wrong(wrong)}")] if wrong else []


def _counted_to_two(look: Look, arguments: list[Named]) -> list[tuple[str, str]]:
    """What is wrong where an argument that is the integer 1, such as a number of heads, is 2."""
    told = []
    for i, (name, x) in enumerate(arguments):
        if type(x) is int and x == 1:
            moved = [*arguments[:i], (name, 2), *arguments[i + 1 :]]
            with contextlib.suppress(Exception), np.errstate(all="ignore"):
                if wrong := [f"d{row.name}" for row in look(moved, False) if row.is_wrong]:
                    told.append((f"{name} above 1", f"with 2, {_are_wrong(wrong)}"))
    return told


def _are_wrong(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} wrong"


def _made_longer(look: Look, arguments: list[Named]) -> list[tuple[str, str]]:
    """What is wrong where an axis of length 1 is longer, and what remains open."""
    arrays = {name: x for argument in arguments for name, x in given.leaves_of(*argument) if is_array(x)}
    n = next(n for n in itertools.count(2) if all(n not in x.shape for x in arrays.values()))
    rows_of = functools.partial(_rows_of_longer, look, arguments, n)
    told = []
    for axis in range(max((x.ndim for x in arrays.values()), default=0)):
        axes = {name: axis for name, x in arrays.items() if x.shape[axis : axis + 1] == (1,)}
        rows, shared = rows_of(axes), set[str]()
        may_misfit = {name for name, x in arrays.items() if 1 in x.shape}
        while misfits := may_misfit - shared & {row.name for row in rows if _misfits(row)}:
            for name in sorted(
                misfits
            ):  # its gradient keeps length 1; or it does not, as that of a bias of the only output
                if name in axes:
                    shared.add(name)
                    del axes[name]
                else:
                    axes[name] = arrays[name].shape.index(1)
            rows = rows_of(axes)
        wrong = [row for row in rows if _misfits(row) or (row.is_wrong and math.isfinite(row.error))]
        if all(arrays[name].ndim == 1 + at for name, at in axes.items()):  # a mean over outputs, of which there is one?
            wrong = [] if all(math.isclose(row.hand, n * row.numerical, rel_tol=1e-4) for row in wrong) else wrong
        if wrong:
            why = f"of {', '.join(axes)}; with {n} there, {_are_wrong([f'd{row.name}' for row in wrong])}"
            told.append((f"a length above 1 of axis {axis}", why))
            continue
        first, *others = [name for name, x in arrays.items() if is_float_array(x)] or [""]
        for name in others if rows and axes.get(first) == axis else ():  # a bias for all, or one more row of each?
            is_vector = arrays[name].ndim == 2 and arrays[name].size == max(arrays[name].shape)
            if is_vector and axes.get(name) == axis:
                alone = rows_of({each: axes[each] for each in axes if each != name})
                if any(row.name == name and _misfits(row) for row in alone):
                    told.append((f"whether d{name} is a sum along axis {axis}", f"{first} has length 1 there, too"))
    return told


def _rows_of_longer(look: Look, arguments: list[Named], n: int, axes: dict[str, int]) -> list[Row]:
    """The rows where these arrays are longer, each along its axis; none if f is a function for length 1 alone."""
    leaves = [leaf for argument in arguments for leaf in given.leaves_of(*argument)]
    order = (axes.get(name) for name, _ in leaves)

    def moved(leaf: Any) -> Any:
        axis = next(order)
        return leaf if axis is None else longer(leaf, axis, n)

    if any(
        is_float_array(x) or (x.dtype.kind in "iu" and x.size and x.max() > 1) for name, x in leaves if name in axes
    ):
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            return look([(name, given.with_leaves(x, moved)) for name, x in arguments], False)
    return []


def _misfits(row: Row) -> bool:
    return row.problem.startswith(MISFIT)


def longer(x: Array, axis: int, n: int) -> Array:
    """The array n times along an axis of length 1, each time with its entries moved on along another axis.

    So rows keep their sums, one-hot rows stay such, and a mask leaves as much.
    """
    value = host_copy(x)
    along = next((i for i in reversed(range(value.ndim)) if value.shape[i] > 1), axis)
    moved = np.concatenate([np.roll(value, i, along) for i in range(n)], axis)
    return to_device(moved, device_of(x).name)


def _unseen(names: list[str]) -> list[tuple[str, str]]:
    why = "constant or one-hot, and f does not run on the other numbers tried; give others"
    return [(f"what {name} hides", why) for name in names]
