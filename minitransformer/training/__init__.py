"""Training: optimisers, learning-rate schedules, gradient clipping, workers, checkpoints and the loop."""

from .loop import Accelerate, Outcome, Trainer, as_written
from .muon import Muon, newton_schulz
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
from .settings import TrainingSettings
from .workers import Workers

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
    "Workers",
    "as_written",
    "clip_gradient_norm",
    "constant",
    "cosine",
    "inverse_sqrt",
    "newton_schulz",
    "warmup_schedule",
]
