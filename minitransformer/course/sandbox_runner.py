"""The process in which a hand-in runs. sandbox.py starts it in a place with NumPy and without solutions.

It reads one message and the hand-in from standard input, reports which exercises it finds, and runs each in a child of
its own with limits on time and memory. A child runs the statements that its exercise needs, calls the function on the
trials, and sends the returned arrays. Nothing here takes part in the verdict: a hand-in can overwrite, patch or replace
what it finds, but it changes only its own answers.

The package itself is missing here. `_NotHere` replaces it, so that imports work and arrays come from NumPy. A call of
an op raises an error that says why: the exercises need only NumPy and SciPy's error function.
"""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

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
        found = hand_in.read(order["file"], data, exercises)
    except (ValueError, RecursionError, MemoryError) as error:
        channel.send({"unreadable": str(error)[:_LONGEST] or type(error).__name__})
        return
    defined = [name for name in exercises if name in found.definitions]
    problems = [problem[:_LONGEST] for problem in found.problems[:_MOST_FAILURES]]
    channel.send({"defined": defined, "broken": found.broken, "assigned": found.assigned, "problems": problems})
    for name in defined:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            _limit(CPU=int(order["seconds"]) + 2, NOFILE=_DESCRIPTORS)
            if order["alone"]:  # the system counts the hand-in's processes apart from this user's others
                _limit(NPROC=_PROCESSES)
            try:
                _answer(channel, exercises[name], found)
            except BaseException as error:  # a hand-in may raise anything, anywhere
                channel.send({"failed": _said(error)})
            finally:
                os._exit(0)
        channel.send({"done": name, "status": _ended(child, order["seconds"], order["alone"])})


def _answer(channel: _Channel, exercise: dict[str, Any], found: Any) -> None:
    from . import collecting, wire

    trials = [wire.decode(trial, channel.function) for trial in exercise["trials"]]
    outputs, arguments = tuple(exercise["outputs"]), tuple(exercise["arguments"])
    name: str = exercise["name"]
    asked: Any = types.SimpleNamespace(name=name, outputs=outputs, arguments=arguments, trials=lambda seed: trials)
    function = _run(found, name, channel)
    if not callable(function):
        problem = f"There is no function {name} after the statements that it needs have run."
        answers = [collecting.Answer(problem=problem)]
    else:
        try:
            answers = collecting.collect(asked, function)
        except BaseException as error:
            answers = [collecting.Answer(problem="Your function stops with an error:", error=_said(error))]
    channel.send({"answers": [_as_message(answer, wire.encode) for answer in answers]})


def _run(found: Any, name: str, channel: _Channel) -> Any:
    """Run the statements that the exercise needs and return its function. A failing one does not stop the rest."""
    module = types.ModuleType("__main__")
    module.__dict__.update(display=lambda *args, **options: None)
    sys.modules["__main__"] = module
    for title, source in found.sources.items():  # for the lines in a traceback
        linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)
    functions: dict[str, Any] = {}
    failures = 0
    for place in found.needed(name):
        title, node = found.statements[place].title, found.statements[place].node
        try:
            code = compile(ast.Module([node], []), title, "exec", flags=found.flags, dont_inherit=True)
            exec(code, module.__dict__)
        except BaseException as error:
            failures += 1
            if failures <= _MOST_FAILURES:
                channel.send({"failed": f"{title}, line {node.lineno}: {_said(error)}"[:_LONGEST]})
            continue
        for defined, where in found.definitions.items():
            if where == place:
                functions[defined] = module.__dict__.get(defined)
    module.__dict__.update(functions)  # later bindings of their names do not count
    return functions.get(name)


def _as_message(answer: Any, encode: Callable[[Any], Any]) -> dict[str, Any]:
    outputs = []
    for output in answer.outputs:
        if not isinstance(output, str) and output.size > _LARGEST:
            output = f"it has the shape {output.shape}: far more numbers than expected"
        try:
            outputs.append(encode(output))
        except TypeError:
            outputs.append(encode(f"it is an array of {output.dtype}, where numbers were expected"))
    words = {"problem": answer.problem[:_LONGEST], "error": answer.error[-_LONGEST:]}
    return {"outputs": outputs, "changed": list(answer.changed)} | words


def _said(error: BaseException) -> str:
    """An exception in words, safe against its own class."""
    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text}"[:_LONGEST]


def _limit(**limits: int) -> None:
    import resource

    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError, AttributeError):  # some systems lack this kind of limit
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _ended(child: int, seconds: float, alone: bool) -> int | None:
    """How the child ended; None if its time was over. Ends it and every process that it left behind.

    alone: whether this process is in a process namespace of its own. All processes there belong to the hand-in.
    """
    end, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < end:
        done, raw = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(raw)
        else:
            time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if alone and os.getpid() < 10:
            gone = time.monotonic() + 2.0
            while time.monotonic() < gone:  # until all are: their memory must not count in the next exercise
                os.kill(-1, signal.SIGKILL)
                time.sleep(0.002)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, os.WNOHANG)
        else:
            os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        if status is None:
            os.waitpid(child, 0)
    return status


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
