"""A command on several ranks: it joins them at the start, and ends them all when one of them fails.

Three things can go wrong with a rank. In each case one line names the rank, and then all ranks end:

    it raises an error            the rank itself says so
    it is killed                  its parent says so: the rank is a child of the process that mpiexec started
    it no longer answers          its neighbour says so: each rank sends a byte to the next one every second

The launcher adds lines of its own. What the run has saved stays whole: files are renamed when they are complete.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import mpi
from .group import ALONE, Group, texts

PATIENCE = 20.0  # seconds until a rank that sends nothing counts as stopped
_EVERY = 1.0  # seconds
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """The group of the ranks that mpiexec started, or ALONE without mpiexec. Inside, an error on one rank ends all."""
    if not mpi.started_by_mpi():
        yield ALONE
        return
    if hasattr(os, "fork"):
        _go_on_in_a_child()
    group = mpi.world()
    if group.size == 1:
        yield ALONE
        return
    with _watched(group):
        try:
            yield group
            group.sum(np.zeros(1))  # no rank stops answering before all are done
        except BaseException as error:
            time.sleep(min(2.0 * group.rank, 10.0))  # if several ranks have the same error, only the first prints it
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            _end_all(group, f"rank {group.rank} ({_me()}): {reason}")


def _go_on_in_a_child() -> None:
    """Return in a new child process. This process waits for the child's end, and reports if it was killed."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.setpgid(0, 0)  # so that Ctrl-C arrives once, passed on by the parent
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return
    passed_on = set()

    def pass_on(number: int, frame: Any) -> None:
        passed_on.add(number)
        os.kill(child, number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, pass_on)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in passed_on:  # the launcher ends the rank, and says why
        os._exit(1)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        rank = next(os.environ[name] for name in mpi.RANKS if name in os.environ)
        _say(f"rank {rank} (process {child} on {platform.node()}) was killed by {name}; memory may have run out")
        os._exit(1)
    os._exit(os.WEXITSTATUS(status))


@contextlib.contextmanager
def _watched(group: mpi.MPIGroup) -> Iterator[None]:
    """Inside this context a thread sends a byte to the next rank every second, and expects one from the rank before.

    All ranks must leave it together.
    """
    communicator, done, names = group.communicator.Dup(), threading.Event(), texts(group, _me())
    left, right = (group.rank - 1) % group.size, (group.rank + 1) % group.size

    def watch() -> None:
        byte, buffer = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
        sent: Any = None
        looked = heard = time.monotonic()
        while not done.wait(_EVERY):
            if sent is None or sent.Test():
                sent = communicator.Isend(byte, right)
            now = time.monotonic()
            if now - looked > PATIENCE / 2:  # this rank itself was stopped
                heard = now
            looked = now
            while communicator.Iprobe(left):
                communicator.Recv(buffer, left)
                heard = now
            if now - heard > PATIENCE:
                _end_all(
                    group,
                    f"rank {left} ({names[left]}) has not answered for {PATIENCE:.0f} s; it is stopped, or its machine "
                    "cannot be reached",
                )

    thread = threading.Thread(target=watch, name="watch", daemon=True)
    thread.start()
    yield
    done.set()
    thread.join()


def _me() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _say(message: str) -> None:
    print(f"minitransformer: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    time.sleep(0.5)  # when the ranks end, the launcher drops output not yet passed on


def _end_all(group: mpi.MPIGroup, message: str) -> None:
    """Say why, and end every rank."""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        _say(message)
    group.communicator.Abort(1)
