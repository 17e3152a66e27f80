"""Numbers that hide terms of a gradient, and a second look where they are drawn anew.

With γ = 1 nobody can tell γ · mean(dh) from mean(γ · dh); with B = 0 every gradient that passes through B is 0. So
arrays that are constant or one-hot are replaced by random ones, and the gradients are compared once more, along random
directions: a term that is wrong shows there. Each row of an array keeps its sum, unless it is 0, since weights or
targets may have to sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ...core.layers import Parameter
from ..trace.values import host_copy, is_float_array
from . import arguments as given
from .arguments import Named
from .report import Row

Look = Callable[[list[Named], bool], list[Row]]  # from arguments, and whether to look finely, to rows
COARSE: dict[str, Any] = {"entrywise": 0, "directions": 2, "entries_at_kinks": False}


def hides(x: Any) -> bool:
    """Whether x is an array that hides terms: all entries equal, or one-hot; a single number only if it is 0 or 1."""
    if not is_float_array(x) or x.size == 0:
        return False
    value = host_copy(x)
    if value.size == 1:
        return bool(value.item() in (0.0, 1.0))
    return bool(np.isfinite(value).all()) and (bool((value == value.flat[0]).all()) or _one_hot_axis(value) is not None)


def _one_hot_axis(value: np.ndarray) -> int | None:
    if not ((value == 0.0) | (value == 1.0)).all():
        return None
    axes = reversed(range(value.ndim))
    return next((axis for axis in axes if value.shape[axis] > 1 and (value.sum(axis) == 1.0).all()), None)


def drawn(x: Array, rng: np.random.Generator) -> Array:
    """Random numbers in place of an array that hides terms: of any sign for zeros, else of x's sign, with its sums."""
    value = host_copy(x)
    if not value.any():
        fresh = rng.normal(size=value.shape)
    else:
        axis = _one_hot_axis(value)
        fresh = rng.uniform(0.5, 1.5, value.shape) * (value.flat[0] if axis is None else 1.0)
        axis = -1 if axis is None else axis
        if value.ndim and value.shape[axis] > 1:
            fresh *= value.sum(axis, keepdims=True) / fresh.sum(axis, keepdims=True)
    return to_device(fresh.astype(value.dtype), device_of(x).name)


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
    """Look again, with random numbers in place of those that hide terms; without these nothing runs.

    First all arrays that hide terms are drawn anew; if f does not run then, only the parameters are. Values and
    gradients of the parameters are restored afterwards.
    """
    inputs = [name for argument in arguments for name, x in given.leaves_of(*argument) if hides(x)]
    hiding = [(name, parameter) for name, parameter in parameters if hides(parameter.value)]
    owned = [name for name, _ in hiding]
    for redrawn in [inputs, []] if inputs and owned else [inputs] if inputs or owned else []:
        rng = np.random.default_rng((seed, 4))

        def anew(x: Any) -> Any:
            return drawn(x, rng) if hides(x) else x  # noqa: B023

        moved = [(name, given.with_leaves(x, anew)) for name, x in arguments] if redrawn else arguments
        try:
            with np.errstate(all="ignore"), given.parameters_as(anew, *(parameter for _, parameter in hiding)):
                rows = look(moved, False)
                rows = rows if not any(row.is_wrong for row in rows) else look(moved, True)
        except Exception:  # f is somebody's, and may need these very numbers
            continue
        left_out = [] if redrawn else _unseen(inputs)
        if not any(row.is_wrong for row in rows):
            return SecondLook(left_out)
        return SecondLook(left_out, rows, redrawn + owned, moved)
    return SecondLook(_unseen(inputs + owned))


def _unseen(names: list[str]) -> list[tuple[str, str]]:
    why = "constant or one-hot, and f does not run on the other numbers tried; give others"
    return [(f"what {name} hides", why) for name in names]
