"""Training: optimisers, learning-rate schedules, gradient clipping, and a loop that can be read aloud.

What a long run needs around the loop stands in run/machines/; `minitransformer.training` has those names, too.
"""

from .loop import Accelerate, Worker, as_written, train
from .optimizers import SGD, Adam, AdamW, Optimizer, clip_gradient_norm, constant, cosine, inverse_sqrt, warmup_schedule

__all__ = [
    "SGD",
    "Accelerate",
    "Adam",
    "AdamW",
    "Optimizer",
    "Worker",
    "as_written",
    "clip_gradient_norm",
    "constant",
    "cosine",
    "inverse_sqrt",
    "train",
    "warmup_schedule",
]
