"""Threads for one large op, where no worker has taken the cores already.

BLAS shares each of its products among its threads, but between two products NumPy uses one. An op that is made of
independent parts, as attention is of heads, gains more if each thread takes whole parts, and BLAS no others.
"""

from __future__ import annotations

import contextvars
import functools
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

_one_at_a_time = threading.Lock()  # the number of BLAS threads belongs to the whole process


def share_out(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Call work(part) for every part, on as many threads as BLAS has at this moment.

    Inside training's workers that is one. The parts must not write to the same memory. Another thread should not change
    the number of BLAS threads meanwhile: it is set to what it was before.
    """
    n_threads = min(len(parts), blas_threads())
    if n_threads < 2 or not _one_at_a_time.acquire(blocking=False):
        for part in parts:
            work(part)
        return
    blas, before = _blas(), list[int]()
    rest = list(reversed(parts))

    def take_some(context: contextvars.Context) -> None:
        while rest:
            try:
                part = rest.pop()
            except IndexError:  # another thread took the last one
                return
            context.run(work, part)

    try:
        before += [library.num_threads for library in blas]
        for library in blas:
            library.set_num_threads(1)
        # np.errstate and its kin hold in the threads too
        together(take_some, [(contextvars.copy_context(),) for _ in range(n_threads)])
    finally:
        for library, number in zip(blas, before, strict=False):
            library.set_num_threads(number)
        _one_at_a_time.release()


WAKING = 1 << 18  # about as many numbers as one thread reads from memory while another wakes up
LEAST = 4 * WAKING  # numbers that are worth a second thread


def shares(size: int, numbers: int) -> list[slice]:
    """Cut range(size) for as many threads as BLAS has, where the work is to read so many numbers from memory.

    The first part is for the calling thread, which need not wake up first, and so it is larger.
    """
    n_threads = min(size, blas_threads())
    if n_threads < 2 or numbers < LEAST:
        return [slice(0, size)]
    first = size - (n_threads - 1) * int(size * (1.0 - WAKING / numbers) / n_threads)
    stops = [first + (size - first) * i // (n_threads - 1) for i in range(n_threads)]
    return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False) if start < stop]


def together(work: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call work(*part) for every part, the first on this thread and each other on a helper; return when all are done.

    An error of any of them is raised then. The helpers stay for the next time: to start a thread takes longer than to
    wake one up, and ThreadPoolExecutor's own Python takes longer than these queues.
    """
    if len(parts) == 1:
        return work(*parts[0])
    answers: SimpleQueue[BaseException | None] = SimpleQueue()
    _helpers().take([(work, part, answers) for part in parts[1:]])
    try:
        work(*parts[0])
    finally:
        errors = [answers.get() for _ in parts[1:]]
    for error in errors:
        if error is not None:
            raise error


class _Helpers:
    """Threads that wait for tasks, as many as the most tasks that came at once."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...], SimpleQueue[BaseException | None]]]
        self.tasks, self.number = SimpleQueue(), 0

    def take(self, tasks: list[Any]) -> None:
        while self.number < len(tasks):
            self.number += 1
            threading.Thread(target=self._serve, name=f"minitransformer-{self.number}", daemon=True).start()
        for task in tasks:
            self.tasks.put(task)

    def _serve(self) -> None:
        _here.is_helper = True
        while True:
            work, part, answers = self.tasks.get()
            error = None
            try:
                work(*part)
            except BaseException as raised:  # it belongs to whoever waits for the answer
                error = raised
            answers.put(error)
            del work, part, answers, error  # a waiting helper keeps nothing alive


_here = threading.local()


@functools.cache
def _helpers() -> _Helpers:
    return _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not live on in a child


def blas_threads() -> int:
    """How many threads BLAS has at this moment; for a helper 1, so that none waits for others."""
    return 1 if hasattr(_here, "is_helper") else min((library.num_threads for library in _blas()), default=1)


@functools.cache
def _blas() -> list[Any]:
    """The BLAS libraries that are loaded; asking one of them for its threads takes a microsecond."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
