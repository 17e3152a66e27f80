"""The process that a hand-in runs in: started by sandbox.py as a script of its own, never imported by the grader.

It reads one message from standard input (the cells of the hand-in, the function wanted, the arguments of each trial),
sets its limits, runs the cells, calls the function and answers with the arrays it returned. It has no part in the
verdict: the reference solutions are neither loaded here nor readable, and whatever a hand-in patches, it can change no
more than the numbers that it answers with.

An audit hook refuses what no exercise needs: other processes, the network, signals, foreign libraries, and to write
files outside of the working folder. That stops accidents and simple tricks. It is not a jail.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

_LONGEST = 4000  # characters of a message in words


def main() -> None:
    """Do what the message on standard input says."""
    channel = _Channel()
    order = channel.receive()
    _limit(order["memory"], order["seconds"])
    sys.path[:] = order["path"]
    _import_without_references(order["course"])
    from minitransformer.course import collecting, wire

    trials = [wire.decode(trial, channel.function) for trial in order["trials"]]
    exercise: Any = types.SimpleNamespace(
        name=order["name"],
        outputs=tuple(order["outputs"]),
        arguments=tuple(order["arguments"]),
        trials=lambda seed: trials,
    )
    sys.addaudithook(_guard(os.getcwd(), os.path.join(order["course"], "exercises")))
    channel.send({"ready": True})
    namespace = _run_cells(order["cells"], order["file"], channel)
    function = namespace.get(order["name"])
    if function is None:
        channel.send({"undefined": True})
        return
    try:
        answers = collecting.collect(exercise, function, 0)
    except TypeError as error:  # it is no function
        answers = [collecting.Answer(problem=str(error))]
    channel.send({"answers": [_as_message(answer, wire.encode) for answer in answers]})


def _as_message(answer: Any, encode: Callable[[Any], Any]) -> dict[str, Any]:
    outputs = []
    for output in answer.outputs:
        try:
            outputs.append(encode(output))
        except TypeError:
            outputs.append(encode(f"it is an array of {output.dtype}, where numbers were expected"))
    words = {"problem": answer.problem[:_LONGEST], "error": answer.error[:_LONGEST]}
    return {"outputs": outputs, "changed": list(answer.changed)} | words


class _Channel:
    """Lines of JSON to and from the grader, on descriptors that print and input know nothing of."""

    def __init__(self) -> None:
        self._incoming = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self._outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode) for n, mode in enumerate(("r", "w", "w")))  # noqa: SIM115

    def send(self, message: dict[str, Any]) -> None:
        self._outgoing.write(json.dumps(message) + "\n")
        self._outgoing.flush()

    def receive(self) -> Any:
        return json.loads(self._incoming.readline())

    def function(self, i: int) -> Callable[..., Any]:
        """An argument that is a function: it lives at the grader's, and each call of it is sent there."""
        from minitransformer.course.wire import decode, encode

        def remote(*args: Any) -> Any:
            self.send({"call": i, "args": encode(args)})
            answer = self.receive()
            if "error" in answer:
                raise ValueError(answer["error"])
            return decode(answer["value"])

        return remote


def _limit(memory: int, seconds: float) -> None:
    import resource

    file_size = 64 * 1024 * 1024
    wanted = {"RLIMIT_CPU": int(seconds) + 5, "RLIMIT_AS": memory, "RLIMIT_FSIZE": file_size, "RLIMIT_CORE": 0}
    for name, value in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # some systems have no limit of this kind
            resource.setrlimit(getattr(resource, name), (value, value))


def _import_without_references(course: str) -> None:
    """Import what a hand-in may use, with a stand-in for minitransformer.course that has no solutions in it."""
    import ctypes  # noqa: F401  (here, because the audit hook would not let it open libraries)

    import minitransformer

    stand_in: Any = types.ModuleType("minitransformer.course", "The course, as a hand-in sees it while it is graded.")
    stand_in.__path__ = [course]
    sys.modules["minitransformer.course"] = minitransformer.course = stand_in
    sys.modules["minitransformer.course.exercises"] = types.ModuleType("minitransformer.course.exercises")
    from minitransformer.course import collecting, wire  # noqa: F401

    stand_in.check = stand_in.exercise = stand_in.exercises = _Silent()  # after the import of the file exercise.py


class _Silent:
    """Stands for whatever a notebook asks of the course while it is graded: every call and attribute is this again."""

    def __call__(self, *args: Any, **options: Any) -> _Silent:
        return self

    def __getattr__(self, name: str) -> _Silent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __str__(self) -> str:
        return ""


def _run_cells(cells: list[str], file: str, channel: _Channel) -> dict[str, Any]:
    """Run each cell; one that fails does not keep the others from running."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=file, display=lambda *args, **options: None)
    sys.modules["__main__"] = module
    for i, cell in enumerate(cells):
        title = file if len(cells) == 1 else f"{file}, code cell {i + 1}"
        try:
            exec(compile(cell, title, "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            channel.send({"failed": f"{title}{_line(error, title)}: {type(error).__name__}: {error}"[:_LONGEST]})
    return module.__dict__


def _line(error: BaseException, title: str) -> str:
    place = error.__traceback__
    line = getattr(error, "lineno", None)
    while place is not None:
        if place.tb_frame.f_code.co_filename == title:
            line = place.tb_lineno
        place = place.tb_next
    return "" if line is None else f", line {line}"


_REFUSED = (
    "ctypes.dlopen ctypes.dlsym ctypes.dlsym/handle ftplib. http. os.exec os.fork os.forkpty os.kill os.killpg "
    "os.posix_spawn os.setxattr os.system pty.spawn resource. shutil. signal.pthread_kill smtplib. socket. "
    "subprocess.Popen sys.setprofile sys.settrace syslog. urllib. webbrowser."
).split()
_PATHS = "os.chmod os.chown os.link os.mkdir os.remove os.rename os.rmdir os.symlink os.truncate os.utime".split()


def _guard(folder: str, references: str) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook. It closes over what it needs, so that nothing which a hand-in can assign to changes it."""
    refused, paths = frozenset(_REFUSED), frozenset(_PATHS)
    rooms = tuple(name for name in _REFUSED if name.endswith("."))
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    real, inside, text, fsdecode = os.path.realpath, f"{os.path.realpath(folder)}{os.sep}", (str, bytes), os.fsdecode
    hidden = os.path.realpath(references)

    def guard(event: str, args: tuple[Any, ...]) -> None:
        if event in refused or event.startswith(rooms):
            raise PermissionError(f"{event} is not allowed in a hand-in")
        if event == "open":
            path, _, flags = args
            if not isinstance(path, text):
                return
            place = real(fsdecode(path))
            if place.startswith(hidden):
                raise PermissionError("the reference solutions are not for hand-ins")
            if isinstance(flags, int) and flags & writing and not place.startswith(inside) and place != os.devnull:
                raise PermissionError(f"a hand-in writes to its working folder alone, not to {place}")
        elif event in paths and not all(
            real(fsdecode(path)).startswith(inside) for path in args if isinstance(path, text)
        ):
            raise PermissionError(f"{event} outside of the working folder is not allowed in a hand-in")

    return guard


if __name__ == "__main__":
    with contextlib.suppress(io.UnsupportedOperation, BrokenPipeError):
        main()
