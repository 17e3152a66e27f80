"""One program of a comparison, in a process of its own: it reads commands from stdin, a JSON object on each line, and
answers each with one JSON object on stdout. Arrays go through safetensors files. `compare.Worker` is the other end.

    {"do": "build", "case": "gpt", "program": "ours", "sizes": {...}, "threads": 2, "weights": "PATH"}
    {"do": "prove", "to": "PATH"}       take the first steps, and write what both programs must agree on
    {"do": "time", "count": 3}          {"seconds": mean time of a run}, after one that is not timed
    {"do": "memory"}                    {"peak": bytes}
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

# Which file of a case has which program.
PROGRAMS = {
    "ours": ("", "Ours"),
    "textbook": ("", "Textbook"),
    "eager": ("_torch", "Eager"),
    "compiled": ("_torch", "Compiled"),
    "reading": ("", "Reading"),
    "products": ("_torch", "Products"),
}


class Memory:
    """The peak of what this process allocated since `Memory()`: resident pages, but not those that map a file.

    Linux keeps the high-water mark of all resident pages (VmHWM). Pages of libraries are taken off: which of them have
    been touched says nothing of the program. getrusage's ru_maxrss would not do: it is inherited from the parent.
    """

    def __init__(self) -> None:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # what was freed would else be taken again, and never count
        self.start = _status().get("RssAnon", 0)
        self.restart()

    def restart(self) -> None:
        """Forget peaks so far."""
        if _STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """Bytes, or 0 where there is no /proc to ask."""
        now = _status()
        return max(0, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self.start) if now else 0


_STATUS = Path("/proc/self/status")


def _status() -> dict[str, int]:
    """The sizes among the lines of /proc/self/status, in bytes."""
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    sizes = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: int(size.split()[0]) * 1024 for name, size in sizes}


class Session:
    """What a worker keeps between two commands."""

    def build(self, case: str, program: str, sizes: dict[str, Any], threads: int, weights: str) -> dict[str, Any]:
        """Build the program. Ours writes its first weights to the file `weights`, the others begin from those."""
        suffix, name = PROGRAMS[program]
        plain = importlib.import_module(f"benchmarks.cases.{case}")
        program_class = getattr(importlib.import_module(f"benchmarks.cases.{case}{suffix}"), name)
        program_class.threads(threads)
        self.memory = Memory()
        if program == "ours":
            self.program = program_class(plain.Sizes(**sizes))
            _save(self.program.weights(), weights)
        else:
            first = load_file(weights) if Path(weights).exists() else {}  # attention has inputs only
            self.program = program_class(plain.Sizes(**sizes), first)
        self.memory.restart()
        self.peak = 0
        return {}

    def prove(self, to: str) -> dict[str, Any]:
        results = self.program.prove()
        self.peak = self.memory.peak()  # before the results are written, which takes memory too
        _save(results, to)
        del results
        self.memory.restart()
        return {}

    def time(self, count: int) -> dict[str, Any]:
        """The first run wakes the threads and brings the program's data back into the caches: it is not timed."""
        total = 0.0
        for turn in range(count + 1):
            self.program.prepare()
            began = time.perf_counter()
            self.program.run()
            total += (time.perf_counter() - began) * (turn > 0)
        return {"seconds": total / count}

    def peak_memory(self) -> dict[str, Any]:
        """Of the card, where the program says so, and else of the process."""
        on_card = self.program.peak() if hasattr(self.program, "peak") else None
        return {"peak": on_card or max(self.peak, self.memory.peak())}


def _save(arrays: dict[str, Any], path: str) -> None:
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr and not among the replies
    session = Session()
    commands = {"build": session.build, "prove": session.prove, "time": session.time, "memory": session.peak_memory}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply = commands[command.pop("do")](**command)
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            reply = {"error": f"{type(error).__name__}: {lines[0]}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
