"""One program of a comparison, in a process of its own. It reads commands from stdin, one JSON object per line, and
answers each with one JSON object on stdout. Arrays are passed in safetensors files. `compare.Worker` is the other end.

    {"do": "build", "case": "gpt", "program": "ours", "sizes": {...}, "threads": 2, "weights": "PATH"}
    {"do": "prove", "to": "PATH"}       take the first steps, and write the results that must agree
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

# The file that has each program of a case, and its name there.
PROGRAMS = {
    "ours": ("cases.{case}", "Ours"),
    "textbook": ("cases.{case}", "Textbook"),
    "eager": ("cases.{case}_torch", "Eager"),
    "compiled": ("cases.{case}_torch", "Compiled"),
    "jax": ("in_jax", "Jitted"),
    "reading": ("cases.{case}", "Reading"),
    "products": ("cases.{case}_torch", "Products"),
}


class Memory:
    """The peak memory that this process allocated since `Memory()`: resident pages, except those that map a file.

    Linux keeps the high-water mark of all resident pages (VmHWM). Pages of libraries are subtracted, because they say
    nothing about the program. getrusage's ru_maxrss cannot be used: it is inherited from the parent.
    """

    def __init__(self) -> None:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # otherwise freed memory would be used again without being counted
        self.start = _status().get("RssAnon", 0)
        self.restart()

    def restart(self) -> None:
        """Forget peaks so far."""
        if _STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """Bytes, or 0 without /proc."""
        now = _status()
        return max(0, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self.start) if now else 0


_STATUS = Path("/proc/self/status")


def _status() -> dict[str, int]:
    """The sizes among the lines of /proc/self/status, in bytes."""
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    sizes = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: int(size.split()[0]) * 1024 for name, size in sizes}


class Session:
    """The state of a worker between two commands."""

    def build(self, case: str, program: str, sizes: dict[str, Any], threads: int, weights: str) -> dict[str, Any]:
        """Build the program. Ours writes its first weights to the file `weights`; the others start from these."""
        file, name = PROGRAMS[program]
        plain = importlib.import_module(f"benchmarks.cases.{case}")
        program_class = getattr(importlib.import_module(f"benchmarks.{file.format(case=case)}"), name)
        program_class.threads(threads)
        self.memory = Memory()
        if program == "ours":
            self.program = program_class(plain.Sizes(**sizes))
            _save(self.program.weights(), weights)
        else:
            first = load_file(weights) if Path(weights).exists() else {}  # attention has no weights
            self.program = program_class(plain.Sizes(**sizes), first)
        self.memory.restart()
        self.peak = 0
        return {}

    def prove(self, to: str) -> dict[str, Any]:
        results = self.program.prove()
        self.peak = self.memory.peak()  # before writing the results, which also takes memory
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
        """The peak of the card if the program reports it, otherwise of the process."""
        on_card = self.program.peak() if hasattr(self.program, "peak") else None
        return {"peak": on_card or max(self.peak, self.memory.peak())}


def _save(arrays: dict[str, Any], path: str) -> None:
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of libraries goes to stderr, not among the replies
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
