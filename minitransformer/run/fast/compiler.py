"""The loops are compiled in a process beside the run, which begins with their NumPy forms.

Numba needs some time for all loops, once on each machine. A process does it part by part, what the run needs first
before the rest, and keeps the machine code in Numba's cache. This process takes each part from there when it is done.
If the run is killed, that process ends too; if the run is over before, it has another minute.

The two forms differ by rounding. So a run has the same bits as another only if both begin with the loops. Later runs
do, and so do ranks, which must not differ from each other. MINITRANSFORMER_COMPILE=first makes every run wait for the
compiler.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import subprocess
import sys
import threading
from typing import Any

NOTE = "the fast loops are being compiled, once on this machine; until then their NumPy forms run"
NO_FOLDER = "Numba has no folder to write to, so the fast loops run in their NumPy forms; name one in NUMBA_CACHE_DIR"

PAUSE = 0.5  # seconds between two looks at what is done
MODULES = {  # with the parts of the loops, as training needs them
    "loops": "loops",
    "sublayers": "sublayer_loops",
    "attention": "attention_loops",
    "products": "decoding_loops",
    "decoding": "decoding_loops",
}
PARTS = tuple(MODULES)
TO_WRITE = (*PARTS[3:], *PARTS[:3])  # as it is to generate tokens
COMPILE = f"import sys; sys.path[:] = {{}}; from {__package__} import compile_all; compile_all.beside({{}})"

_starting = threading.Lock()
_ready: set[str] | None = None  # which parts; None until someone asks


def loops(part: str) -> Any:
    """The module with this part of all loops, as soon as it is compiled; None before, and without Numba.

    Also None if the loops need a matrix product that NumPy's library does not have (blas.py).
    """
    if _ready is None:
        start()
    return with_loops(MODULES[part]) if part in (_ready or ()) else None


@functools.cache
def with_loops(name: str) -> Any:
    """The module of this name, or None."""
    found = importlib.import_module(f".{name}", __package__)
    return found if getattr(found, "ready", lambda: True)() else None


def start(order: tuple[str, ...] = PARTS) -> str:
    """Start the compiler, unless the loops are there. Returns what to tell the user, or ""."""
    global _ready
    with _starting:
        if _ready is None:
            _ready = set(PARTS) if module() and _must_wait() else parts_done()
            if not _ready.issuperset(PARTS) and module() and module().done():
                threading.Thread(target=_compile_beside, args=(order,), name="compiler", daemon=True).start()
    if _ready.issuperset(PARTS) or not module():
        return ""
    return NOTE if module().done() else NO_FOLDER


def compile_first(*parts: str) -> None:
    """From now on the loops of these parts, or all, are taken, and compiled at first call if not in the cache."""
    global _ready
    _ready = (_ready or set()) | set(parts or PARTS) if module() else set()


@functools.cache
def module() -> Any:
    """The module loops; None without Numba."""
    try:
        from . import loops
    except ImportError:
        return None
    return loops


def parts_done() -> set[str]:
    """The parts that Numba's cache has."""
    file = module() and module().done()
    stamp, *parts = file.read_text(encoding="utf-8").split() if file and file.exists() else [""]
    return set(parts) if module() and stamp == module().STAMP else set()


def _must_wait() -> bool:
    from ..machines.parallel.mpi import started_by_mpi

    return os.environ.get("MINITRANSFORMER_COMPILE") == "first" or started_by_mpi()


def _compile_beside(order: tuple[str, ...]) -> None:
    """Run compile_all.py in a process, and take each part when it is done."""
    global _ready
    run, silent = [sys.executable, "-c", COMPILE.format(sys.path, order)], subprocess.DEVNULL
    try:
        process: Any = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=silent, stderr=silent)
    except OSError:  # no process can be started here
        return

    def leave_it_a_minute() -> None:
        with contextlib.suppress(OSError):  # Ctrl-C has ended it, too
            os.write(process.stdin.fileno(), b".")

    atexit.register(leave_it_a_minute)
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PAUSE)
        _ready = parts_done()
    atexit.unregister(leave_it_a_minute)
    process.stdin.close()
