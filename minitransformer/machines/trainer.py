"""A long run: step, validate, save, continue. `Trainer._step` is the step of training/loop.py with what that run needs.

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
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from ..arrays.backend import multiply_in_tf32
from ..arrays.files import write
from ..layers import Parameter
from ..models import folder as model_folder
from ..trace.tracing import textbook_of
from ..training.corpora import Corpus
from ..training.loop import DROPOUT, ORDER, Accelerate, as_written, clip_gradients
from . import checkpoint
from .checkpoint import Checkpoint
from .files import write_figure
from .finite import first_not_finite
from .memory import keep_freed_memory
from .parallel.group import ALONE, Group, texts
from .pieces import InPieces
from .precision import FIRST_SCALE, MixedPrecision, next_scale
from .settings import TrainingSettings
from .sharded import ShardedOptimizer
from .workers import share, workers_of


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
        self.group = group
        self.model, self.training, self.validation = model, training, validation
        self.settings, self.folder = settings, Path(folder)
        if settings.precision == "tf32":
            multiply_in_tf32(model.device)
        self._half = settings.precision == "float16"
        self._computing = accelerate(MixedPrecision(model) if self._half else model)
        sharded = settings.shard_optimizer and group.size > 1
        self.workers = workers_of(self._computing, settings.workers, group, sharded)

        def optimizer_of(parameters: Iterable[tuple[str, Parameter]]) -> InPieces:
            return InPieces(accelerate(settings.optimizer_of(parameters)), self.workers.share_out)

        self.optimizer: InPieces | ShardedOptimizer
        if sharded:
            self.optimizer = ShardedOptimizer(model.parameters(), group, optimizer_of)
        else:
            self.optimizer = optimizer_of(model.parameters())
        self.progress = Progress()
        self._order: tuple[int, Sequence[np.ndarray]] | None = None
        self._loss = math.nan  # of the model that the folder holds at the end

    def resume(self) -> int:
        """Go back to the last checkpoint, if there is one. Returns its step, or 0."""
        saved = checkpoint.steps(self.folder)
        if not saved:
            return 0
        last = checkpoint.load(self.folder, saved[-1])
        try:
            self.progress = Progress(**last.state)
        except TypeError as error:
            raise ValueError(f"state.json of the checkpoint of step {saved[-1]} is damaged: {error}") from error
        self.model.load_state(last.model)
        self.optimizer.load_state(last.optimizer)
        return self.progress.step

    def run(self, stop_after: int | None = None, say: Callable[[str], None] = lambda line: None) -> Outcome:
        """Train to the last step. Ctrl-C (SIGTERM, SIGHUP) saves and ends after the current step, a second one at once.

        stop_after: save and end after this step, as if interrupted. say: gets a line for each validation.
        """
        settings, progress = self.settings, self.progress
        keep_freed_memory()
        first = self.group.rank == 0
        if first:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(".*.tmp"):  # from a run that was killed while it wrote
                leftover.unlink()
        log: _Log | _NoLog = _Log(self.folder / "log.jsonl", progress.step, say) if first else _NoLog()
        ended = "finished"
        with (
            threadpool_limits(1 if settings.workers > 1 else None, user_api="blas"),
            _interruptible() as interrupted,
            log,
            tqdm(
                total=settings.steps, initial=progress.step, desc="train", unit="step", disable=None if first else True
            ) as bar,
        ):
            while progress.step < settings.steps:
                if settings.patience and progress.since_best >= settings.patience:
                    ended = "stopped early"
                    self._save()
                    break
                record = self._step()
                log.add(record)
                due = progress.step % settings.validate_every == 0 or progress.step == settings.steps
                if due:
                    log.add(found := self._validate())
                stopping = self._any(interrupted()) or progress.step == stop_after
                if stopping or progress.step % settings.save_every == 0 or progress.step == settings.steps:
                    self._save()
                    log.draw()
                if due and first:  # after saving: the terminal may be closed
                    say(f"step {progress.step}: validation loss {found['validation_loss']:.4f}")
                bar.update()
                tokens = f"{record['predictions'] / record['seconds']:.0f}"
                valid = "-" if progress.best is None else f"{progress.best:.3f}"
                bar.set_postfix(loss=f"{record['loss']:.3f}", tokens_per_s=tokens, valid=valid)
                if stopping:
                    ended = "interrupted"
                    break
            if ended != "interrupted":
                self._finish(log)
            log.draw()
        return Outcome(ended, progress.step, self._loss)

    def _step(self) -> dict[str, Any]:
        settings, progress = self.settings, self.progress
        began, epoch = time.perf_counter(), progress.epoch
        batches = [self._next_batch() for _ in range(settings.accumulate)]
        seed = (settings.seed, DROPOUT, progress.step)
        scale = progress.loss_scale if self._half else 1.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # non-finite results are handled below
            loss = self.workers.loss_and_gradients(self.training, batches, seed, scale)
            norm = clip_gradients(self.workers, settings.clip, scale)
        finite = math.isfinite(norm)
        if not math.isfinite(loss) or (not finite and scale <= 1.0):
            raise FloatingPointError(self._explain(loss, batches, seed))
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

    def _next_batch(self) -> np.ndarray:
        progress = self.progress
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

    def _validate(self) -> dict[str, Any]:
        progress = self.progress
        loss = self._validation_loss()
        if progress.best is None or loss < progress.best:
            progress.best, progress.best_step, progress.since_best = loss, progress.step, 0
            self._save_model()
        else:
            progress.since_best += 1
        return {"step": progress.step, "epoch": progress.epoch, "validation_loss": loss}

    def _save(self) -> None:
        every = self.settings.save_every
        newest = self.progress.step - self.progress.step % every
        keep = range(newest, max(0, newest - every * self.settings.average), -every)
        state = Checkpoint(self.model.state(), self.optimizer.state(), asdict(self.progress))
        if self.group.rank == 0:
            checkpoint.save(self.folder, state, keep)
        if self.progress.best is None:
            self._save_model()
        self._any(False)  # no rank reads the folder before it is saved

    def _save_model(self) -> None:
        if self.group.rank == 0:
            model_folder.save(self.model, self.folder)

    def _any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank. Waits for all."""
        return bool(self.group.sum(np.array([int(flag)]))[0]) if self.group.size > 1 else flag

    def _validation_loss(self) -> float:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            loss = self.workers.loss(self.validation)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"step {self.progress.step}: the validation loss is {loss}, but the training loss was finite"
            )
        return loss

    def _finish(self, log: _Log | _NoLog) -> None:
        """Save in the folder the model of the lowest validation loss, or the mean of the last checkpoints."""
        every, wanted = self.settings.save_every, self.settings.average
        self._loss = math.nan if self.progress.best is None else self.progress.best
        if wanted > 1:
            saved = checkpoint.steps(self.folder)
            of = [step for step in saved if step % every == 0][-wanted:] or saved[-1:]
            self.model.load_state(checkpoint.mean(self.folder, of))
            self._loss = self._validation_loss()
            log.add({"step": self.progress.step, "mean_of": of, "mean_validation_loss": self._loss})
            self._save_model()

    def _explain(self, loss: float, batches: list[np.ndarray], seed: tuple[int, ...]) -> str:
        step, textbook = (
            self.progress.step + 1,
            textbook_of(self._computing),
        )  # one fast layer may contain several plain layers

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
            reason = f"the first layer whose output was not finite is {where}"
        else:
            names = [name for name, p in self.model.parameters() if not math.isfinite(float(p.grad.sum()))]
            reason = f"every layer's output is finite, but not the gradient of {names[0] if names else 'the loss'}"
        saved = checkpoint.steps(self.folder)
        intact = f" The checkpoint of step {saved[-1]} is intact." if saved else ""
        return (
            f"step {step}: the loss is {loss}; {reason}.{intact} Try a lower learning rate, a longer warm-up, clipping"
        )


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


class _Log:
    """log.jsonl: the lines of earlier parts of the run up to a step, and the lines added since."""

    def __init__(self, path: Path, step: int, say: Callable[[str], None]) -> None:
        self.path, self._say = path, say
        self.records = [record for record in read_log(path) if record["step"] <= step] if step else []
        write(path, "".join(json.dumps(record) + "\n" for record in self.records))

    def __enter__(self) -> _Log:
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def draw(self) -> None:
        """Draw curves.png. If that fails, warn once and continue training: the log contains the same data."""
        from .curves import learning_curves  # here, because it imports matplotlib

        try:
            write_figure(self.path.with_name("curves.png"), learning_curves(self.records))
        except OSError as error:
            self._say(f"warning: {error}; training continues without it")
            self._say = lambda line: None


class _NoLog(contextlib.nullcontext[None]):
    """The log of every rank except the first. It writes nothing."""

    def add(self, record: dict[str, Any]) -> None:
        pass

    def draw(self) -> None:
        pass


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log. A last line that was cut off, for example by a crash, is left out.

    Raises ValueError, which names the file, if another line is not a record.
    """
    if not path.is_file():
        return []
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; move it away to continue without it") from error
    if not all(isinstance(record, dict) and type(record.get("step")) is int for record in records):
        raise ValueError(
            f'{path} is damaged: every line must be an object with "step"; move it away to continue without it'
        )
    return records
