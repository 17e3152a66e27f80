"""Run something in a process of its own, with a limit of time."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

Tell = Callable[[dict[str, Any]], None]
LATE = "ran out of time"


def apart(limit: float, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of run, in a separate process; "ran out of time" if it takes longer than the limit."""
    return next(told_apart(limit, lambda tell: tell(run())), _died())


def in_turn(limit: float, names: list[str], run: Callable[[list[str], Tell], None]) -> Iterator[dict[str, Any]]:
    """A result for each name, from one process that takes them in turn, and as many more as hang or die.

    run(names, tell) tells one result for each of the names. limit: for each.
    """
    left = list(names)
    while left:
        late = False
        for result in told_apart(limit, functools.partial(run, left)):
            left, late = left[1:], result["outcome"] == LATE
            yield result
        if left and not late:
            left = left[1:]
            yield _died()


def told_apart(limit: float, run: Callable[[Tell], None]) -> Iterator[dict[str, Any]]:
    """What run tells, in a separate process, which ends after the last line, or if one takes longer than the limit."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read_end)
        out = os.fdopen(write_end, "w")

        def tell(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=out, flush=True)

        with contextlib.suppress(BaseException):
            try:
                run(tell)
            except BaseException:
                tell({"outcome": "error", "problem": traceback.format_exc(limit=-3).strip()})
        os._exit(0)
    os.close(write_end)
    os.set_blocking(read_end, False)
    end, text = time.monotonic() + limit, b""
    try:
        while time.monotonic() < end:
            try:
                part = os.read(read_end, 1 << 16)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not part:
                return
            *lines, text = (text + part).split(b"\n")
            for line in lines:
                yield json.loads(line)
                end = time.monotonic() + limit
        yield {"outcome": LATE}
    finally:
        os.close(read_end)
        with contextlib.suppress(ProcessLookupError):  # the child and whatever it started
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _died() -> dict[str, Any]:
    return {"outcome": "error", "problem": "the process died"}
