"""The Transformer from scratch on NumPy and CuPy, with every backward pass derived by hand and checked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import cost, course, fast, generation, inspect, layers, models, ops, text, training, verify
    from .arrays import backend, masks
    from .machines import parallel
    from .show import plots, stepper, viewer
    from .show.stepper.recording import step
    from .show.stepper.saved import saved

__version__ = "0.1.0"
# What users import from here, and the room it is in.
_PLACES = dict.fromkeys("cost course fast generation inspect layers models ops text training verify".split(), "")
_PLACES |= {
    "backend": "arrays",
    "masks": "arrays",
    "parallel": "machines",
    "plots": "show",
    "stepper": "show",
    "viewer": "show",
}
_PLACES |= {"saved": "show.stepper", "step": "show.stepper"}
__all__ = [
    "__version__",
    "backend",
    "cost",
    "course",
    "fast",
    "generation",
    "inspect",
    "layers",
    "masks",
    "models",
    "ops",
    "parallel",
    "plots",
    "saved",
    "step",
    "stepper",
    "text",
    "training",
    "verify",
    "viewer",
]


def __getattr__(name: str) -> Any:
    """Import a room, or `step` or `saved`, at its first use, so that `import minitransformer` itself stays quick."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = f"{__name__}.{_PLACES[name]}".rstrip(".")
    if name in ("saved", "step"):
        return getattr(importlib.import_module(place), name)
    return importlib.import_module(f"{place}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
