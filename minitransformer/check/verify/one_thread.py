"""One thread of BLAS while something is checked: its many runs are short, and two threads would wait for each other."""

import contextlib
import threading

from threadpoolctl import threadpool_limits


class _OneBlasThread(contextlib.ContextDecorator):
    """Inside, BLAS has one thread. The number belongs to the process: the last to leave restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = threading.Lock(), 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit.enter_context(threadpool_limits(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


one_blas_thread = _OneBlasThread()
