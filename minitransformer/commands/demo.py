"""`minitransformer demo`: the main job in two minutes."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from .. import demo
from .common import UsageError, add_device


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    show = commands.add_parser(
        "demo",
        help="show the worked example, check every op, train a small translator (under two minutes)",
        description="Show the worked example forward and backward, check every op against finite differences, and "
        "train an encoder-decoder that translates numbers from English to German. Saves two pictures and the model.",
    )
    show.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where pictures go (default: demo)")
    show.add_argument("--seed", type=int, default=0, help="of data, weights and batches (default: 0)")
    show.add_argument("--steps", type=int, default=400, help="of training (default: 400)")
    add_device(show)
    show.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.steps < 1:
        raise UsageError(f"--steps must be at least 1, got {options.steps}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=options.out).close()  # complain now, not after the training
    except OSError as error:
        raise OSError(f"cannot write pictures to {options.out}: {error.strerror}; choose a folder by --out") from error
    began = time.perf_counter()
    right = demo.run(options.out, options.seed, options.steps, options.device)
    print(f"\ndone in {time.perf_counter() - began:.0f} s")
    return 0 if right else 1
