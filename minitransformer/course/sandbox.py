"""Run a hand-in in a process of its own, without the solutions (isolation.py), and accept only arrays from it.

The reference solutions and the verdict stay here. Everything that comes back is limited in time and size, and is data.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import isolation, memory
from .collecting import Answer
from .exercise import Exercise
from .memory import ControlGroup
from .wire import decode, encode

_COURSE = Path(__file__).parent
_FILES = ("sandbox_runner.py", "hand_in.py", "collecting.py", "comparison.py", "wire.py")
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


@dataclass
class Attempt:
    """The outcome of an exercise: the answers, or in `stopped` why there are none. problems: failures on the way."""

    answers: list[Answer] = field(default_factory=list)
    stopped: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """The outcome of a hand-in: its exercises, by name. broken, assigned, problems: see hand_in.HandIn.

    unreadable: why the rest is empty.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    assigned: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unreadable: str = ""


class Stopped(Exception):
    """Grading was stopped before this hand-in ran."""


class Sandbox:
    """Runs hand-ins on the trials of some exercises, possibly several at once. Use it as a context manager."""

    def __init__(self, exercises: Sequence[Exercise], seed: int, limits: Limits) -> None:
        self.seed, self.limits = seed, limits
        self._folder = Path(tempfile.mkdtemp(prefix="grading-"))
        self._desk = self._folder / "desk"
        (self._desk / "marking").mkdir(parents=True)
        (self._folder / "root").mkdir()
        for name in _FILES:
            shutil.copyfile(_COURSE / name, self._desk / "marking" / name)
        self.isolation = isolation.best(self._desk)
        self._functions: list[Any] = []
        self._exercises = {exercise.name: exercise for exercise in exercises}
        self._order = [
            {
                "name": exercise.name,
                "outputs": exercise.outputs,
                "arguments": exercise.arguments,
                "trials": [encode(trial, self._functions) for trial in exercise.trials(seed)],
            }
            for exercise in exercises
        ]
        self._stop = threading.Event()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
        _remove(self._folder)

    def stop(self) -> None:
        """End all running hand-ins: each `run` raises Stopped."""
        self._stop.set()

    def run(self, name: str, data: bytes) -> Outcome:
        """Run the exercises of a hand-in, each separately. name: the file's name; data: its content."""
        alone = self.isolation != isolation.NOTHING
        order = {
            "file": name,
            "size": len(data),
            "exercises": self._order,
            "seconds": self.limits.seconds,
            "memory": self.limits.memory,
            "alone": alone,
            "user": isolation.other_user() if alone else None,
        }
        with contextlib.ExitStack() as stack:
            home = "/tmp" if alone else tempfile.mkdtemp(prefix="hand-in-")
            if not alone:
                stack.callback(_remove, Path(home))
            command = isolation.command(self.isolation, self._desk, "from marking.sandbox_runner import main; main()")
            folder = None if alone else home
            process = _Process(command, isolation.environment(home), folder, self._stop, self.limits.memory)
            stack.callback(process.end)
            return self._converse(process, order, data)

    def _converse(self, process: _Process, order: dict[str, Any], data: bytes) -> Outcome:
        outcome = Outcome()
        try:
            deadline = time.monotonic() + _START
            process.send(json.dumps(order).encode() + b"\n" + data, deadline)
            found = process.receive(deadline)  # at this point the process has run no code of the hand-in
            if found is None or "unreadable" in found:
                outcome.unreadable = _plain(found["unreadable"]) if found else "it could not be read"
                return outcome
            outcome.broken = {name: _plain(why) for name, why in found["broken"].items()}
            outcome.assigned = found["assigned"]
            outcome.problems = [_plain(problem) for problem in found["problems"]]
        except (OSError, EOFError, TimeoutError, *_MALFORMED):
            outcome.unreadable = "the process that should run it did not start, or took too long to read it"
            return outcome
        waiting = [name for name in found["defined"] if name in self._exercises]
        outcome.attempts = {name: Attempt() for name in waiting}
        ended = "it ended the process that runs the hand-in"
        try:
            while waiting:
                attempt = outcome.attempts[waiting[0]]
                self._listen(process, waiting[0], attempt)
                waiting.pop(0)
        except TimeoutError:
            ended = f"it did not finish within {self.limits.seconds:g} s"
        except (EOFError, OSError):
            pass
        for name in waiting:
            if not outcome.attempts[name].answers:
                outcome.attempts[name].stopped = ended
            ended = "the hand-in ended the process that runs it in an earlier exercise"
        return outcome

    def _listen(self, process: _Process, name: str, attempt: Attempt) -> None:
        """Record the messages of an exercise until it is done."""
        deadline = time.monotonic() + self.limits.seconds + _GRACE
        process.begin()
        while time.monotonic() < deadline:
            message = process.receive(deadline)
            try:
                if message is None:
                    raise ValueError("no message")
                if "answers" in message:
                    attempt.answers = _answers(message["answers"], self._exercises[name])
                elif "failed" in message and len(attempt.problems) < _MOST_PROBLEMS:
                    attempt.problems.append(_plain(message["failed"]))
                elif "call" in message:
                    process.send(json.dumps(self._called(message)).encode() + b"\n", deadline)
                elif "done" in message:
                    if not attempt.answers:
                        attempt.stopped = attempt.stopped or self._why_it_ended(message["status"], process.exhausted())
                    return
            except _MALFORMED:
                attempt.stopped = "its process sent something that is not an answer"
        raise TimeoutError

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


def _answers(message: Any, exercise: Exercise) -> list[Answer]:
    """The answers in a message. Raises ValueError for anything else."""
    answers = []
    for one in message:
        outputs = tuple(decode(output) for output in one["outputs"])
        for output in outputs:
            if not isinstance(output, np.ndarray | str):
                raise ValueError("an output that is not an array")
        words = tuple(_plain(output) if isinstance(output, str) else output for output in outputs)
        changed = tuple(name for name in exercise.arguments if name in one["changed"])
        answers.append(Answer(words, _plain(one["problem"]), _plain(one["error"]), changed))
    if not answers:
        raise ValueError("no answers")
    return answers


def _plain(text: Any) -> str:
    """A text from a hand-in, made safe for a terminal: without escape sequences, and short."""
    if not isinstance(text, str):
        raise ValueError("not a text")
    return "".join(letter for letter in text[:4000] if letter.isprintable() or letter == "\n")


def _remove(folder: Path) -> None:
    """Remove a folder of ours, however deeply a hand-in has nested it: shutil.rmtree fails at some depth."""
    with contextlib.suppress(OSError):
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, timeout=60.0)


class _Process:
    """A process that exchanges lines of JSON with us; we wait for each line only until a deadline.

    memory: bytes for all that it starts.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: str | None, stop: threading.Event, memory: int
    ) -> None:
        self._memory, self._next_look, self._exhausted = memory, 0.0, False
        self._killed: set[int] = set()
        self._group = ControlGroup(memory)
        self._process = subprocess.Popen(
            self._group.inside(command),
            bufsize=0,
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
        os.set_blocking(self._in.fileno(), False)
        os.set_blocking(self._out.fileno(), False)
        self._stop = stop
        self._lines: deque[bytes] = deque()
        self._rest = b""

    def send(self, data: bytes, deadline: float) -> None:
        """Write all data. Raises TimeoutError at the deadline, OSError if the process has ended."""
        waiting = memoryview(data)
        while waiting:
            self._wait(self._in, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                waiting = waiting[os.write(self._in.fileno(), waiting[:65536]) :]

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None for any other line. Raises TimeoutError at the deadline, EOFError at the end."""
        while not self._lines:
            if len(self._rest) > _LONGEST_LINE:
                raise EOFError("a line without an end")
            self._wait(self._out, select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(self._out.fileno(), 1 << 20)
                if not chunk:
                    raise EOFError
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                self._lines.extend(line for line in lines if line.strip())
        try:
            message = json.loads(self._lines.popleft())
        except (ValueError, RecursionError, MemoryError):
            return None
        return message if isinstance(message, dict) else None

    def _wait(self, pipe: IO[bytes], event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        while True:
            if self._stop.is_set():
                raise Stopped
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._look()
            if poll.poll(min(left, _LOOK) * 1000):
                return

    def begin(self) -> None:
        """Begin an exercise: what was ended for its memory before does not count."""
        self._group.exceeded()
        self._exhausted = False

    def exhausted(self) -> bool:
        """Whether we or the kernel ended what it started since `begin`, because that used too much memory."""
        self._exhausted |= self._group.exceeded()
        return self._exhausted

    def _look(self) -> None:
        """End what the process started if all of it uses too much memory. Check only now and then."""
        if time.monotonic() < self._next_look:
            return
        started = memory.started_by(self._process.pid) - self._killed  # killed ones give theirs back late
        if self._group.exceeded() or memory.used_by(started, self._memory) > self._memory:
            self._exhausted = True
            self._killed |= started
            for one in started:  # the runner ends what they start meanwhile
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
        self._next_look = time.monotonic() + _LOOK

    def end(self) -> None:
        """End it, and every process in its namespace or, without one, in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self._group.remove()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):
                pipe.close()
