"""Numbers that hide terms of a gradient, and a second look where they are drawn anew.

With γ = 1 nobody can tell γ · mean(dh) from mean(γ · dh); with B = 0 every gradient that passes through B is 0. So
arrays that are constant or one-hot are replaced by random ones, and the gradients are compared once more, along random
directions: a term that is wrong shows there. Each row of an array keeps its sum, unless it is 0, since weights or
targets may have to sum to 1. Of a constant mask, or of constant lengths, the last entry is made another one.

Ids that are all different hide that the gradients of a repeated one must be added. They are tried with one twice; but
places may have to differ, so what is wrong then is only told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Parameter
from ..trace.values import host_copy, is_array
from . import arguments as given
from .arguments import Named
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
    return SecondLook([*left_out, *_repeated(look, arguments)])


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
    why = f"{TWICE}, {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong"
    return [(f"repeated {' and '.join(changed)}", why)] if wrong else []


def _unseen(names: list[str]) -> list[tuple[str, str]]:
    why = "constant or one-hot, and f does not run on the other numbers tried; give others"
    return [(f"what {name} hides", why) for name in names]
