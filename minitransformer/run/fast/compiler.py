"""The loops are compiled in a process beside the run, which begins with their NumPy forms.

Numba needs some time for all loops, once on each machine. A process of low priority does it, and keeps the machine
code in Numba's cache. When it has ended, this process takes the loops from there. If the run is killed, that process
ends too; if the run is over before, it has another minute.

The two forms differ by rounding. So a run has the same bits as another only if both begin with the loops. Later runs
do, and so do ranks, which must not differ from each other. MINITRANSFORMER_COMPILE=first makes every run wait for the
compiler.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import subprocess
import sys
import threading
from typing import Any

NOTE = "the fast loops are being compiled, once on this machine; until then their NumPy forms run"
NO_FOLDER = "Numba has no folder to write to, so the fast loops run in their NumPy forms; name one in NUMBA_CACHE_DIR"

COMPILE = f"import sys; sys.path[:] = {{}}; from {__package__}.compile_all import compile_all; compile_all(beside=True)"

_starting = threading.Lock()
_ready: bool | None = None  # None until someone asks


def loops() -> Any:
    """The module loops, as soon as the compiler has ended; None before, and without Numba."""
    if _ready is None:
        start()
    return module() if _ready else None


def start() -> str:
    """Start the compiler, unless the loops are there. Returns what to tell the user, or ""."""
    global _ready
    with _starting:
        if _ready is None:
            _ready = module() is not None and (_must_wait() or is_done())
            if not _ready and module() and module().done():
                threading.Thread(target=_compile_beside, name="compiler", daemon=True).start()
    if _ready or not module():
        return ""
    return NOTE if module().done() else NO_FOLDER


def compile_first() -> None:
    """From now on every loop is taken, and compiled at its first call if it is not in the cache."""
    global _ready
    _ready = module() is not None


@functools.cache
def module() -> Any:
    """The module loops; None without Numba."""
    try:
        from . import loops
    except ImportError:
        return None
    return loops


def is_done() -> bool:
    """Whether Numba's cache has all loops."""
    file = module().done()
    return file is not None and file.exists() and file.read_text(encoding="utf-8") == module().STAMP


def _must_wait() -> bool:
    from ..machines.parallel.mpi import started_by_mpi

    return os.environ.get("MINITRANSFORMER_COMPILE") == "first" or started_by_mpi()


def _compile_beside() -> None:
    """Run compile_all.py in a process, and wait for it."""
    global _ready
    run, silent = [sys.executable, "-c", COMPILE.format(sys.path)], subprocess.DEVNULL
    try:
        process: Any = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=silent, stderr=silent)
    except OSError:  # no process can be started here
        return

    def leave_it_a_minute() -> None:
        with contextlib.suppress(OSError):  # Ctrl-C has ended it, too
            os.write(process.stdin.fileno(), b".")

    atexit.register(leave_it_a_minute)
    _ready = process.wait() == 0
    atexit.unregister(leave_it_a_minute)
    process.stdin.close()
