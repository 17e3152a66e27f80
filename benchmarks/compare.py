"""One case: its programs run in separate processes. A check proves that they agree; then they are timed in turns."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from .cases import Case
from .machine import lacking
from .samples import gap, rounds

TURN = 0.2  # least seconds of a turn, so that it has many runs if a run is short
PAUSE = 0.03  # seconds between turns: the threads of a BLAS or OpenMP spin for a while before they sleep
MEASURES = ("reading", "products")  # programs without results to compare: they show what the machine allows
FEWEST = 5  # repetitions that a case gets even if its time is up


class Failure(Exception):
    """A program could not be run."""


class Worker:
    """This process's end of worker.py: commands go in, replies come out."""

    def __init__(self, program: str, threads: int) -> None:
        ours = program in ("ours", "textbook", *MEASURES)
        environment = os.environ | {
            "OPENBLAS_NUM_THREADS": str(threads if ours else 1),  # NumPy's; a twin uses NumPy only to draw the batches
            "OMP_NUM_THREADS": str(threads),  # PyTorch's
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        command = [sys.executable, "-m", "benchmarks.worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment
        )

    def ask(self, do: str, within: float = 900.0, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its reply. Raises Failure with the reason if none comes."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"it ended: {self._last_words()}") from None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(within):
                raise Failure(f"no answer to {do!r} within {within:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"it ended: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failure(reply["error"])
        return reply

    def _last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return f"exit status {code}" + (f", {lines[-1]}" if lines else "")

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # unwritten data may still be in the buffer
            self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


@dataclass
class Result:
    """The outcome of a case. seconds: program to its time per run, in the order of the rounds; gaps and peaks (bytes; 0
    if they cannot be measured) by program; left_out: program to the reason for leaving it out.
    """

    case: Case
    seconds: dict[str, list[float]] = field(default_factory=dict)
    gaps: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether ours and eager were timed, and all timed programs agree with eager."""
        gaps = [self.gaps.get(program, math.inf) for program in self.seconds if program not in ("eager", *MEASURES)]
        return {"ours", "eager"} <= self.seconds.keys() and max(gaps) <= self.case.tolerance


def compare(
    case: Case,
    repetitions: int,
    limit: float,
    threads: int,
    skipped: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Run a case. limit: seconds of timing after which no round begins, if there were FEWEST already.

    Raises Failure if ours or eager fails. Any other program that fails is left out, with the reason. So is a program
    that does not agree with eager, because the time for a wrong answer means nothing.
    """
    result = Result(case)
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "weights.safetensors")
        try:
            for program in case.programs:
                reason = "by --skip" if program in skipped else lacking(program) or _too_large(case, program)
                if reason:
                    result.left_out[program] = reason
                    continue
                say(f"{case.name}: {program} begins")
                try:
                    workers[program] = Worker(program, threads)
                    _begin(workers[program], case, program, threads, weights, Path(folder, f"{program}.safetensors"))
                except Failure as failure:
                    if program == "eager" or (program == "ours" and "eager" in case.programs):
                        raise Failure(f"{case.name}, {program}: {failure}") from failure
                    result.left_out[program] = str(failure)
                    workers.pop(program).close()
            _agree(result, workers, Path(folder))
            for program in [program for program in workers if program in result.left_out]:
                workers.pop(program).close()
            _time(result, workers, repetitions, limit, say)
            result.peaks = {program: worker.ask("memory")["peak"] for program, worker in workers.items()}
        finally:
            for worker in workers.values():
                worker.close()
    return result


def _begin(worker: Worker, case: Case, program: str, threads: int, weights: Path, proof: Path) -> None:
    sizes = {"case": case.family, "program": program, "sizes": case.sizes, "threads": threads}
    worker.ask("build", **sizes, weights=str(weights))
    worker.ask("prove", to=str(proof))


def _too_large(case: Case, program: str) -> str | None:
    """Why the program cannot run in the available memory, if it cannot."""
    needed = case.count("needs", program)
    available = available_memory()
    if needed and available and needed > 0.7 * available:
        return f"it would need about {needed / 1e9:.0f} GB, and {available / 1e9:.0f} GB are free"
    return None


def available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _agree(result: Result, workers: dict[str, Worker], folder: Path) -> None:
    if "eager" not in workers:
        return
    wanted = load_file(folder / "eager.safetensors")
    for program in workers:
        if program == "eager" or program in MEASURES:
            continue
        found = load_file(folder / f"{program}.safetensors")
        if found.keys() != wanted.keys():
            raise Failure(f"{result.case.name}: {program} and eager did not prove the same things")
        result.gaps[program] = max(gap(found[name], wanted[name]) for name in wanted)
        if not result.gaps[program] <= result.case.tolerance:
            result.left_out[program] = f"it does not agree with eager: gap {result.gaps[program]:.1e}"


def _time(
    result: Result, workers: dict[str, Worker], repetitions: int, limit: float, say: Callable[[str], None]
) -> None:
    if not workers:
        return
    first = {program: worker.ask("time", count=1)["seconds"] for program, worker in workers.items()}
    count = max(1, round(TURN / min(first.values())))
    result.seconds = {program: [] for program in workers}
    began = time.perf_counter()
    for repetition, order in enumerate(rounds(list(workers), repetitions)):
        if repetition >= FEWEST and time.perf_counter() - began > limit:
            say(f"{result.case.name}: the time is up after {repetition} repetitions")
            break
        for program in order:
            time.sleep(PAUSE)
            result.seconds[program].append(workers[program].ask("time", count=count)["seconds"])
