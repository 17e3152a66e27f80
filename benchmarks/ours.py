"""How the benchmarks run minitransformer: the only place that knows its threads and its fast twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import threadpoolctl

from minitransformer.fast import accelerate, ops
from minitransformer.layers import Cache, FeedForward
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.fast.compiler import compile_first
from minitransformer.run.machines.freed_memory import keep_freed_memory
from minitransformer.run.machines.pieces import InPieces
from minitransformer.training import AdamW, Workers


class Program:
    """Base of all our programs. A run is timed; `prepare` comes before each run and is not timed."""

    n_threads = 1

    @classmethod
    def threads(cls, count: int) -> None:
        """Settings that the training loop makes for one run stay in force here: this process does nothing else."""
        cls.n_threads = count
        keep_freed_memory()
        load_loops()
        threadpoolctl.threadpool_limits(count, user_api="blas")

    def weights(self) -> dict[str, np.ndarray]:
        """The weights from which the twin starts."""
        return {}

    def prepare(self) -> None:
        pass


class Training(Program):
    """Training steps over a list of batches, repeatedly: forward, backward, AdamW.

    As in the training loop, there are as many workers as threads. Each takes a part of the batch and one BLAS thread.
    """

    def __init__(self, model: Any, batches: list[dict[str, Any]], learning_rate: float, **options: Any) -> None:
        threadpoolctl.threadpool_limits(1, user_api="blas")
        self.model, self.corpus = model, Batches(batches, options)
        self.workers = Workers(accelerate(model), self.n_threads)
        self.optimizer = InPieces(accelerate(AdamW(model.parameters(), learning_rate)), self.workers.share_out)
        self.taken = 0

    def weights(self) -> dict[str, np.ndarray]:
        return self.model.state()

    def run(self) -> float:
        loss = self.workers.loss_and_gradients(self.corpus, [self.corpus.rows(self.taken)], [self.taken])
        self.optimizer.step()
        self.taken += 1
        return loss

    def prove(self) -> dict[str, np.ndarray]:
        """The losses of ten steps without dropout, whose random numbers are each program's own; later steps have it."""
        losses = np.array([self.run() for _ in range(10)])
        self.corpus.drops = True
        return {"losses": losses}


def load_loops() -> None:
    """Load the compiled loops into memory if Numba is installed. PyTorch loads its own when it is imported."""
    compile_first()
    model = accelerate(LanguageModel(LanguageModelConfig(3, d_model=4, n_heads=1, d_ff=4, n_layers=1)))
    for activation in ("gelu", "gelu_tanh"):
        accelerate(FeedForward(4, 4, activation))(np.ones((1, 4), np.float32))
    _, backward = model.loss(np.zeros((1, 16), int), np.zeros((1, 16), int))
    backward()
    accelerate(AdamW(model.parameters(), 0.0)).step()
    cache = Cache(1)
    for _ in range(2):
        model(np.zeros((1, 1), int), cache=cache)
    row, weight = np.ones((1, 512), np.float32), np.ones((512, 512), np.float32)
    ops.linear(row, weight)
    ops.linear(row, weight.T)


class Batches:
    """The batches as a corpus of rows, for the workers. Each batch has the arguments of model.loss by name.

    Within a batch the longest texts come first, so that each worker gets texts of all lengths, as from our corpora.
    """

    def __init__(self, batches: list[dict[str, np.ndarray]], options: dict[str, Any]) -> None:
        self.size, self.number = len(next(iter(batches[0].values()))), len(batches)
        masks = [batch.get("source_mask", batch.get("mask", np.ones((self.size, 1)))) for batch in batches]
        by_length = [np.argsort(-mask.sum(axis=1), kind="stable") for mask in masks]
        self.arrays = {
            name: np.concatenate([batch[name][order] for batch, order in zip(batches, by_length, strict=True)])
            for name in batches[0]
        }
        self.options, self.drops = options, False

    def rows(self, step: int) -> np.ndarray:
        return np.arange(self.size) + step % self.number * self.size

    def count(self, rows: np.ndarray) -> int:
        targets = self.arrays["wanted" if "wanted" in self.arrays else "labels"][rows]
        return int((targets != self.options.get("ignore_index", -100)).sum())

    def loss(self, model: Any, rows: np.ndarray, rng: np.random.Generator | None) -> Any:
        rows_of = {name: array[rows] for name, array in self.arrays.items()}
        return model.loss(**rows_of, **self.options, rng=rng if self.drops else None)
