"""How to train: every choice except the model's sizes and the data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...core.arrays.boundary import check_flags, check_positive, check_sizes
from ...core.layers import Parameter
from ...core.training.optimizers import SGD, Adam, AdamW, Optimizer, constant, cosine, inverse_sqrt
from ...ideas.after.muon import Muon
from .workers import check_workers

# Each optimiser by its name, with the settings that it takes besides the learning rate.
OPTIMIZERS: dict[str, tuple[type[Optimizer], tuple[str, ...]]] = {
    "adamw": (AdamW, ("betas", "eps", "weight_decay")),
    "adam": (Adam, ("betas", "eps")),
    "sgd": (SGD, ("momentum",)),
    "muon": (Muon, ("momentum", "betas", "eps", "weight_decay")),
}
SCHEDULES = ("constant", "cosine", "inverse-sqrt")
PRECISIONS = ("float32", "tf32", "float16")
_MOST_BATCHES = 10_000  # per step, because Ctrl-C waits for the current step


def used_by(setting: str) -> str:
    """The names of the optimisers that take a setting: "sgd and muon"."""
    return " and ".join(name for name, (_, settings) in OPTIMIZERS.items() if setting in settings)


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a run. Steps count from 1; a step may take several batches (accumulate)."""

    steps: int = 1000
    optimizer: str = "adamw"  # adamw, adam, sgd or muon (muon updates the matrices, adamw the rest)
    learning_rate: float = 1e-3  # the peak of the schedule
    schedule: str = "cosine"  # constant, cosine or inverse-sqrt (Vaswani et al. 2017, with learning_rate as peak)
    warmup: int = 100  # steps from 0 up to the learning rate
    floor: float = 0.0  # the learning rate at the end of the cosine
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0  # used by adamw and muon
    momentum: float = 0.9  # used by sgd and muon
    clip: float = 1.0  # largest norm of all gradients together; 0: no limit
    accumulate: int = 1  # batches per step
    workers: int = 1  # threads that share a batch
    validate_every: int = 100  # steps
    save_every: int = 500  # steps
    average: int = 1  # checkpoints whose mean is the final model; 1: the model of the lowest validation loss
    patience: int = 0  # validations without improvement before the run stops early; 0: never
    shard_optimizer: bool = False  # each rank of mpiexec keeps one part of the optimiser's state
    precision: str = "float32"  # float32, tf32 (for a GPU's matrix products) or float16 (float32 masters, scaled loss)
    seed: int = 0

    def __post_init__(self) -> None:
        where = type(self).__name__
        names = ("steps", "accumulate", "validate_every", "save_every", "average")
        check_sizes(where, **{name: getattr(self, name) for name in names})
        check_workers(where, self.workers)
        check_positive(where, learning_rate=self.learning_rate, eps=self.eps)
        check_flags(where, shard_optimizer=self.shard_optimizer)
        if self.accumulate > _MOST_BATCHES:
            raise ValueError(f"{where}: accumulate must be at most {_MOST_BATCHES}, got {self.accumulate}")
        for name in ("warmup", "floor", "clip", "patience", "seed", "weight_decay", "beta1", "beta2", "momentum"):
            if not isinstance(getattr(self, name), int | float) or not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{where}: {name} must be at least 0, and finite, got {getattr(self, name)}")
        for name in ("beta1", "beta2", "momentum"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{where}: {name} must be below 1, got {getattr(self, name)}")
        for name, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{where}: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.optimizer == "muon" and self.shard_optimizer:
            raise ValueError(f"{where}: muon needs whole matrices, so it cannot be cut up; leave out shard_optimizer")
        if self.schedule == "cosine" and self.warmup >= self.steps:
            raise ValueError(
                f"{where}: warmup must be less than steps, got {self.warmup} and {self.steps}; set warmup as well"
            )

    def optimizer_of(self, parameters: Iterable[tuple[str, Parameter]]) -> Optimizer:
        """A new optimiser of these settings."""
        kind, names = OPTIMIZERS[self.optimizer]
        return kind(parameters, self.learning_rate, **{name: getattr(self, name) for name in names})

    @property
    def betas(self) -> tuple[float, float]:
        """Adam's β1 and β2."""
        return self.beta1, self.beta2

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if self.schedule == "cosine":
            return cosine(step, self.learning_rate, self.warmup, self.steps, self.floor)
        if self.schedule == "inverse-sqrt":
            return inverse_sqrt(step, self.learning_rate, max(1, self.warmup))
        return constant(step, self.learning_rate) * min(1.0, step / max(1, self.warmup))
