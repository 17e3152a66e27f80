"""Threads for one large op, when no workers occupy the cores.

BLAS computes each matrix product on several threads, but between two products NumPy uses one thread. Some ops consist
of independent parts, as attention consists of heads. Such an op is faster if each thread takes whole parts while BLAS
uses one thread (`share_out`). A compiled loop that reads much memory is faster if several threads run it (`together`).
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
_before: dict[Any, int] = {}  # each BLAS library and its number of threads, while changed


def share_out(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Call work(part) for every part, on as many threads as BLAS has at this moment.

    Inside training's workers this is one thread. The parts must not write to the same memory, unless they synchronise
    themselves (phases.py). No other thread should change the number of BLAS threads meanwhile: share_out restores the
    previous number at its end.
    """
    n_threads = min(len(parts), blas_threads()) if len(parts) > 1 else 1
    rest = list(reversed(parts))

    def take_some(context: contextvars.Context) -> None:
        while (part := taken(rest)) is not None:
            try:
                context.run(work, part)
            except BaseException:
                rest.clear()  # the other parts are no longer needed
                raise

    if n_threads < 2 or not _one_at_a_time.acquire(blocking=False):
        for part in parts:
            work(part)
        return
    try:
        for library in _blas():
            _before[library] = library.num_threads
            library.set_num_threads(1)
        # np.errstate and other context settings hold in the threads too
        together(take_some, [(contextvars.copy_context(),) for _ in range(n_threads)])
    finally:
        try:
            _give_back()
        finally:
            _one_at_a_time.release()


def _give_back() -> None:
    """Give BLAS its previous number of threads."""
    while _before:
        library, number = _before.popitem()
        library.set_num_threads(number)


def together(work: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call work(*part) for every part: the first on this thread, each other on a helper. Return when all are done.

    When this thread has finished its part, it also does the parts that no helper has begun, because helpers may be busy
    with work that waits for this call. At the end the error of any part is raised, and so is Ctrl-C; after an error
    here no further part begins. The helpers stay for the next call: starting a thread takes longer than waking one, and
    ThreadPoolExecutor takes longer than these queues.
    """
    rest = list(parts[:0:-1])
    n_begun = len(rest)  # by the helpers, except those taken back below
    ended: list[BaseException | None] = []
    finished: SimpleQueue[None] = SimpleQueue()
    if rest and _helpers.ready(len(rest)):
        for _ in range(len(rest)):
            _helpers.tasks.put(functools.partial(_help, work, rest, ended, finished))
    errors: list[BaseException] = []
    try:
        work(*parts[0])
        while (part := taken(rest)) is not None:
            n_begun -= 1
            work(*part)
    except BaseException as error:
        errors.append(error)
        while taken(rest) is not None:
            n_begun -= 1
    while len(ended) < n_begun:  # the helpers write to the caller's arrays, so it must wait
        try:
            finished.get()
        except KeyboardInterrupt as interruption:
            errors.append(interruption)
    errors += [error for error in ended if error is not None]
    try:
        if errors:
            raise errors[0]
    finally:
        del errors, ended  # they refer to this frame, which refers to them and to all arrays


def taken(rest: list[T]) -> T | None:
    """The last part, which is then the caller's; None if other threads took the last one."""
    try:
        return rest.pop()
    except IndexError:
        return None


def _help(work: Callable[..., None], rest: list[Any], ended: list[Any], finished: SimpleQueue[None]) -> None:
    """The work of a helper for `together`: a part that no thread has begun, if one is left."""
    part = taken(rest)
    if part is None:
        return
    error = None
    try:
        work(*part)
    except BaseException as raised:  # the waiting thread raises it
        error = raised
    del part
    ended.append(error)
    finished.put(None)


class _Helpers:
    """Threads that wait for tasks."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.number, self.busy, self._counting = 0, 0, threading.Lock()

    def ready(self, number: int) -> bool:
        """Provide this number of free threads, or as many as the system allows. Returns whether there is any."""
        with self._counting:
            while self.number - self.busy < number:
                name = f"minitransformer-{self.number}"
                try:
                    threading.Thread(target=self._serve, name=name, daemon=True).start()
                except RuntimeError:  # the system cannot start another
                    break
                self.number += 1
        return self.number > 0 and not sys.is_finalizing()

    def _serve(self) -> None:
        _here.is_helper = True
        while True:
            task = self.tasks.get()
            with self._counting:
                self.busy += 1
            task()
            del task  # a waiting helper keeps nothing alive
            with self._counting:
                self.busy -= 1


_here = threading.local()
_helpers = _Helpers()


def _begin_again() -> None:
    global _helpers, _one_at_a_time
    _helpers, _one_at_a_time = _Helpers(), threading.Lock()
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)  # a child process does not inherit its parent's threads


def blas_threads() -> int:
    """The number of threads of BLAS at this moment; 1 on a helper, so that it does not wait for others."""
    return 1 if hasattr(_here, "is_helper") else min((library.num_threads for library in _blas()), default=1)


@functools.cache
def _blas() -> list[Any]:
    """The loaded BLAS libraries. Asking one for its number of threads takes a microsecond."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
