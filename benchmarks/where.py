"""Where the time of a training step goes: python -m benchmarks.where --repetitions 9

One worker on one thread, dropout 0.1, in seconds of the processor, so that a busy machine disturbs little. "Products
alone" are those of the step, at its sizes, in NumPy; beside their rate stands that of a product of 1024 x 1024. Shares:
compiled layers and ops, each forward and backward, with their products; dropout's random numbers; AdamW. The rest is
Python.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import threadpoolctl

from minitransformer import fast
from minitransformer.core import ops as textbook
from minitransformer.models import Classifier, ClassifierConfig, LanguageModel, LanguageModelConfig, TransformerConfig
from minitransformer.run.fast import attention, sublayers, twins
from minitransformer.run.fast.compiler import compile_first
from minitransformer.run.machines.freed_memory import keep_freed_memory

from . import ours

# width, heads, hidden units, length, batch, layers, vocabulary; of the encoder-decoder, layers of each stack
CASES = {
    "GPT, width 96, T 48": (96, 4, 384, 48, 16, 4, 65),
    "GPT, width 256, T 512": (256, 8, 1024, 512, 2, 4, 65),
    "encoder-decoder, width 192": (192, 6, 768, 24, 32, 3, 8000),
    "classifier, width 512": (512, 8, 2048, 128, 4, 4, 8000),
}
Products = list[tuple[int, int, int, float]]  # n, k, m of a product (n, k) (k, m), and how many


def made(name: str) -> tuple[Any, dict[str, Any], dict[str, Any], Products]:
    """The model, a batch, options of its loss, and the products of a step, forward and backward."""
    width, heads, hidden, length, batch, n, words = CASES[name]
    rng, n_rows, pairs = np.random.default_rng(0), batch * length, batch * heads
    ids, labels = rng.integers(1, words, (batch, length)), rng.integers(2, size=batch)
    sizes = {"d_model": width, "n_heads": heads, "d_ff": hidden}
    square, inner, scores = (n_rows, width, width), (n_rows, width, hidden), (length, width // heads, length)
    if name.startswith("GPT"):
        model: Any = LanguageModel(LanguageModelConfig(words, max_length=length, n_layers=n, **sizes))
        products = [(*square, 12.0 * n), (*inner, 6.0 * n), (*scores, 3.5 * n * pairs), (n_rows, width, words, 3.0)]
        return model, {"ids": ids, "wanted": ids}, {}, products
    if name.startswith("class"):
        model = Classifier(ClassifierConfig(words, 2, n_layers=n, dropout=0.1, **sizes))
        products = [(*square, 12.0 * n), (*inner, 6.0 * n), (*scores, 7.0 * n * pairs)]
        return model, {"ids": ids, "labels": labels}, {}, products
    model = TransformerConfig(words, words, width, heads, hidden, n, n, dropout=0.1).build(rng)
    products = [(*square, 36.0 * n), (*inner, 12.0 * n), (*scores, 17.5 * n * pairs), (n_rows, width, words, 3.0)]
    return model, {"source": ids, "target": ids, "wanted": ids}, {"label_smoothing": 0.1}, products


def seconds(f: Callable[[], object], repetitions: int) -> float:
    """The median of the processor's seconds of a call."""
    times = []
    for _ in range(repetitions + 1):
        began = time.thread_time()
        f()
        times.append(time.thread_time() - began)
    return median(times[1:])


def alone(n: int, k: int, m: int, repetitions: int) -> float:
    """Seconds of a product of these sizes."""
    a, b, c = (np.ones(shape, np.float32) for shape in ((n, k), (k, m), (n, m)))
    many = range(max(1, int(2e7 / (n * k * m))))
    return seconds(lambda: [np.matmul(a, b, out=c) for _ in many], repetitions) / len(many)


class Spent:
    """The seconds of each kind of function, without those of the functions inside it."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._inside = [0.0]

    def timed(self, name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        """The function, and the backward function that it may return."""

        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            self._inside.append(0.0)
            result = f(*arguments, **options)
            took, inside = time.thread_time() - began, self._inside.pop()
            self._inside[-1] += took
            self.total[name] += took - inside
            paired = isinstance(result, tuple) and len(result) == 2 and callable(result[1])
            return (result[0], self.timed(name, result[1])) if paired else result

        return call


def measure(name: str, repetitions: int) -> dict[str, float]:
    """Seconds of a step, of its products alone, and of each kind of function; and GFLOP."""
    (model, batch, options, products), spent = made(name), Spent()
    watched = [(fast.ops, op, op) for op in textbook.__all__]
    watched += [(sublayers, "_enter", "sub-layers"), (twins.FastAdam, "_move", "AdamW")]
    watched += [(attention, "keeps", "random"), (sublayers, "keeps", "random")]
    with contextlib.ExitStack() as patched:
        for module, attribute, kind in watched:
            timed = spent.timed(kind, getattr(module, attribute))
            patched.enter_context(mock.patch.object(module, attribute, timed))
        steps = ours.Training(model, [batch], 1e-3, **options)
        steps.prove()  # from then on there is dropout
        run = steps.run
        spent.total.clear()
        whole = seconds(run, repetitions)
    found = {kind: took / (repetitions + 1) for kind, took in spent.total.items()}
    return {
        "step": whole,
        "products": sum(count * alone(n, k, m, repetitions) for n, k, m, count in products),
        "GFLOP": sum(2e-9 * n * k * m * count for n, k, m, count in products),
    } | found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.where", description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="steps of each case (default: 5)")
    repetitions = parser.parse_args().repetitions
    keep_freed_memory()
    compile_first()
    print("| case | step, ms | products alone, ms | GFLOP/s, best | where the step goes, % |\n|---|---:|---:|---:|---|")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name in CASES:
            found = measure(name, repetitions)
            step, products, work = (found.pop(key) for key in ("step", "products", "GFLOP"))
            shares = {**found, "rest": step - sum(found.values())}
            listed = ", ".join(f"{kind} {100 * took / step:.0f}" for kind, took in Counter(shares).most_common(8))
            rates = f"{work / products:.0f}, {2e-9 * 1024**3 / alone(1024, 1024, 1024, repetitions):.0f}"
            print(f"| {name} | {1e3 * step:.1f} | {1e3 * products:.1f} | {rates} | {listed} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
