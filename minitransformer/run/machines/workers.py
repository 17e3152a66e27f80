"""Workers: threads that share a batch. Each runs forward and backward on its part.

NumPy's element-wise operations use one core, and small matrix products gain little from a second. But both let other
threads run meanwhile. So with n workers, worker i takes the rows i, i + n, i + 2n, ... of a batch.

The workers read the same parameter values. Each adds to its own gradients, which are then summed in a fixed order. So
a given number of workers always gives the same result; other numbers give the same result up to rounding. The workers
also share the rest of the step: each sums one stretch of the gradients and moves some of the parameters.

Several ranks (see parallel/) first divide a batch by tokens. Each rank has its own workers, and their gradients are
summed over all ranks.
"""

from __future__ import annotations

import contextvars
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TypeVar

import numpy as np

from ...core.arrays.boundary import check_flags, check_sizes
from ...core.layers import Module
from ...core.training.corpora import Corpus
from ...core.training.loop import Worker
from .buckets import Buckets
from .flat import as_one, flat_gradients, in_order, side_by_side
from .parallel.group import ALONE, Group, lengths, stretch
from .threads import taken, together

T = TypeVar("T")

MOST = 256  # threads, each with its own gradients of the whole model


def check_workers(where: str, workers: int) -> None:
    """Require a number of workers: from 1 to 256."""
    check_sizes(where, workers=workers)
    if workers > MOST:
        raise ValueError(f"{where}: workers must be at most {MOST}, got {workers}; the number of cores is best")


class Workers(Worker):
    """The model itself and n - 1 replicas that share its values. The model's parameters receive the gradients.

    group: the ranks that share every batch; all must call the methods together. sharded: each rank gets only the
    gradients of its own stretch of the flat array, for a ShardedOptimizer. overlap: as in Buckets.

    From here on, one flat array contains all values, and one for each worker its gradients (flat.py). These arrays are
    new, so old references to parameter arrays go stale.
    """

    def __init__(
        self, model: Module, n: int = 1, group: Group = ALONE, sharded: bool = False, overlap: bool = True
    ) -> None:
        check_workers("Workers", n)
        check_flags("Workers", sharded=sharded, overlap=overlap)
        super().__init__(model)
        parameters = [p for _, p in in_order(model.parameters())]
        if len(dtypes := {str(p.value.dtype) for p in parameters}) > 1:
            raise TypeError(
                f"Workers: all parameters must be of one dtype, got {', '.join(sorted(dtypes))}; use model.to"
            )
        if as_one([p.value for p in parameters]) is None:
            for p, value in zip(parameters, side_by_side([p.value for p in parameters])[1], strict=True):
                value[...] = p.value
                p.value = value
        self.models = [model, *(replica(model) for _ in range(n - 1))]
        self._gradients = [flat_gradients(each) for each in self.models]
        self.gradient, self.group = self._gradients[0], group
        size = self.gradient.size
        self._own = stretch(size, group) if sharded else slice(0, size)  # the gradients that this rank needs
        self._sharded = sharded
        self._buckets: Buckets | None = None
        if group.size > 1 and not sharded:
            self._buckets = Buckets(self.models, self._gradients, group, overlap)

    def loss_and_gradients(
        self, corpus: Corpus, batches: Sequence[np.ndarray], seed: Sequence[int], scale: float = 1.0
    ) -> float:
        """Like Worker.loss_and_gradients. Each worker makes its own generator from the seed."""
        total = sum(corpus.count(rows) for rows in batches)
        n, first = len(self.models), self.group.rank * len(self.models)
        shares = [share(corpus, rows, self.group) for rows in batches]

        def work(worker: int) -> float:
            model, rng, loss_sum = self.models[worker], np.random.default_rng([*seed, first + worker]), 0.0
            self._gradients[worker].fill(0.0)
            parts = [part for rows in shares if len(part := rows[worker::n])]
            for left, part in zip(reversed(range(len(parts))), parts, strict=True):
                count = corpus.count(part)
                with self._buckets.watching(worker) if self._buckets and not left else nullcontext():
                    loss, backward = corpus.loss(model, part, rng)
                    backward(scale * count / total)  # the share of this mean in the mean over all tokens
                loss_sum += float(loss) * count
            if self._buckets:
                self._buckets.complete(worker)
            return loss_sum

        loss_sum = sum(self._each(work))

        def add(worker: int) -> None:
            total, *others = (gradient[self._stretch(worker, gradient.size)] for gradient in self._gradients)
            for other in others:
                total += other

        if self._buckets:
            self._buckets.wait()
        else:
            self._each(add)
        if self._sharded:
            cuts = lengths(self.gradient.size, self.group.size)
            self.gradient[self._own] = self.group.scatter_sum(self.gradient, cuts)
        return self._over_ranks(loss_sum) / total

    def loss(self, corpus: Corpus) -> float:
        """The mean loss over a whole corpus, without dropout."""
        batches, n = corpus.batches(None), len(self.models)
        own = range(len(batches))[self.group.rank :: self.group.size]

        def work(worker: int) -> float:
            model, loss_sum = self.models[worker], 0.0
            for rows in (batches[i] for i in own[worker::n]):
                loss_sum += float(corpus.loss(model, rows, None)[0]) * corpus.count(rows)
            return loss_sum

        return self._over_ranks(sum(self._each(work))) / sum(corpus.count(rows) for rows in batches)

    def gradient_norm(self) -> float:
        """The norm of all gradients together: √(sum of g²)."""

        def square(worker: int) -> float:
            gradient = self.gradient[self._own][self._stretch(worker, self._own.stop - self._own.start)]
            return float((gradient * gradient).sum())

        squares = sum(self._each(square))
        return math.sqrt(self._over_ranks(squares) if self._sharded else squares)

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients by a factor."""
        self.gradient[self._own] *= factor

    def share_out(self, work: Callable[[str], None], sizes: Mapping[str, int]) -> None:
        """Call work(name) for every name. A free worker takes the largest parameter left, so that all end together."""
        rest = sorted(sizes, key=sizes.__getitem__)

        def take_some(_: int) -> None:
            while (name := taken(rest)) is not None:
                work(name)

        self._each(take_some)

    def _over_ranks(self, number: float) -> float:
        """The sum of a number over all ranks."""
        return float(self.group.sum(np.array([number]))[0]) if self.group.size > 1 else number

    def _stretch(self, worker: int, size: int) -> slice:
        """The stretch of `size` flat gradients that a worker takes."""
        n = len(self.models)
        return slice(size * worker // n, size * (worker + 1) // n)

    def _each(self, work: Callable[[int], T]) -> list[T]:
        """work(0) on this thread, the others on other threads; context settings such as np.errstate hold there too."""
        results: dict[int, T] = {}

        def fill(worker: int, context: contextvars.Context) -> None:
            results[worker] = context.run(work, worker)

        together(fill, [(worker, contextvars.copy_context()) for worker in range(len(self.models))])
        return [results[worker] for worker in range(len(self.models))]


def share(corpus: Corpus, rows: np.ndarray, group: Group) -> np.ndarray:
    """This rank's rows of a batch. All ranks get about the same number of predictions.

    The longest row left goes to the rank with the fewest predictions so far. A rank may get no rows.
    """
    if group.size == 1:
        return rows
    counts = np.array([corpus.count(rows[i : i + 1]) for i in range(len(rows))])
    loads, owners = [0] * group.size, np.zeros(len(rows), dtype=np.int64)
    for i in np.argsort(-counts, kind="stable"):
        owners[i] = loads.index(min(loads))
        loads[owners[i]] += int(counts[i])
    return rows[owners == group.rank]


def replica(model: Module) -> Module:
    """A module that shares the parameter values, without a copy, and has its own gradients."""
    return copy.deepcopy(model, {id(p.value): p.value for _, p in model.parameters()})
