"""The process in which a hand-in runs. sandbox.py starts it in a place with NumPy and without solutions.

It reads one message and the hand-in from standard input, reports which exercises it finds, and runs each in a child of
its own with limits on time and memory. A child runs the statements that its exercise needs, calls the function on the
trials, and sends the returned arrays, and the inputs as they are afterwards. Nothing here takes part in the verdict: a
hand-in can overwrite, patch or replace what it finds, but it changes only its own answers.

The package itself is missing here. `_NotHere` replaces it, so that imports work and arrays come from NumPy. A call of
an op raises an error that says why: the exercises need only NumPy and SciPy's error function.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hand_in import HandIn

_LONGEST = 4000  # characters of a message in words
_LARGEST = 100_000  # numbers of an answer; the largest right one has a few thousand
_MOST_FAILURES = 20
_FILE_SIZE = 64 * 1024**2
_PROCESSES = 32
_DESCRIPTORS = 256


def main() -> None:
    """Carry out the message on standard input."""
    channel = _Channel()
    order = channel.receive()
    import numpy  # noqa: F401  (first, because under the limits and the other user it may not load)

    from . import hand_in

    if order["user"] is not None:
        os.setgroups([])
        os.setgid(order["user"])
        os.setuid(order["user"])
    data = channel.read(order["size"])
    _limit(AS=order["memory"], FSIZE=_FILE_SIZE, CORE=0)
    sys.meta_path.insert(0, _Finder())
    exercises = {exercise["name"]: exercise for exercise in order["exercises"]}
    try:
        found = hand_in.read(order["file"], data)
    except (ValueError, RecursionError, MemoryError) as error:
        channel.send({"unreadable": str(error)[:_LONGEST] or type(error).__name__})
        return
    bound = [name for name in exercises if name in found.bound]
    broken = {name: why[:_LONGEST] for name, why in found.broken.items() if name in exercises and name not in bound}
    problems = [problem[:_LONGEST] for problem in found.problems[:_MOST_FAILURES]]
    channel.send({"bound": bound, "broken": broken, "problems": problems})
    given = set(os.listdir("/tmp"))
    for name in bound:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            _limit(CPU=int(order["seconds"]) + 2, NOFILE=_DESCRIPTORS, NPROC=_PROCESSES)
            try:
                _answer(channel, name, exercises, found)
            except BaseException as error:  # a hand-in may raise anything, anywhere
                channel.send({"failed": hand_in.said(error)[:_LONGEST]})
            finally:
                os._exit(0)
        channel.send({"done": name, "status": _ended(child, order["seconds"])})
        _empty(order["temporary"], given)


def _answer(channel: _Channel, name: str, exercises: dict[str, Any], found: HandIn) -> None:
    from . import collecting, wire
    from .hand_in import is_function, said

    def fits(other: str, value: Any) -> bool:
        known = other in exercises and is_function(value)
        return known and not collecting.signature_misfit(exercises[other]["arguments"], value)

    exercise = exercises[name]
    trials = [wire.decode(trial, channel.function) for trial in exercise["trials"]]
    outputs, arguments = tuple(exercise["outputs"]), tuple(exercise["arguments"])
    asked: Any = types.SimpleNamespace(name=name, outputs=outputs, arguments=arguments, trials=lambda seed: trials)
    function, problems = found.function(name, fits)
    for problem in problems[:_MOST_FAILURES]:
        channel.send({"failed": problem[:_LONGEST]})
    if is_function(function):
        try:
            answers = collecting.collect(asked, function)
        except BaseException as error:
            answers = [collecting.Answer(problem="Your function stops with an error:", error=said(error))]
    elif found.is_defined(name):
        answers = [
            collecting.Answer(problem=f"There is no function {name} after the statements that it needs have run.")
        ]
    else:
        channel.send({"assigned": name})
        return
    channel.send({"answers": [_as_message(answer, wire.encode) for answer in answers]})


def _as_message(answer: Any, encode: Callable[..., Any]) -> dict[str, Any]:
    def sent(x: Any, wrong: str) -> Any:
        try:
            return encode(x, [])
        except TypeError:
            return encode(wrong)

    outputs = []
    for output in answer.outputs:
        if not isinstance(output, str) and output.size > _LARGEST:
            output = f"it has the shape {output.shape}: far more numbers than expected"
        dtype = getattr(output, "dtype", "")
        outputs.append(sent(output, f"it is an array of {dtype}, where numbers were expected"))
    inputs = [sent(x if getattr(x, "size", 0) <= _LARGEST else "", "") for x in answer.inputs]
    words = {"problem": answer.problem[:_LONGEST], "error": answer.error[-_LONGEST:]}
    return {"outputs": outputs, "inputs": inputs} | words


def _limit(**limits: int) -> None:
    import resource

    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError, AttributeError):  # some systems lack this kind of limit
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _ended(child: int, seconds: float) -> int | None:
    """How the child ended; None if its time was over. Ends it and all other processes here: they are the hand-in's."""
    end, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < end:
        done, raw = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(raw)
        else:
            time.sleep(0.002)
    gone = time.monotonic() + 2.0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < gone:  # until all are: their memory must not count in the next exercise
            os.kill(-1, signal.SIGKILL)
            time.sleep(0.002)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
    return status


def _empty(size: int, given: set[str]) -> None:
    """Empty the hand-in's own /tmp, of this size: it lies in memory, and counts in the next exercise too."""
    about = os.statvfs("/tmp")
    for name in set(os.listdir("/tmp")) - given if about.f_blocks * about.f_frsize == size else ():
        path = f"/tmp/{name}"
        try:
            os.rmdir(path)  # the usual way is too slow for a million folders
        except OSError:
            with contextlib.suppress(Exception):  # it may be too deep to go through
                shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(path)


class _Channel:
    """Lines of JSON to and from the grader, on descriptors that print and input do not use."""

    def __init__(self) -> None:
        self._incoming = os.fdopen(os.dup(0), "rb")
        self._outgoing = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode) for n, mode in enumerate(("r", "w", "w")))  # noqa: SIM115

    def send(self, message: dict[str, Any]) -> None:
        waiting = memoryview(
            b"\n" + json.dumps(message).encode() + b"\n"
        )  # the first \n ends a line that a child has begun
        while waiting:
            waiting = waiting[os.write(self._outgoing, waiting) :]

    def receive(self) -> Any:
        return json.loads(self._incoming.readline())

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._incoming.read(size - len(data)) or sys.exit(1)
        return bytes(data)

    def function(self, i: int) -> Callable[..., Any]:
        """An argument that is a function: it stays with the grader, and each call is sent there."""
        from .wire import decode, encode

        def remote(*args: Any) -> Any:
            mark = os.urandom(8).hex()
            self.send({"call": i, "args": encode(args), "mark": mark})
            while True:  # an earlier child may have ended before its own answer came
                with contextlib.suppress(ValueError):
                    answer = self.receive()
                    if answer["mark"] == mark:
                        break
            if "error" in answer:
                raise ValueError(answer["error"])
            return decode(answer["value"])

        return remote


class _NotHere(types.ModuleType):
    """Replaces minitransformer and everything in it: it can be imported but not called."""

    def __getattr__(self, name: str) -> Any:
        import numpy as np

        if name.startswith("__"):
            raise AttributeError(name)
        on_numpy = {
            "xp": np,
            "get_device": lambda *name: _NotHere("device"),
            "array_module": lambda *x: np,
            "to_device": lambda x, *name: np.asarray(x),
            "to_numpy": np.asarray,
        }
        return on_numpy.get(name, _NotHere(f"{self.__name__}.{name}"))

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError(f"{self.__name__} may not be used in an exercise: write it with NumPy")


class _Finder:
    """Returns `_NotHere` for every import of a module of minitransformer."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        is_ours = name.partition(".")[0] == "minitransformer"
        return ModuleSpec(name, self, is_package=True) if is_ours else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _NotHere(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass
