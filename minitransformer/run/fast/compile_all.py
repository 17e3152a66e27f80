"""Compile all loops into Numba's cache. compiler.py starts this beside a run."""

import os
import signal
import threading
import time
from collections.abc import Iterable

from ...core.arrays.files import write
from ..machines.locks import locked
from . import compiler
from .check import call_loops

PATIENCE = 300  # seconds to wait for another process that compiles
REST = 60.0  # seconds that the compiler has after the end of a run; the next one begins with what is in the cache then


def beside(order: Iterable[str]) -> None:
    """compile_all, but not after the end of stdin, which a killed run closes. A byte from there says that the run is
    over; then REST seconds are left.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once and without a word
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    compile_all(order)


def compile_all(order: Iterable[str] = compiler.PARTS) -> None:
    """Compile the parts that the cache does not have, or wait for another process that does. Raises OSError if there is
    no cache, or it cannot be written.
    """
    file = compiler.module().done()
    if file is None:
        raise OSError(compiler.NO_FOLDER)
    for left in reversed(range(PATIENCE)):
        if compiler.parts_done().issuperset(order):
            return
        try:
            with locked(file.parent / file.stem):
                for part in order:
                    if part not in (done := compiler.parts_done()):
                        call_loops(part)
                        write(file, " ".join([compiler.module().STAMP, *done, part]))
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
