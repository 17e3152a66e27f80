"""Threads for one large op, where no worker has taken the cores already.

BLAS shares each of its products among its threads, but between two products NumPy uses one. An op that is made of
independent parts, as attention is of heads, gains more if each thread takes whole parts, and BLAS no others
(`share_out`). And a compiled loop that reads much memory is done sooner if several threads enter it (`together`).
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

_one_at_a_time = threading.Lock()  # the number of BLAS threads belongs to the whole process
_before: dict[Any, int] = {}  # each BLAS library and its number of threads, while that is changed


def share_out(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Call work(part) for every part, on as many threads as BLAS has at this moment.

    Inside training's workers that is one. The parts must not write to the same memory. Another thread should not change
    the number of BLAS threads meanwhile: it is set to what it was before.
    """
    n_threads = min(len(parts), blas_threads()) if len(parts) > 1 else 1
    rest = list(reversed(parts))

    def take_some(context: contextvars.Context) -> None:
        while rest:
            try:
                part = rest.pop()
            except IndexError:  # another thread took the last one
                return
            try:
                context.run(work, part)
            except BaseException:
                rest.clear()  # nobody needs the others now
                raise

    if n_threads < 2 or not _one_at_a_time.acquire(blocking=False):
        for part in parts:
            work(part)
        return
    try:
        for library in _blas():
            _before[library] = library.num_threads
            library.set_num_threads(1)
        # np.errstate and its kin hold in the threads too
        together(take_some, [(contextvars.copy_context(),) for _ in range(n_threads)])
    finally:
        try:
            _give_back()
        finally:
            _one_at_a_time.release()


def _give_back() -> None:
    """Let BLAS have as many threads as before."""
    while _before:
        library, number = _before.popitem()
        library.set_num_threads(number)


def together(work: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call work(*part) for every part, the first on this thread and each other on a helper; return when all are done.

    An error of any of them is raised then, and so is Ctrl-C. The helpers stay for the next time: to start a thread
    takes longer than to wake one up, and ThreadPoolExecutor's own Python takes longer than these queues.
    """
    n_others = len(parts) - 1
    if n_others == 0 or not _helpers.ready(n_others):
        for part in parts:
            work(*part)
        return
    done: list[BaseException | None] = []
    finished: SimpleQueue[None] = SimpleQueue()
    for part in parts[1:]:
        _helpers.tasks.put((functools.partial(work, *part), done, finished))
    errors: list[BaseException] = []
    try:
        work(*parts[0])
    except BaseException as error:
        errors.append(error)
    while len(done) < n_others:  # the helpers write to arrays of the caller, who must not go on before
        try:
            finished.get()
        except KeyboardInterrupt as interruption:
            errors.append(interruption)
    errors += [error for error in done if error is not None]
    try:
        if errors:
            raise errors[0]
    finally:
        del errors, done  # they hold this frame, which would hold them and all arrays


class _Helpers:
    """Threads that wait for tasks: a task is what to call, where to put its error or None, and whom to tell."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Callable[[], None], list[BaseException | None], SimpleQueue[None]]]
        self.tasks, self.number, self._starting = SimpleQueue(), 0, threading.Lock()

    def ready(self, number: int) -> bool:
        """Have so many threads, or as many as the system gives. Returns whether there is any that can work."""
        with self._starting:
            while self.number < number:
                name = f"minitransformer-{self.number}"
                try:
                    threading.Thread(target=self._serve, name=name, daemon=True).start()
                except RuntimeError:  # the system starts no more
                    break
                self.number += 1
        return self.number > 0 and not sys.is_finalizing()

    def _serve(self) -> None:
        _here.is_helper = True
        while True:
            work, done, finished = self.tasks.get()
            error = None
            try:
                work()
            except BaseException as raised:  # it belongs to whoever waits
                error = raised
            done.append(error)
            finished.put(None)
            del work, done, finished, error  # a waiting helper keeps nothing alive


_here = threading.local()
_helpers = _Helpers()


def _begin_again() -> None:
    global _helpers, _one_at_a_time
    _helpers, _one_at_a_time = _Helpers(), threading.Lock()
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)  # threads do not live on in a child


def blas_threads() -> int:
    """How many threads BLAS has at this moment; for a helper 1, so that none waits for others."""
    return 1 if hasattr(_here, "is_helper") else min((library.num_threads for library in _blas()), default=1)


@functools.cache
def _blas() -> list[Any]:
    """The BLAS libraries that are loaded; asking one of them for its threads takes a microsecond."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
