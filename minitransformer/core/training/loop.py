"""One step of training, to be read aloud: batch, loss, backward, clip, move.

    loss  = worker.loss_and_gradients(corpus, [rows], seed)    forward and backward
    clip_gradients(worker, clip)                               make gradients of a larger norm shorter
    optimizer.step(rate)                                       move

`train` is this loop and nothing more. The command `train` makes these calls in run/machines/training_step.py, and adds
what a long run needs: a folder, validation, resuming, float16, and batches that threads and ranks share.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..layers import Module
from .corpora import Corpus
from .optimizers import Optimizer, clipping, gradient_norm

Accelerate: TypeAlias = Callable[[Any], Any]  # from a model or an optimiser to its fast twin

T = TypeVar("T")

ORDER, DROPOUT = 0, 1  # two streams of random numbers from one seed


def as_written(textbook: T) -> T:
    """The model or the optimiser itself: the default, without fast twins."""
    return textbook


class Worker:
    """A model, and the gradients of its loss on batches."""

    def __init__(self, model: Module) -> None:
        if not callable(getattr(model, "parameters", None)):
            raise TypeError(
                f"{type(self).__name__}: model must be a module with parameters, got {type(model).__name__}"
            )
        self.model = model

    def loss_and_gradients(
        self, corpus: Corpus, batches: Sequence[np.ndarray], seed: Sequence[int], scale: float = 1.0
    ) -> float:
        """Set every gradient to that of the mean loss over all predictions of the batches. Returns that loss.

        Several batches act as one large batch but need only the memory of a small one (gradient accumulation). seed:
        for dropout. scale: a factor for all gradients, but not for the returned loss; of float16.
        """
        # The 0 is the number of this worker; run/machines/workers.py has several.
        rng, total, loss_sum = np.random.default_rng([*seed, 0]), sum(map(corpus.count, batches)), 0.0
        self.zero_gradients()
        for rows in batches:
            count = corpus.count(rows)
            loss, backward = corpus.loss(self.model, rows, rng)
            backward(scale * count / total)  # from a mean over `count` to its share of the total mean
            loss_sum += float(loss) * count
        return loss_sum / total

    def loss(self, corpus: Corpus) -> float:
        """The mean loss over a whole corpus, without dropout."""
        counted = [(corpus.count(rows), corpus.loss(self.model, rows, None)[0]) for rows in corpus.batches(None)]
        return sum(count * float(loss) for count, loss in counted) / sum(count for count, _ in counted)

    def zero_gradients(self) -> None:
        """Set all gradients to zero."""
        self.model.zero_grad()

    def gradient_norm(self) -> float:
        """The norm of all gradients together: √(sum of g²)."""
        return gradient_norm(self.model.parameters())

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients by a factor."""
        for _, p in self.model.parameters():
            p.grad *= factor


def clip_gradients(worker: Any, limit: float, scale: float = 1.0) -> float:
    """Make the norm of a worker's gradients at most the limit; 0 is no limit. Returns their norm before, without scale.

    scale: a factor in the gradients, which is divided out. `clip_gradient_norm` does the same without a worker.
    """
    norm = worker.gradient_norm() / scale
    factor = clipping(norm, limit) / scale
    if factor != 1.0 and math.isfinite(norm):
        worker.scale_gradients(factor)
    return norm


def train(
    worker: Worker,
    corpus: Corpus,
    optimizer: Optimizer,
    steps: int,
    rate: Callable[[int], float],
    clip: float = 0.0,
    seed: int = 0,
) -> Iterator[float]:
    """Train for some steps; yield the loss of each, as it is before the step. clip: the largest norm, 0 for any."""
    step = 0
    for epoch in itertools.count():
        for rows in corpus.batches(np.random.default_rng((seed, ORDER, epoch))):
            loss = worker.loss_and_gradients(corpus, [rows], (seed, DROPOUT, step))
            clip_gradients(worker, clip)
            step += 1
            optimizer.step(rate(step))
            yield loss
            if step == steps:
                return
