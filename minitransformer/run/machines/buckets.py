"""Buckets: stretches of the gradients that are summed over all ranks while backward still runs.

Backward completes the gradients of a stack's layers from the last to the first. As soon as the gradients of a layer's
matrices are complete, the ranks begin to sum them, while backward continues with the layers before:

    backward       layer 3 | layer 2 | layer 1 | embedding |
    sums                     layer 3 | layer 2 | layer 1   | the rest |

(Li et al. 2020, "PyTorch Distributed", section 3.2.) The rest are vectors, embeddings, and parameters that several
layers share. All ranks must begin the sums in the same order, so a rank holds back a sum until all earlier ones have
begun.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...core.arrays.backend import Array
from ...core.layers import Decoder, Encoder, Module, Parameter
from .flat import in_order
from .parallel.group import Group

BUCKET = 1 << 20  # the most numbers that ranks sum at once
_REST = -1  # stands in for a layer's number


class Buckets:
    """Adds up the flat gradients of this rank's workers, then those of all ranks. The first worker's hold the result.

    models: one for each worker, equal in structure; gradients: their flat gradients. overlap: False begins all sums at
    the end; the result has the same bits.
    """

    def __init__(
        self, models: Sequence[Module], gradients: Sequence[Array], group: Group, overlap: bool = True
    ) -> None:
        self._gradients, self._group, self._overlap = gradients, group, overlap
        stacks = [[m for _, m in model.modules() if isinstance(m, Encoder | Decoder)] for model in models]
        self._stacks: list[list[Any]] = stacks
        self._order = list(_in_order_of_backward(models[0], gradients[0].size))
        self._lock = threading.Lock()
        self._forget()

    @contextlib.contextmanager
    def watching(self, worker: int) -> Iterator[None]:
        """Inside this context, each layer whose backward pass ends is `complete`. A worker's last batch runs here."""
        before = [stack.layers for stack in self._stacks[worker]]
        layer = 0
        try:
            for stack in self._stacks[worker] if self._overlap else []:
                stack.layers = [self._watched(each, worker, layer + i) for i, each in enumerate(stack.layers)]
                layer += len(stack.layers)
            yield
        finally:
            for stack, layers in zip(self._stacks[worker], before, strict=True):
                stack.layers = layers

    def complete(self, worker: int, *layers: int) -> None:
        """Declare the gradients of these layers complete for this worker; without layers, all gradients."""
        with self._lock:
            for layer in layers or {layer for layer, _ in self._order}:
                self._completed.setdefault(layer, set()).add(worker)
            while len(self._sums) < len(self._order):
                layer, bucket = self._order[len(self._sums)]
                if len(self._completed.get(layer, ())) < len(self._gradients):
                    break
                total, *others = (gradient[bucket] for gradient in self._gradients)
                for other in others:
                    total += other
                self._sums.append(self._group.begin_sum(total))

    def wait(self) -> None:
        """Return when all sums have ended. All workers must be complete."""
        for wait in self._sums:
            wait()
        self._forget()

    def _forget(self) -> None:
        self._completed: dict[int, set[int]] = {}  # the workers that have completed a layer
        self._sums: list[Callable[[], None]] = []  # those that have begun

    def _watched(self, layer: Any, worker: int, number: int) -> Callable[..., Any]:
        def call(*inputs: Any, **options: Any) -> Any:
            y, layer_backward = layer(*inputs, **options)

            def backward(dy: Array) -> Any:
                dinputs = layer_backward(dy)
                self.complete(worker, number)
                return dinputs

            return y, backward

        return call


def _in_order_of_backward(model: Module, size: int) -> Iterator[tuple[int, slice]]:
    """The number of a layer, counted through all stacks, and a bucket of its gradients; the last layer comes first."""
    where, end = {}, 0
    for _, p in in_order(model.parameters()):
        where[id(p)] = slice(end, end := end + p.value.size)
    modules = [module for _, module in model.modules()]
    held = Counter(id(p) for module in modules for p in vars(module).values() if isinstance(p, Parameter))
    layers = [each for stack in modules if isinstance(stack, Encoder | Decoder) for each in stack.layers]
    covered = []
    for number in reversed(range(len(layers))):
        own = [p for _, p in layers[number].parameters() if p.value.ndim > 1 and held[id(p)] == 1 and id(p) in where]
        stretches = _joined(where[id(p)] for p in own)
        covered += stretches
        yield from ((number, bucket) for stretch in stretches for bucket in _cut(stretch))
    start = 0
    for stretch in [*sorted(covered, key=lambda each: each.start), slice(size, size)]:
        yield from ((_REST, bucket) for bucket in _cut(slice(start, stretch.start)))
        start = stretch.stop


def _joined(stretches: Iterable[slice]) -> list[slice]:
    """Join adjacent stretches."""
    joined: list[slice] = []
    for each in stretches:
        start = joined.pop().start if joined and joined[-1].stop == each.start else each.start
        joined.append(slice(start, each.stop))
    return joined


def _cut(stretch: slice) -> Iterator[slice]:
    for start in range(stretch.start, stretch.stop, BUCKET):
        yield slice(start, min(start + BUCKET, stretch.stop))
