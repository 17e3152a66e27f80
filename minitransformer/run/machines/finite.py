"""Find where the first number that is not finite appeared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import array_module
from ...core.layers import Module


class _Found(Exception):
    pass


def first_not_finite(model: Module, run: Callable[[], Any]) -> str | None:
    """Call run(), which calls the model, and return the dotted name of the first layer whose output is not all finite.

    An inner layer comes before the layer that contains it. Returns None if every output is finite. Do not use this
    while other threads run modules.
    """
    names: dict[int, str] = {}
    for name, module in model.modules():  # a shared module keeps its first name
        names.setdefault(id(module), name or type(model).__name__)
    originals = {type(module): type(module).__call__ for _, module in model.modules()}

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Module, *inputs: Any, **options: Any) -> Any:
            result = original(self, *inputs, **options)
            output = result[0]
            if id(self) in names and not bool(array_module(output).isfinite(output).all()):
                raise _Found(names[id(self)])
            return result

        return call

    try:
        for kind, original in originals.items():
            kind.__call__ = watched(original)  # type: ignore[method-assign]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            run()
    except _Found as found:
        return str(found)
    finally:
        for kind, original in originals.items():
            kind.__call__ = original  # type: ignore[method-assign]
    return None
