"""Threads for one large op, where no worker has taken the cores already.

BLAS shares each of its products among its threads, but between two products NumPy uses one. An op that is made of
independent parts, as attention is of heads, gains more if each thread takes whole parts, and BLAS no others.
"""

from __future__ import annotations

import contextvars
import functools
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
    blas = _blas()
    n_threads = min(len(parts), *(library.num_threads for library in blas)) if blas else 1
    if n_threads < 2 or not _one_at_a_time.acquire(blocking=False):
        for part in parts:
            work(part)
        return
    before: list[int] = []
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


@functools.cache
def _blas() -> list[Any]:
    """The BLAS libraries that are loaded; asking one of them for its threads takes a microsecond."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
