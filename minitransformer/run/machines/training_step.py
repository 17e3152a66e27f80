"""One step of a long run: core/training/loop.py on threads and ranks, with float16 and gradients of many batches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...check.trace.tracing import textbook_of
from ...core.arrays.backend import multiply_in_tf32
from ...core.layers import Parameter
from ...core.models import folder as model_folder
from ...core.training.corpora import Corpus
from ...core.training.loop import DROPOUT, ORDER, Accelerate, clip_gradients
from .finite import first_not_finite
from .parallel.group import Group, texts
from .pieces import InPieces
from .precision import FIRST_SCALE, MixedPrecision, next_scale
from .settings import TrainingSettings
from .sharded import ShardedOptimizer
from .workers import Workers, share


@dataclass
class Progress:
    """The progress of a run; all of it is saved."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # in the epoch's batches
    best: float | None = None  # validation loss
    best_step: int = 0
    since_best: int = 0  # validations
    loss_scale: float = FIRST_SCALE  # of float16; see precision.py
    good_steps: int = 0  # since the scale last changed

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds = (int, float) if name in ("best", "loss_scale") else (int,)
            if not (type(value) in kinds and value >= 0) and (name, value) != ("best", None):
                raise ValueError(f"{name} must be a number of at least 0, got {str(value)[:40]!r}")


class TrainingStep:
    """Moves a model by one step. It makes the workers and the optimiser that the settings ask for.

    A call reads where the run is from its progress, and writes there. Nothing else changes from step to step, except
    the model and the optimiser.
    """

    def __init__(
        self,
        model: model_folder.Model,
        training: Corpus,
        settings: TrainingSettings,
        accelerate: Accelerate,
        group: Group,
    ) -> None:
        self.model, self.training, self.settings, self.group = model, training, settings, group
        if settings.precision == "tf32":
            multiply_in_tf32(model.device)
        self._half = settings.precision == "float16"
        self._computing = accelerate(MixedPrecision(model) if self._half else model)
        sharded = settings.shard_optimizer and group.size > 1
        self.workers = Workers(self._computing, settings.workers, group, sharded)

        def optimizer_of(parameters: Iterable[tuple[str, Parameter]]) -> InPieces:
            return InPieces(accelerate(settings.optimizer_of(parameters)), self.workers.share_out)

        self.optimizer: InPieces | ShardedOptimizer
        if sharded:
            self.optimizer = ShardedOptimizer(model.parameters(), group, optimizer_of)
        else:
            self.optimizer = optimizer_of(model.parameters())
        self._order: tuple[int, Sequence[np.ndarray]] | None = None

    def __call__(self, progress: Progress) -> dict[str, Any]:
        """Make the next step. Returns its line of the log.

        Raises FloatingPointError, and moves nothing, for a loss that is not finite; the message says where that began.
        """
        settings = self.settings
        began, epoch = time.perf_counter(), progress.epoch
        batches = [self._next_batch(progress) for _ in range(settings.accumulate)]
        seed = (settings.seed, DROPOUT, progress.step)
        scale = progress.loss_scale if self._half else 1.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # non-finite results are handled below
            loss = self.workers.loss_and_gradients(self.training, batches, seed, scale)
            norm = clip_gradients(self.workers, settings.clip, scale)
        finite = math.isfinite(norm)
        if not math.isfinite(loss) or (not finite and scale <= 1.0):
            raise FloatingPointError(f"the loss is {loss}; {self._reason(batches, seed)}")
        progress.step += 1
        rate = settings.rate(progress.step)
        if finite:
            self.optimizer.step(rate)
        if self._half:
            progress.loss_scale, progress.good_steps = next_scale(scale, progress.good_steps, finite)
        seconds = time.perf_counter() - began
        predictions = sum(self.training.count(rows) for rows in batches)
        record = {
            "step": progress.step,
            "epoch": epoch,
            "loss": loss,
            "rate": rate,
            "gradient_norm": norm if finite else None,  # None: the step was skipped
            "predictions": predictions,
            "seconds": round(seconds, 4),
        }
        return record | {"loss_scale": scale} if self._half else record

    def _next_batch(self, progress: Progress) -> np.ndarray:
        if self._order is None or self._order[0] != progress.epoch:
            rng = np.random.default_rng((self.settings.seed, ORDER, progress.epoch))
            self._order = progress.epoch, self.training.batches(rng)
        batches = self._order[1]
        if progress.position >= len(batches):
            raise ValueError(f"the checkpoint names batch {progress.position}, but an epoch has {len(batches)}")
        rows = batches[progress.position]
        progress.position += 1
        if progress.position == len(batches):
            progress.epoch, progress.position = progress.epoch + 1, 0
        return rows

    def _reason(self, batches: list[np.ndarray], seed: tuple[int, ...]) -> str:
        """The first layer, or else the parameter, at which the numbers were no longer finite."""
        textbook = textbook_of(self._computing)  # one fast layer may contain several plain layers

        def again() -> None:
            n = self.settings.workers
            for worker in range(n):
                rng = np.random.default_rng([*seed, self.group.rank * n + worker])
                for rows in batches:
                    if len(part := share(self.training, rows, self.group)[worker::n]):
                        self.training.loss(textbook, part, rng)

        found = texts(self.group, first_not_finite(textbook, again) or "")
        where = next((name for name in found if name), None)
        if where is not None:
            return f"the first layer whose output was not finite is {where}"
        names = [name for name, p in self.model.parameters() if not math.isfinite(float(p.grad.sum()))]
        return f"every layer's output is finite, but not the gradient of {names[0] if names else 'the loss'}"
