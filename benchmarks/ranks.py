"""What several ranks cost: python -m benchmarks.ranks [PART ...]

    bytes        sent in a step by each form of parallel training, counted by rings of threads, and by formula
    all-reduce   the time of a sum over 2 and 4 processes, and the α-β model fitted to it
    overlap      a step of 2 processes with sums that begin during backward, and with sums at the end, in turns
    cores        a step on two cores: 1 process with 2 threads, and 2 processes with 1 thread each, in turns
    computed     the all-reduce of GPT-2 124M on networks that nobody here has, by the α-β model

The α-β model of a ring: each of its 2(n - 1) messages takes α seconds, and each byte that a rank sends β seconds, so
that a sum of N bytes takes 2(n - 1) α + 2(n - 1)/n N β.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer.core.training.corpora import TextCorpus
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.machines.parallel import Group, cut, in_threads, one_forward_one_backward, stage_of
from minitransformer.run.machines.parallel.group import ALONE
from minitransformer.run.machines.parallel.ring import Ring
from minitransformer.run.machines.pieces import InPieces
from minitransformer.run.machines.sharded import ShardedOptimizer
from minitransformer.training import AdamW, Workers

GPT2 = 124_439_808  # parameters
LATENCY = 25e-6  # seconds for a message between machines, an assumption
SIZES = [2**k for k in range(18, 25)]  # bytes of an all-reduce; for smaller ones MPICH has other algorithms

# ---- Bytes in a step. ----


def counted(n: int) -> dict[str, tuple[int, int]]:
    """The bytes that all n ranks send together in one step, counted and by formula, in float64."""
    config = LanguageModelConfig(
        12, 6, d_model=12, n_heads=12, d_ff=12, n_layers=4, tie_output=False, dropout=0.0, attention_dropout=0.0
    )
    corpus = TextCorpus(np.random.default_rng(0).integers(0, 12, 200), length=6, rows=12)
    rows = corpus.batches(np.random.default_rng(1))[0]

    def model() -> LanguageModel:
        return LanguageModel(config, np.random.default_rng(2)).to(dtype="float64")

    def data(group: Ring) -> None:
        Workers(model(), 1, group).loss_and_gradients(corpus, [rows], (0,))

    def sharded(group: Ring) -> None:
        whole = model()
        workers = Workers(whole, 1, group, sharded=True)
        optimizer = ShardedOptimizer(whole.parameters(), group, lambda some: AdamW(some, 0.1))
        workers.loss_and_gradients(corpus, [rows], (0,))
        optimizer.step(0.1)

    def tensor(group: Ring) -> None:
        Workers(cut(model(), group), 1).loss_and_gradients(corpus, [rows], (0,))

    def pipeline(group: Ring) -> None:
        whole = model()
        windows = np.stack([corpus.ids[start : start + 7] for start in rows])
        stage, like = stage_of(whole, windows[:, :-1], windows[:, 1:], 4, group)
        one_forward_one_backward(stage, 4, like, group)

    parameters = sum(p.value.size for _, p in model().parameters())
    positions = rows.size * 6
    hidden = positions * config.d_model
    ring = 2 * (n - 1)  # times a number is sent in an all-reduce, by all ranks together
    formulas = {
        "data": ring * (parameters + 1),  # and the loss
        "data, sharded": (n - 1) * parameters + (n - 1) * parameters + ring,
        # forward and backward of both sub-layers, the lookup and the logits; the largest logit and two sums
        "tensor": ring * hidden * (2 * 2 * config.n_layers + 2) + n * (n - 1) * positions + ring * 2 * positions,
        "pipeline": 2 * (n - 1) * hidden,
    }
    found = {}
    for (name, formula), work in zip(formulas.items(), (data, sharded, tensor, pipeline), strict=True):

        def count(group: Group, work: Callable[[Ring], None] = work) -> int:
            rings = Ring(group)
            work(rings)
            return rings.sent

        found[name] = sum(in_threads(n, count)), 8 * formula
    return found


# ---- What runs under mpiexec. Rank 0 prints one line of JSON. ----


def all_reduce(group: Any, rounds: int = 41) -> Any:
    """The seconds of a sum, for each size those of all rounds."""
    arrays = [np.ones(size // 4, np.float32) for size in SIZES]
    times: list[list[float]] = [[] for _ in SIZES]
    for _ in range(rounds):
        for x, seconds in zip(arrays, times, strict=True):
            group.communicator.Barrier()
            began = time.perf_counter()
            group.sum(x)
            seconds.append(group.gather(np.array([time.perf_counter() - began]), [1] * group.size).max())
    return times


def _steps(group: Group, threads: int, overlaps: list[bool], rounds: int) -> list[list[float]]:
    """The seconds of a step: for each of `overlaps` those of all rounds, in turns."""
    config = LanguageModelConfig(256, 64, 256, 4, 1024, 4, dropout=0.0, attention_dropout=0.0)
    corpus = TextCorpus(np.random.default_rng(0).integers(0, 256, 100_000), length=64, rows=16)
    batches = corpus.batches(np.random.default_rng(1))
    runs = []
    for overlap in overlaps:
        model = LanguageModel(config, np.random.default_rng(2))
        workers = Workers(model, threads, group, overlap=overlap)
        runs.append((workers, InPieces(AdamW(model.parameters(), 1e-3), workers.share_out), []))
    for step in range(rounds + 1):
        for workers, optimizer, seconds in runs if step % 2 else runs[::-1]:
            group.sum(np.zeros(1))
            began = time.perf_counter()
            workers.loss_and_gradients(corpus, [batches[step]], (0, step))
            optimizer.step(1e-3)
            seconds.append(time.perf_counter() - began)
    return [seconds[1:] for _, _, seconds in runs]  # the first step warms up


RUNS: dict[str, Callable[[Any], Any]] = {
    "all-reduce": all_reduce,
    "overlap": lambda group: _steps(group, 1, [True, False], 16),
    "cores": lambda group: _steps(group, 2 // group.size, [True], 8)[0],
}


def started(n: int, run: str) -> Any:
    """What rank 0 of n processes found in a run."""
    mpiexec = shutil.which("mpiexec", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    if mpiexec is None:
        sys.exit("benchmarks.ranks: no mpiexec found; install the extra: pip install -e '.[parallel]'")
    command = [mpiexec, "-n", str(n), sys.executable, "-m", "benchmarks.ranks", "--run", run]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


# ---- Tables. ----


def table(heads: str, rows: list[list[str]]) -> str:
    """A table in Markdown. heads: with | between them."""
    lines = [f"| {heads} |", "|---|" + "---:|" * heads.count("|")]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def bytes_table() -> str:
    rows = []
    for n in (2, 3, 4):
        for form, (bytes_, formula) in counted(n).items():
            rows.append([f"{form}, {n} ranks", f"{bytes_:,}", f"{formula:,}", "yes" if bytes_ == formula else "NO"])
    return table("form | bytes sent, counted | by formula | equal", rows)


def fitted(n: int, sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """α and β that fit the times of a ring of n, with the least relative squares."""
    terms = np.array([[2 * (n - 1), 2 * (n - 1) / n * size] for size in sizes])
    relative = terms / np.array(seconds)[:, None]
    alpha, beta = np.linalg.lstsq(relative, np.ones(len(sizes)), rcond=None)[0]
    return float(alpha), float(beta)


def predicted(n: int, size: int, alpha: float, beta: float) -> float:
    return 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta


def all_reduce_table(turns: int = 3) -> str:
    """α and β are fitted to every other size, and predict those between."""
    times: dict[int, list[list[float]]] = {n: [[] for _ in SIZES] for n in (2, 4)}
    for _ in range(turns):
        for n, of_sizes in times.items():
            for all_of, some in zip(of_sizes, started(n, "all-reduce"), strict=True):
                all_of += some
    rows, notes = [], []
    for n, of_sizes in times.items():
        medians = [median(seconds) for seconds in of_sizes]
        alpha, beta = fitted(n, SIZES[::2], medians[::2])
        for i, size in enumerate(SIZES):
            guess = predicted(n, size, alpha, beta)
            error = f"{guess / medians[i] - 1:+.0%}" + (" (fitted)" if i % 2 == 0 else "")
            rows.append([f"{n} ranks, {size >> 10} KiB", f"{1e3 * medians[i]:.3f}", f"{1e3 * guess:.3f}", error])
        notes.append(f"{n} ranks: α = {1e6 * alpha:.1f} µs, 1/β = {1e-9 / beta:.2f} GB/s.")
    return table("all-reduce | median ms | by the model | error", rows) + "\n\n" + " ".join(notes)


def steps_table(rows: dict[str, list[float]]) -> str:
    def cells(seconds: list[float]) -> list[str]:
        low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        return [f"{1e3 * middle:.0f}", f"{1e3 * low:.0f} to {1e3 * high:.0f}", str(len(seconds))]

    return table("step | median ms | quartiles | steps", [[name, *cells(each)] for name, each in rows.items()])


def overlap_table() -> str:
    on, off = started(2, "overlap")
    return steps_table({"sums during backward": on, "sums at the end": off})


def cores_table(turns: int = 3) -> str:
    times: dict[str, list[float]] = {"1 process, 2 threads": [], "2 processes, 1 thread each": []}
    for _ in range(turns):
        for n, seconds in enumerate(times.values(), 1):
            seconds += started(n, "cores")
    return steps_table(times)


def computed_table() -> str:
    rows = []
    for gigabits in (10, 100):
        for n in (8, 64, 1024):
            seconds = predicted(n, 4 * GPT2, LATENCY, 8e-9 / gigabits)
            rows.append([f"{gigabits} Gbit/s, {n} ranks", f"{seconds:.2f}", f"{2 * (n - 1) * LATENCY:.3f}"])
    title = f"Computed, not measured: {GPT2:,} gradients in float32, α = {1e6 * LATENCY:.0f} µs, a ring."
    return title + "\n\n" + table("network | s for an all-reduce | of which α", rows)


PARTS: dict[str, Callable[[], str]] = {
    "bytes": bytes_table,
    "all-reduce": all_reduce_table,
    "overlap": overlap_table,
    "cores": cores_table,
    "computed": computed_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ranks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        from minitransformer.run.machines.parallel import mpi

        group = mpi.world()
        with threadpool_limits(1, "blas"):
            found = RUNS[options.run](group if group.size > 1 else ALONE)
        if group.rank == 0:
            print(json.dumps(found))
        return
    for part in options.parts or PARTS:
        print(f"load {os.getloadavg()[0]:.1f}\n\n{PARTS[part]()}\n", flush=True)


if __name__ == "__main__":
    main()
