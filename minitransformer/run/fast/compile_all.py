"""Compile all loops into Numba's cache. compiler.py starts this beside a run."""

from __future__ import annotations

import os
import signal
import threading
import time

from ...core.arrays.files import write
from ..machines.locks import locked
from . import compiler
from .check import call_every_loop

PATIENCE = 300  # seconds to wait for another process that compiles
REST = 60.0  # seconds that the compiler has after the end of a run; the next one begins with what is in the cache then


def compile_all(beside: bool = False) -> None:
    """Compile all loops, or wait for another process that does. beside: with lower priority, and not after the end of
    stdin, which a killed run closes. A byte from there says that the run is over; then REST seconds are left. Raises
    OSError if there is no cache, or it cannot be written.
    """
    if beside:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once and without a word
        getattr(os, "nice", abs)(5)  # a quarter of a core that is busy: the compiler must not starve, either
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    compiler.compile_first()
    file = compiler.module().done()
    if file is None:
        raise OSError(compiler.NO_FOLDER)
    for left in reversed(range(PATIENCE)):
        if compiler.is_done():
            return
        try:
            with locked(file.parent / file.stem):
                call_every_loop()
                write(file, compiler.module().STAMP)
        except OSError:  # another process holds the lock
            if not left:
                raise
            time.sleep(1.0)


def _end_with_stdin(stdin: int = 0) -> None:
    if os.read(
        stdin, 1
    ):  # not from sys.stdin: a thread that waits for its buffer makes the interpreter end with an error
        time.sleep(REST)
    os._exit(1)
