"""Find where the first number that is not finite appeared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import array_module
from ...core.layers import Module


class _Found(Exception):
    pass


def first_not_finite(model: Module, run: Callable[[], Any]) -> str | None:
    """Call run(), which calls the model, and return the dotted name of the first layer whose output is not all finite.

    An inner layer comes before the layer that contains it. Returns None if every output is finite. Only the layers that
    this thread runs are seen.
    """
    names: dict[int, str] = {}
    for name, module in model.modules():  # a shared module keeps its first name
        names.setdefault(id(module), name or type(model).__name__)

    def look(frame: Any, event: str, returned: Any) -> None:
        if event == "return" and frame.f_code.co_name == "__call__" and isinstance(returned, tuple):
            name = names.get(id(frame.f_locals.get("self")))
            if name is not None and not bool(array_module(returned[0]).isfinite(returned[0]).all()):
                raise _Found(name)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            run()
    except _Found as found:
        return str(found)
    finally:
        sys.setprofile(before)
    return None
