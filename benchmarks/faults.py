"""Faults of a rank, many times over: python -m benchmarks.faults [KIND ...] --runs 20

Each run trains a small language model on three ranks and makes one fault:

    killed      SIGKILL of a random rank at a random moment
    stopped     SIGSTOP of a random rank at a random moment
    full        rank 0 can write no more at a random moment (RLIMIT_FSIZE, as if the disk were full)
    data, version, seed, config      one rank, not the first, has another at the start

A run is good if all ranks end within a minute, one line names the rank and the reason, the last checkpoint is whole (or
nothing was written, if training never began), and training goes on from it. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from minitransformer.run.machines import checkpoint
from minitransformer.run.machines.run_folder import read_log

RANKS = 3
SMALL = "train lm --n-layers 1 --d-model 8 --n-heads 2 --d-ff 8 --max-length 8 --batch-rows 4 --warmup 1 --textbook"
SMALL += " --validate-every 1000000 --save-every 5"
PROGRAM = """
import sys
import minitransformer
if "{version}":
    minitransformer.__version__ = "{version}"
from minitransformer.cli import main
from minitransformer.run.machines.parallel import launch
launch.PATIENCE = {patience}
sys.exit(main())
"""
REASONS = {
    "killed": "was killed by SIGKILL",
    "stopped": "has not answered for",
    "full": "File too large",
    "data": "has content of text",
    "version": "has version",
    "seed": "has seed",
    "config": "has d_ff",
}
MOMENT = ("killed", "stopped", "full")  # faults during training


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(mpiexec: int) -> list[int]:
    """The processes that train, by rank."""
    (proxy,) = children(mpiexec)
    found = {}
    for launched in children(proxy):
        words = Path(f"/proc/{launched}/environ").read_bytes().split(b"\0")
        rank = next(int(word.partition(b"=")[2]) for word in words if word.startswith(b"PMI_RANK="))
        (found[rank],) = children(launched)
    return [found[rank] for rank in range(RANKS)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def once(kind: str, folder: Path, patience: float, rng: random.Random) -> str:
    """Make one fault. Returns "" if all was well, and otherwise what was not."""
    text, other, run = folder / "text.txt", folder / "other.txt", folder / "run"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    other.write_text(text.read_text() + "the end\n")
    rank = 0 if kind == "full" else rng.randrange(RANKS) if kind in MOMENT else rng.randrange(1, RANKS)
    begin = [*SMALL.split(), "--out", str(run), "--text"]

    command = [str(shutil.which("mpiexec", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"))]
    for each in range(RANKS):
        wrong = each == rank and kind not in MOMENT
        program = PROGRAM.format(version="0.0.0" if wrong and kind == "version" else "", patience=patience)
        options = [*begin, str(other if wrong and kind == "data" else text), "--steps", "1000000"]
        options += ["--seed", "1"] if wrong and kind == "seed" else []
        options += ["--d-ff", "9"] if wrong and kind == "config" else []
        command += [":"] * (each > 0) + ["-n", "1", sys.executable, "-c", program, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    pids: list[int] = []
    try:
        if kind in MOMENT:
            while not checkpoint.steps(run):
                if process.poll() is not None:
                    return f"it ended before the fault: {process.communicate()[1][-300:]}"
                time.sleep(0.05)
            pids = workers(process.pid)
            time.sleep(rng.uniform(0.0, 2.0))
            if kind == "full":
                resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (1000, 1000))
            else:
                os.kill(pids[rank], signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            return "it did not end within 60 s"
    finally:
        process.kill()
        process.communicate()
    lines = [line for line in err.splitlines() if line.startswith("minitransformer: error: ")]
    if process.returncode == 0 or len(lines) != 1 or "Traceback" in err:
        return f"exit status {process.returncode}, {len(lines)} lines: {err[-500:]}"
    if f"rank {rank} " not in lines[0] or REASONS[kind] not in lines[0]:
        return f"rank {rank} or the reason is missing: {lines[0]}"
    time.sleep(0.5)
    if any(map(alive, pids)):
        return "a rank is left"
    return goes_on(kind, begin, text, run)


def goes_on(kind: str, begin: list[str], text: Path, run: Path) -> str:
    """Continue, or begin, by one process without mpiexec, until three steps more are done."""

    def logged() -> int:
        return max((int(record["step"]) for record in read_log(run / "log.jsonl")), default=0)

    steps, more = 0, ["--steps", "1000000"]
    if kind in MOMENT:
        checkpoint.load(run, checkpoint.steps(run)[-1])
        steps, more = logged(), ["--resume"]  # the log of the first run may be ahead of its last checkpoint
    elif run.exists():
        return "something was written before training began"
    command = [sys.executable, "-m", "minitransformer", *begin, str(text), *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while logged() < steps + 3:
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                return f"it does not go on: {process.communicate()[1][-500:]}"
            time.sleep(0.1)
        process.terminate()
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return "" if process.returncode == 130 else f"it does not end: {err[-500:]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="default: all")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="of each kind (default: 20)")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds until a rank counts as stopped")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if wrong := set(options.kinds) - REASONS.keys():
        parser.error(f"unknown {', '.join(sorted(wrong))}; the kinds are {', '.join(REASONS)}")
    rng, failed = random.Random(options.seed), False
    print("| fault | good runs | longest s from start to end of a run |\n|---|---:|---:|", flush=True)
    for kind in options.kinds or REASONS:
        good, longest, problems = 0, 0.0, []
        for number in range(options.runs):
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                problem: Any = once(kind, Path(folder), options.patience, rng)
            longest = max(longest, time.monotonic() - began)
            good += not problem
            problems += [f"{kind}, run {number}: {problem}"] if problem else []
        print(f"| {kind} | {good} of {options.runs} | {longest:.0f} |", flush=True)
        print("\n".join(problems), file=sys.stderr, flush=True)
        failed = failed or good < options.runs
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
