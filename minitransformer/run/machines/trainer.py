"""A long run: step, validate, save, continue. training_step.py has the step, run_folder.py what is written.

RUN/
    config.json, model.safetensors   the best model so far, or the last one before any validation; every later command
                                     loads it
    log.jsonl                        one line for each step and each validation
    curves.png                       the same as a picture
    checkpoints/                     see checkpoint.py

A run is a function of its settings. (seed, epoch) determines the order of the data; (seed, step) and the number of the
worker or rank determine the dropout. No generator keeps its state from step to step. So a killed run continues from its
last checkpoint with the same bits.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from ...core.models import folder as model_folder
from ...core.training.corpora import Corpus
from ...core.training.loop import Accelerate, as_written
from . import checkpoint
from .checkpoint import Checkpoint
from .freed_memory import keep_freed_memory
from .parallel.group import ALONE, Group
from .run_folder import RunFolder, Say
from .settings import TrainingSettings
from .training_step import Progress, TrainingStep


def _say_nothing(line: str) -> None:
    pass


@dataclass(frozen=True)
class Outcome:
    """How a run ended. loss: the validation loss of the model that it saved."""

    ended: str  # "finished", "stopped early" or "interrupted"
    step: int
    loss: float


class Trainer:
    """Trains a model on one corpus and validates it on another, in a folder.

    accelerate: a function that returns the fast twin of a model or an optimiser, such as `fast.accelerate`. group: the
    ranks that train together. Each makes a trainer with the same arguments; only rank 0 writes files and prints.
    """

    def __init__(
        self,
        model: model_folder.Model,
        training: Corpus,
        validation: Corpus,
        settings: TrainingSettings,
        folder: Path,
        accelerate: Accelerate = as_written,
        group: Group = ALONE,
    ) -> None:
        self.model, self.training, self.validation = model, training, validation
        self.settings, self.folder, self.group = settings, Path(folder), group
        self._files = RunFolder(self.folder, writes=group.rank == 0)
        self._move = TrainingStep(model, training, settings, accelerate, group)
        self.workers, self.optimizer = self._move.workers, self._move.optimizer
        self.progress = Progress()
        self._loss = math.nan  # of the model that the folder holds at the end

    def resume(self) -> int:
        """Go back to the last checkpoint, if there is one. Returns its step, or 0."""
        saved = checkpoint.steps(self.folder)
        if not saved:
            return 0
        last = checkpoint.load(self.folder, saved[-1])
        try:
            self.progress = Progress(**last.state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"state.json of the checkpoint of step {saved[-1]} is damaged: {error}") from error
        self.model.load_state(last.model)
        self.optimizer.load_state(last.optimizer)
        return self.progress.step

    def run(self, stop_after: int | None = None, say: Say = _say_nothing) -> Outcome:
        """Train to the last step. Ctrl-C (SIGTERM, SIGHUP) saves and ends after the current step, a second one at once.

        stop_after: save and end after this step, as if interrupted. say: gets a line for each validation.
        """
        keep_freed_memory()
        say = say if self.group.rank == 0 else _say_nothing
        with (
            threadpool_limits(1 if self.settings.workers > 1 else None, user_api="blas"),
            _interruptible() as interrupted,
            self._files.open(self.progress.step, say),
            self._bar() as bar,
        ):
            ended = self._train(lambda: interrupted() or self.progress.step == stop_after, say, bar)
            if ended != "interrupted":
                self._finish()
            self._files.draw()
        return Outcome(ended, self.progress.step, self._loss)

    def _train(self, asked: Callable[[], bool], say: Say, bar: Any) -> str:
        """Step, validate and save until the last step, until patience ends, or until asked to stop. Returns which."""
        settings, progress = self.settings, self.progress
        while progress.step < settings.steps:
            if settings.patience and progress.since_best >= settings.patience:
                self._save()
                return "stopped early"
            record = self._step()
            self._files.log(record)
            last = progress.step == settings.steps
            validated = last or progress.step % settings.validate_every == 0
            loss = self._validate() if validated else math.nan
            stopping = self._any(asked())
            if stopping or last or progress.step % settings.save_every == 0:
                self._save()
                self._files.draw()
            if validated:  # after saving: the terminal may be closed
                say(f"step {progress.step}: validation loss {loss:.4f}")
            self._show(bar, record)
            if stopping:
                return "interrupted"
        return "finished"

    def _bar(self) -> Any:
        """The bar of progress on the terminal, on the first rank."""
        done, hidden = self.progress.step, None if self.group.rank == 0 else True  # None: hidden without a terminal
        return tqdm(total=self.settings.steps, initial=done, desc="train", unit="step", disable=hidden)

    def _show(self, bar: Any, record: dict[str, Any]) -> None:
        bar.update()
        tokens = f"{record['predictions'] / record['seconds']:.0f}"
        valid = "-" if self.progress.best is None else f"{self.progress.best:.3f}"
        bar.set_postfix(loss=f"{record['loss']:.3f}", tokens_per_s=tokens, valid=valid)

    def _step(self) -> dict[str, Any]:
        try:
            return self._move(self.progress)
        except FloatingPointError as error:
            saved = checkpoint.steps(self.folder)
            intact = f" The checkpoint of step {saved[-1]} is intact." if saved else ""
            raise FloatingPointError(
                f"step {self.progress.step + 1}: {error}.{intact} Try a lower learning rate, a longer warm-up, clipping"
            ) from None

    def _validate(self) -> float:
        """The validation loss, logged. The model is saved if it is the best so far."""
        progress, loss = self.progress, self._validation_loss()
        if progress.best is None or loss < progress.best:
            progress.best, progress.best_step, progress.since_best = loss, progress.step, 0
            self._files.save_model(self.model)
        else:
            progress.since_best += 1
        self._files.log({"step": progress.step, "epoch": progress.epoch, "validation_loss": loss})
        return loss

    def _validation_loss(self) -> float:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            loss = self.workers.loss(self.validation)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"step {self.progress.step}: the validation loss is {loss}, but the training loss was finite"
            )
        return loss

    def _save(self) -> None:
        every = self.settings.save_every
        newest = self.progress.step - self.progress.step % every
        keep = range(newest, max(0, newest - every * self.settings.average), -every)
        self._files.save(Checkpoint(self.model.state(), self.optimizer.state(), asdict(self.progress)), keep)
        if self.progress.best is None:
            self._files.save_model(self.model)
        self._any(False)  # no rank reads the folder before it is saved

    def _finish(self) -> None:
        """Save in the folder the model of the lowest validation loss, or the mean of the last checkpoints."""
        every, wanted = self.settings.save_every, self.settings.average
        self._loss = math.nan if self.progress.best is None else self.progress.best
        if wanted > 1:
            saved = checkpoint.steps(self.folder)
            of = [step for step in saved if step % every == 0][-wanted:] or saved[-1:]
            self.model.load_state(checkpoint.mean(self.folder, of))
            self._loss = self._validation_loss()
            self._files.log({"step": self.progress.step, "mean_of": of, "mean_validation_loss": self._loss})
            self._files.save_model(self.model)

    def _any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank. Waits for all."""
        return bool(self.group.sum(np.array([int(flag)]))[0]) if self.group.size > 1 else flag


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Inside this context, the first Ctrl-C only makes the yielded function return True; a second one interrupts.

    SIGTERM has the same effect. So does SIGHUP, which a closed terminal sends, unless nohup or the like ignores it.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def note(signum: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(each, note) for each in signals]
    try:
        yield asked.is_set
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
