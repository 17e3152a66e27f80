"""The Transformer from scratch on NumPy and CuPy, with every backward pass derived by hand and checked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import moved as _moved

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "backend",
    "cost",
    "course",
    "fast",
    "generation",
    "ideas",
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

if TYPE_CHECKING:
    from . import course, fast, generation, ideas, inspect, layers, models, ops, text, training, verify
    from .core.arrays import backend, masks
    from .run import cost
    from .run.machines import parallel
    from .school.show import plots, stepper, viewer
    from .school.show.stepper.recording import step
    from .school.show.stepper.saved import saved
else:
    _PLACES = {  # the wing of each name that has no file beside this one
        "backend": "core.arrays",
        "masks": "core.arrays",
        "cost": "run",
        "parallel": "run.machines",
        "plots": "school.show",
        "stepper": "school.show",
        "viewer": "school.show",
    }

    def __getattr__(name: str):
        """Import a name at its first use, so that `import minitransformer` itself stays quick."""
        if name in ("saved", "step"):
            place = {"saved": "saved", "step": "recording"}[name]
            return getattr(importlib.import_module(f"{__name__}.school.show.stepper.{place}"), name)
        if name in __all__:
            return importlib.import_module(f"{__name__}.{_PLACES.get(name, '')}".rstrip(".") + f".{name}")
        return _moved.no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
