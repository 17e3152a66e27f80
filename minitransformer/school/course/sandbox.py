"""Run a hand-in in a process of its own, without the solutions (isolation.py), and accept only arrays from it.

The reference solutions and the verdict stay here: what the outputs are worth, which inputs were changed, and how often
a function among them was called. Everything that comes back is limited in time and size, and is data.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import isolation, memory_limit
from .collecting import Answer, is_pullback
from .exercise import Exercise
from .wire import decode, encode

_COURSE = Path(__file__).parent
_FILES = ("sandbox_runner.py", "hand_in.py", "collecting.py", "wire.py")
_LONGEST_LINE = 8 * 1024**2
_MOST_PROBLEMS = 20
_START = 60.0  # seconds for the process to start and to read the hand-in
_LOOK = 0.05  # seconds between two checks of a hand-in's memory
_GRACE = 5.0  # additional seconds for the messages before and after an exercise
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, MemoryError)


@dataclass(frozen=True)
class Limits:
    """seconds: wall-clock time for an exercise; memory: bytes for all processes of a hand-in together."""

    seconds: float = 20.0
    memory: int = 2 * 1024**3

    @property
    def whole(self) -> float:
        """Seconds for all exercises of a hand-in."""
        return 10.0 * self.seconds


@dataclass
class Attempt:
    """The outcome of an exercise: the answers, or in `stopped` why there are none.

    assigned: whether its name is bound, but to no function. problems: failures on the way.
    """

    answers: list[Answer] = field(default_factory=list)
    stopped: str = ""
    assigned: bool = False
    problems: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """The outcome of a hand-in: its exercises, by name. broken, problems: see hand_in.HandIn.

    unreadable: why the rest is empty.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unreadable: str = ""


class Stopped(Exception):
    """Grading was stopped before this hand-in ran."""


class Sandbox:
    """Runs hand-ins on the trials of some exercises, possibly several at once. Use it as a context manager."""

    def __init__(self, exercises: Sequence[Exercise], seed: int, limits: Limits) -> None:
        self.seed, self.limits = seed, limits
        self._folder = Path(tempfile.mkdtemp(prefix="grading-"))
        self.desk = self._folder / "desk"  # which others may enter
        (self.desk / "marking").mkdir(parents=True)
        for name in _FILES:
            shutil.copyfile(_COURSE / name, self.desk / "marking" / name)
        (self.desk / isolation.FILTER).write_bytes(isolation.refused_calls())
        self._functions: list[Any] = []
        self._names: list[str] = []  # of the argument that each function is, or is in
        self._exercises = {exercise.name: exercise for exercise in exercises}
        self._order = [
            {
                "name": exercise.name,
                "outputs": exercise.outputs,
                "arguments": exercise.arguments,
                "trials": [self._encoded(exercise, trial) for trial in exercise.trials(seed)],
            }
            for exercise in exercises
        ]
        self._stop = threading.Event()

    def _encoded(self, exercise: Exercise, trial: tuple[Any, ...]) -> dict[str, Any]:
        inputs = []
        for name, x in zip(exercise.arguments, trial, strict=True):
            inputs.append(encode(x, self._functions))
            self._names += [name] * (len(self._functions) - len(self._names))
        return {"tuple": inputs}

    def __enter__(self) -> Sandbox:
        try:
            isolation.require(self.desk)
        except isolation.Missing:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """End all running hand-ins: each `run` raises Stopped."""
        self._stop.set()

    def run(self, name: str, data: bytes) -> Outcome:
        """Run the exercises of a hand-in, each separately. name: the file's name; data: its content."""
        order = {
            "file": name,
            "size": len(data),
            "exercises": self._order,
            "seconds": self.limits.seconds,
            "memory": self.limits.memory,
            "temporary": isolation.TEMPORARY,
            "user": isolation.other_user(),
        }
        command = isolation.command(self.desk, "from marking.sandbox_runner import main; main()")
        process = _Process(command, self._stop, self.limits.memory)
        try:
            return self._converse(process, order, data)
        finally:
            process.end()

    def _converse(self, process: _Process, order: dict[str, Any], data: bytes) -> Outcome:
        outcome = Outcome()
        try:
            process.send(json.dumps(order).encode() + b"\n" + data)
            found = process.receive()  # at this point the process has run no code of the hand-in
            if found is None or "unreadable" in found:
                outcome.unreadable = _plain(found["unreadable"]) if found else "it could not be read"
                return outcome
            outcome.broken = {name: _plain(why) for name, why in found["broken"].items()}
            outcome.problems = [_plain(problem) for problem in found["problems"]]
        except (EOFError, TimeoutError, *_MALFORMED):
            outcome.unreadable = "the process that should run it did not start, or took too long to read it"
            return outcome
        waiting = [name for name in found["bound"] if name in self._exercises]
        outcome.attempts = {name: Attempt() for name in waiting}
        ended = "it ended the process that runs the hand-in"
        end = time.monotonic() + self.limits.whole
        try:
            while waiting:
                self._listen(process, waiting[0], outcome.attempts[waiting[0]], end)
                waiting.pop(0)
        except TimeoutError:
            ended = f"it did not finish within {self.limits.seconds:g} s"
        except EOFError:
            pass
        later = "the hand-in ended the process that runs it in an earlier exercise"
        if time.monotonic() > end:
            ended = later = f"the whole hand-in did not finish within {self.limits.whole:g} s"
        for name in waiting:
            if not outcome.attempts[name].answers:
                outcome.attempts[name].stopped = ended
            ended = later
        return outcome

    def _listen(self, process: _Process, name: str, attempt: Attempt, end: float) -> None:
        """Record the messages of an exercise until it is done."""
        called: Counter[int] = Counter()
        process.begin(min(self.limits.seconds + _GRACE, end - time.monotonic()))
        while True:
            message = process.receive()
            try:
                if message is None:
                    raise ValueError("no message")
                if "answers" in message:
                    twice = {self._names[function] for function, times in called.items() if times > 1}
                    repeated = tuple(filter(is_pullback, twice))
                    attempt.answers = _answers(message["answers"], self._exercises[name], repeated)
                elif "assigned" in message:
                    attempt.assigned = True
                elif "failed" in message and len(attempt.problems) < _MOST_PROBLEMS:
                    attempt.problems.append(_plain(message["failed"]))
                elif "call" in message:
                    called[message["call"]] += 1
                    process.send(json.dumps(self._called(message)).encode() + b"\n")
                elif "done" in message:
                    if not attempt.answers:
                        attempt.stopped = attempt.stopped or self._why_it_ended(message["status"], process.exhausted)
                    return
            except _MALFORMED:
                attempt.stopped = "its process sent something that is not an answer"

    def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        """The value of a function that is an argument of the exercise, for a call from the hand-in."""
        function, args, mark = self._functions[message["call"]], decode(message["args"]), str(message["mark"])[:64]
        try:
            with np.errstate(all="ignore"):
                return {"mark": mark, "value": encode(function(*args))}
        except Exception as error:  # the hand-in chose the arguments
            return {"mark": mark, "error": f"{type(error).__name__}: {error}"[:1000]}

    def _why_it_ended(self, status: Any, exhausted: bool) -> str:
        limit = f"{self.limits.memory / 1024**2:.0f} MB of memory"
        if exhausted:
            return f"all its processes together used more than {limit}"
        if status is None or status == -getattr(signal, "SIGXCPU", 24):
            return f"it did not finish within {self.limits.seconds:g} s"
        if isinstance(status, int) and status < 0:
            return f"its process was ended by {_signal(-status)} (it may use {limit})"
        return "its process ended before it gave an answer"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _answers(message: Any, exercise: Exercise, repeated: tuple[str, ...]) -> list[Answer]:
    """The answers in a message. Raises ValueError for anything else."""
    answers = []
    for one in message:
        outputs = tuple(decode(output) for output in one["outputs"])
        inputs = tuple(decode(x, lambda i: None) for x in one["inputs"])
        if not all(isinstance(output, np.ndarray | str) for output in outputs):
            raise ValueError("an output that is not an array")
        if outputs and len(inputs) != len(exercise.arguments):
            raise ValueError("the inputs are missing")
        words = tuple(_plain(output) if isinstance(output, str) else output for output in outputs)
        answers.append(Answer(words, _plain(one["problem"]), _plain(one["error"]), inputs, repeated))
    if not answers:
        raise ValueError("no answers")
    return answers


def _plain(text: Any) -> str:
    """A text from a hand-in, made safe for a terminal: without escape sequences, and short."""
    if not isinstance(text, str):
        raise ValueError("not a text")
    return "".join(letter for letter in text[:4000] if letter.isprintable() or letter == "\n")


class _Process:
    """A process that exchanges lines of JSON with us. A thread ends it at its deadline, or when grading is stopped.

    memory: bytes for all that it starts, which the thread ends if it uses more.
    """

    def __init__(self, command: list[str], stop: threading.Event, memory: int) -> None:
        self._stop, self._memory = stop, memory
        self._deadline = time.monotonic() + _START
        self._late = False
        self.exhausted = False  # whether we ended what it started since `begin`, because that used too much memory
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, seconds: float) -> None:
        """Begin an exercise, or what comes before: it has so much time, and what was ended before does not count."""
        self._deadline, self.exhausted = time.monotonic() + seconds, False

    def send(self, data: bytes) -> None:
        """Write all data. Raises Stopped, TimeoutError at the deadline, or EOFError if the process has ended."""
        try:
            self._in.write(data)
            self._in.flush()
        except OSError as error:
            raise self._why() from error

    def receive(self) -> dict[str, Any] | None:
        """The next message; None for any other line. Raises what `send` raises."""
        line = b"\n"
        while not line.strip():
            line = self._out.readline(_LONGEST_LINE)
            if not line.endswith(b"\n") or time.monotonic() > self._deadline:
                raise self._why()
        try:
            message = json.loads(line)
        except (ValueError, RecursionError, MemoryError):
            return None
        return message if isinstance(message, dict) else None

    def _why(self) -> Exception:
        if self._stop.is_set():
            return Stopped()
        return TimeoutError() if self._late or time.monotonic() > self._deadline else EOFError()

    def _watch(self) -> None:
        killed = set[int]()
        while self._process.poll() is None:
            self._late = time.monotonic() > self._deadline
            if self._stop.wait(_LOOK) or self._late:
                self._kill()
                return
            started = memory_limit.started_by(self._process.pid) - killed  # killed ones give theirs back late
            if memory_limit.used_by(started, self._memory) > self._memory:
                self.exhausted = True
                killed |= started
                for one in started:  # the runner ends what they start meanwhile
                    with contextlib.suppress(OSError):
                        os.kill(one, signal.SIGKILL)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End it, and so every process in its namespace."""
        self._kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):
                pipe.close()
