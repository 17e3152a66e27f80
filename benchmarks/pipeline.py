"""The 1F1B schedule, drawn from runs: python -m benchmarks.pipeline --out docs

Two runs, with ranks in threads. In the first the stages only wait, so every turn takes the same time, and the idle
share should be that of the formula, (p - 1)/(m + p - 1) for p ranks and m pieces. In the second two ranks compute, on
two cores, a step of a language model.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import plots
from minitransformer.core.arrays.files import write
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.machines.parallel import Group, idle_share, in_threads, one_forward_one_backward, stage_of
from minitransformer.run.machines.parallel.pipeline import Turn

from .__main__ import png

FORWARD, BACKWARD = 0.02, 0.04  # seconds of the stages that only wait


def waiting(group: Group, pieces: int = 8) -> list[Turn]:
    """A run of stages that only wait."""

    def stage(piece: int, x: object) -> tuple[np.ndarray, object]:
        time.sleep(FORWARD)
        return np.zeros(1), lambda dy: (time.sleep(BACKWARD), np.zeros(1))[1]

    return one_forward_one_backward(stage, pieces, lambda piece: np.zeros(1), group)


def computing(group: Group, pieces: int = 8) -> list[Turn]:
    """The third step of a language model of four layers; the first ones warm up."""
    config = LanguageModelConfig(
        512, 128, 256, 4, 1024, n_layers=4, tie_output=False, dropout=0.0, attention_dropout=0.0
    )
    model = LanguageModel(config, np.random.default_rng(0))
    ids = np.random.default_rng(1).integers(0, 512, (32, 129))
    stage, like = stage_of(model, ids[:, :-1], ids[:, 1:], pieces, group)
    for _ in range(2):
        one_forward_one_backward(stage, pieces, like, group)
    group.sum(np.zeros(1))  # begin together
    return one_forward_one_backward(stage, pieces, like, group)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the pictures go")
    folder = parser.parse_args().out
    print(f"load at the start: {os.getloadavg()[0]:.1f}\n")
    print("| run | ranks | pieces | idle | (p - 1)/(m + p - 1) |\n|---|---:|---:|---:|---:|")
    for name, n, work in (("waiting", 4, waiting), ("computing", 2, computing)):
        with threadpool_limits(1, "blas"):
            runs = [in_threads(n, work) for _ in range(5)]
        shares = [idle_share(ranks) for ranks in runs]
        middle = sorted(range(5), key=shares.__getitem__)[2]
        formula = (n - 1) / (8 + n - 1)
        print(f"| {name} | {n} | 8 | {shares[middle]:.3f} [{min(shares):.3f}, {max(shares):.3f}] | {formula:.3f} |")
        title = f"{n} ranks, 8 pieces: idle {shares[middle]:.1%}, by the formula {formula:.1%}"
        write(folder / f"pipeline-{name}.png", png(plots.pipeline(runs[middle], title)))


if __name__ == "__main__":
    main()
