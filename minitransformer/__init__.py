"""The Transformer from scratch on NumPy and CuPy, with every backward pass derived by hand and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .stepper.recording import step
    from .stepper.saved import saved

__version__ = "0.1.0"
__all__ = ["__version__", "saved", "step"]


def __getattr__(name: str) -> Any:
    """Import `step` and `saved` when they are first asked for, so that `import minitransformer` alone stays quick."""
    if name in ("saved", "step"):
        from . import stepper

        return getattr(stepper, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
