"""The Transformer from scratch on NumPy and CuPy, with every backward pass derived by hand and checked."""

from typing import TYPE_CHECKING

from .arrays.lazy import at_first_use

if TYPE_CHECKING:  # each is imported at its first use, so that `import minitransformer` itself stays quick
    from . import cost, course, fast, generation, inspect, layers, models, ops, text, training, verify
    from .arrays import backend, masks
    from .machines import parallel
    from .show import plots, stepper, viewer
    from .show.stepper.recording import step
    from .show.stepper.saved import saved
else:
    __getattr__, __dir__ = at_first_use(__name__)

__version__ = "0.1.0"
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
