"""Training: optimisers, learning-rate schedules and gradient clipping."""

from .optimizers import AdamW, clip_gradient_norm, constant, cosine, inverse_sqrt, warmup_schedule

__all__ = ["AdamW", "clip_gradient_norm", "constant", "cosine", "inverse_sqrt", "warmup_schedule"]
