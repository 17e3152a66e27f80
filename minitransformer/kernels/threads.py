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
from concurrent.futures import ThreadPoolExecutor
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
    try:
        before += [library.num_threads for library in blas]
        for library in blas:
            library.set_num_threads(1)
        contexts = [contextvars.copy_context() for _ in parts]  # np.errstate and its kin hold in the threads too
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(lambda context, part: context.run(work, part), contexts, parts))
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
    """Call work(*part) for every part, each on a thread of its own and the first on this one. BLAS stays as it is."""
    if len(parts) == 1:
        return work(*parts[0])
    started = [_pool().submit(work, *part) for part in parts[1:]]
    try:
        work(*parts[0])
    finally:
        for one in started:
            one.result()


def blas_threads() -> int:
    """How many threads BLAS has at this moment."""
    return min((library.num_threads for library in _blas()), default=1)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads that stay, since to start one takes longer than a part."""
    return ThreadPoolExecutor(os.cpu_count())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in a child


@functools.cache
def _blas() -> list[Any]:
    """The BLAS libraries that are loaded; asking one of them for its threads takes a microsecond."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
