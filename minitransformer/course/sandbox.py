"""Run one function of a hand-in in a process of its own, with limits, and take back nothing but arrays.

The reference solution, the inputs of the trials and the verdict stay here. What a hand-in does to its own process (it
exits, loops, overwrites numpy.allclose, replaces the checker) cannot reach them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .collecting import Answer
from .exercise import Exercise
from .hand_in import HandIn
from .wire import decode, encode

_COURSE = Path(__file__).parent
_RUNNER = _COURSE / "sandbox_runner.py"
_LONGEST_LINE = 64 * 1024 * 1024
_MOST_CALLS = 10_000
_MOST_FAILURES = 1_000


@dataclass(frozen=True)
class Limits:
    """seconds: of wall-clock time for a whole process; memory: in bytes."""

    seconds: float = 60.0
    memory: int = 2 * 1024**3


@dataclass(frozen=True)
class Outcome:
    """What came of it: the answers, or in `stopped` why there are none; and the cells that failed."""

    answers: list[Answer]
    stopped: str = ""
    undefined: bool = False
    failed_cells: tuple[str, ...] = ()


def run(hand_in: HandIn, exercise: Exercise, seed: int, limits: Limits) -> Outcome:
    """Run the hand-in, then its function on the exercise's trials."""
    functions: list[Callable[..., Any]] = []
    order = {
        "cells": hand_in.cells,
        "file": hand_in.name,
        "name": exercise.name,
        "outputs": exercise.outputs,
        "arguments": exercise.arguments,
        "trials": [encode(trial, functions) for trial in exercise.trials(seed)],
        "path": [str(Path(__file__).parents[2]), *(path for path in sys.path if path)],
        "course": str(_COURSE),
        "seconds": limits.seconds,
        "memory": limits.memory,
    }
    with tempfile.TemporaryDirectory(prefix="hand-in-", ignore_cleanup_errors=True) as folder:
        process = _Process(folder, limits.seconds)
        try:
            return _converse(process, order, exercise, functions, limits)
        finally:
            process.end()


def _converse(
    process: _Process, order: dict[str, Any], exercise: Exercise, functions: list[Callable[..., Any]], limits: Limits
) -> Outcome:
    failed: list[str] = []
    calls = 0
    ready = False
    try:
        process.send(order)
        while True:
            message = process.receive()
            if "answers" in message:
                return Outcome(_answers(message["answers"], exercise), failed_cells=tuple(failed))
            if "undefined" in message:
                return Outcome([], "", True, tuple(failed))
            if "failed" in message and len(failed) < _MOST_FAILURES:
                failed.append(_plain(message["failed"]))
            elif "call" in message and calls < _MOST_CALLS:
                calls += 1
                process.send(_called(functions, message))
            elif "ready" in message:
                ready = True
            else:
                raise ValueError("unknown")
    except (EOFError, BrokenPipeError):
        stopped = process.why_it_ended(limits, ready)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        stopped = "its process sent something that is no answer"
    return Outcome([], stopped, failed_cells=tuple(failed))


def _called(functions: list[Callable[..., Any]], message: dict[str, Any]) -> dict[str, Any]:
    """The value of a function that is an argument of the exercise, for a call from the hand-in."""
    function, args = functions[message["call"]], decode(message["args"])
    if not isinstance(args, tuple):
        raise ValueError("no arguments")
    try:
        with np.errstate(all="ignore"):
            return {"value": encode(function(*args))}
    except Exception as error:  # it was called with whatever the hand-in chose
        return {"error": f"{type(error).__name__}: {error}"}


def _answers(message: Any, exercise: Exercise) -> list[Answer]:
    """The answers in a message. Raises ValueError for anything that is none."""
    answers = []
    for one in message:
        outputs = tuple(decode(output) for output in one["outputs"])
        for output in outputs:
            if not isinstance(output, np.ndarray | str):
                raise ValueError("an output that is no array")
        words = tuple(_plain(output) if isinstance(output, str) else output for output in outputs)
        changed = tuple(name for name in exercise.arguments if name in one["changed"])
        answers.append(Answer(words, _plain(one["problem"]), _plain(one["error"]), changed))
    return answers


def _plain(text: Any) -> str:
    """A text from a hand-in, fit for a terminal: no escape sequences, and not long."""
    if not isinstance(text, str):
        raise ValueError("not a text")
    return "".join(letter for letter in text[:4000] if letter.isprintable() or letter == "\n")


class _Process:
    """The process, a watch that ends it when its time is over, and lines of JSON to and from it."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._mark = f"MINITRANSFORMER_HAND_IN={secrets.token_hex(16)}"  # whatever it starts inherits this
        name, _, value = self._mark.partition("=")
        environment = {name: value, "HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "MPLBACKEND": "Agg"}
        environment |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "utf8", str(_RUNNER)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._lock = threading.Lock()
        self._timed_out = False
        self._watch = threading.Timer(seconds, self._time_is_over)
        self._watch.daemon = True
        self._watch.start()

    def send(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")
        self._in.flush()

    def receive(self) -> dict[str, Any]:
        """The next message. Raises EOFError where there is none, ValueError for something else."""
        line = self._out.readline(_LONGEST_LINE)
        if not line:
            raise EOFError
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("not a message")
        return message

    def why_it_ended(self, limits: Limits, ready: bool) -> str:
        """In words, once it sends no more. ready: whether it came as far as the hand-in."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.poll()
        if self._timed_out or status == -getattr(signal, "SIGXCPU", 24):
            return f"it did not finish within {limits.seconds:g} s"
        if not ready:
            return f"its process could not be started (exit status {status})"
        if status is not None and status < 0:
            memory = limits.memory / 1024**2
            return f"its process was ended by {signal.Signals(-status).name} (it may use {memory:.0f} MB of memory)"
        return f"its process ended, with exit status {status}, before it gave an answer"

    def end(self) -> None:
        """End it, and whatever it has started."""
        self._watch.cancel()
        self._kill()
        self._process.wait()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):
                pipe.close()

    def _time_is_over(self) -> None:
        self._timed_out = True
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            for _ in range(20):  # where there is no /proc, those that left the group go on until they end
                left = _processes_with(self._mark.encode())
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                if not left:
                    break


def _processes_with(mark: bytes) -> list[int]:
    """The processes that were started with this in their environment, and have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
