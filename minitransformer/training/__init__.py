"""Training: optimisers, learning-rate schedules, gradient clipping, and a loop that can be read aloud.

What a long run needs around the loop stands in machines/, and its names can be imported from here too.
"""

from typing import TYPE_CHECKING

from ..arrays.lazy import at_first_use
from .loop import Accelerate, Worker, as_written, train
from .optimizers import (
    SGD,
    Adam,
    AdamW,
    Optimizer,
    clip_gradient_norm,
    constant,
    cosine,
    inverse_sqrt,
    warmup_schedule,
)

if TYPE_CHECKING:  # of other rooms, which are imported at the first use
    from ..later.muon import Muon, newton_schulz
    from ..machines.settings import TrainingSettings
    from ..machines.trainer import Outcome, Trainer
    from ..machines.workers import Workers
else:
    __getattr__, __dir__ = at_first_use(__name__)

__all__ = [
    "SGD",
    "Accelerate",
    "Adam",
    "AdamW",
    "Muon",
    "Optimizer",
    "Outcome",
    "Trainer",
    "TrainingSettings",
    "Worker",
    "Workers",
    "as_written",
    "clip_gradient_norm",
    "constant",
    "cosine",
    "inverse_sqrt",
    "newton_schulz",
    "train",
    "warmup_schedule",
]
