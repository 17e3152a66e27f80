"""The Transformer from scratch on NumPy and CuPy, with every backward pass derived by hand and checked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import backend, course, generation, layers, masks, models, ops, stepper, text, training, verify, viewer
    from .forms import textbook
    from .stepper.recording import step
    from .stepper.saved import saved

__version__ = "0.1.0"
_ROOMS = tuple("backend course generation layers masks models ops stepper text training verify viewer".split())
__all__ = [
    "__version__",
    "backend",
    "course",
    "generation",
    "layers",
    "masks",
    "models",
    "ops",
    "saved",
    "step",
    "stepper",
    "text",
    "textbook",
    "training",
    "verify",
    "viewer",
]


def __getattr__(name: str) -> Any:
    """Import a room, `step`, `saved` or `textbook` when first asked for: `import minitransformer` alone stays quick."""
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name in ("saved", "step"):
        return getattr(importlib.import_module(".stepper", __name__), name)
    if name == "textbook":
        return importlib.import_module(".forms", __name__).textbook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
