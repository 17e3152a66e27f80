"""A group of ranks: n copies of one program, each with a number from 0 to n - 1, that exchange arrays.

A rank is a process (mpi.py) or a thread of this process (here). Threads need no MPI, which suits lessons and tests.
Every rank calls the same method of its group, with arrays that fit together. The call returns when this rank's part is
done. All ranks get the same bits of a sum, and the same again in every run with this number of ranks.
"""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import numpy as np

from ....core.arrays.backend import Array, array_module
from ....core.arrays.boundary import check_sizes

T = TypeVar("T")


class Group(Protocol):
    """The methods of a group that collectives and training use. Every result is a new array."""

    rank: int
    size: int

    def broadcast(self, x: Array, root: int) -> Array:
        """The x of the root, on every rank. All have one shape and dtype."""

    def sum(self, x: Array) -> Array:
        """The sum of the x of all ranks, on every rank. All have one shape and dtype."""

    def begin_sum(self, x: Array) -> Callable[[], None]:
        """Begin to replace x by its sum over all ranks, and return a function that waits for the end.

        Until then nobody may touch x. All ranks begin their sums in the same order, and wait in the same order. Unless
        a group can do both at once, it copies x here, and sums when it waits.
        """
        begun = x.copy()

        def wait() -> None:
            x[...] = self.sum(begun)

        return wait

    def gather(self, x: Array, lengths: Sequence[int]) -> Array:
        """The x of all ranks joined along the first axis, on every rank. lengths: the length of each rank's x."""

    def scatter_sum(self, x: Array, lengths: Sequence[int]) -> Array:
        """This rank's stretch of the sum of all x. lengths: the length of each rank's stretch of the first axis."""

    def send(self, x: Array, to: int) -> None:
        """Send x to another rank, which must receive it. Returns before it does."""

    def receive(self, like: Array, source: int) -> Array:
        """The array that another rank sends. like: any array of its shape and dtype."""

    def split(self, part: int) -> Group:
        """A new group of the ranks that give the same part, in the same order. All ranks must call it."""


def lengths(total: int, size: int) -> list[int]:
    """The lengths of `size` stretches of an axis of length `total`. They differ by one at most."""
    return [total * (rank + 1) // size - total * rank // size for rank in range(size)]


def stretch(total: int, group: Group) -> slice:
    """This rank's stretch of an axis, as in `lengths`."""
    return slice(total * group.rank // group.size, total * (group.rank + 1) // group.size)


def texts(group: Group, text: str) -> list[str]:
    """The texts of all ranks, on every rank."""
    own = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    sizes = group.gather(np.array([own.size]), [1] * group.size).tolist()
    everything = group.gather(own, sizes)
    return [bytes(part).decode("utf-8") for part in np.split(everything, np.cumsum(sizes)[:-1])]


def same_everywhere(group: Group, facts: Mapping[str, str]) -> None:
    """Raise ValueError on all ranks if a rank's facts differ from rank 0's. The error names the rank and the fact."""
    first, *others = (json.loads(text) for text in texts(group, json.dumps(dict(facts))))
    for rank, other in enumerate(others, 1):
        for name in first | other:
            if first.get(name) != other.get(name):
                raise ValueError(
                    f"all ranks must train the same, but rank {rank} has {name} {other.get(name)} and rank 0 "
                    f"{first.get(name)}; give every rank the same version, files and options"
                )


class ThreadGroup(Group):
    """One rank of a group of threads; `in_threads` makes them."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, len(meeting.brought), meeting

    def broadcast(self, x: Array, root: int) -> Array:
        return self._meeting.all(self.rank, x, lambda xs: xs[root].copy())

    def sum(self, x: Array) -> Array:
        """See Group. The terms are added in the order of the ranks."""
        return self._meeting.all(self.rank, x, _sum)

    def gather(self, x: Array, lengths: Sequence[int]) -> Array:
        return self._meeting.all(self.rank, x, lambda xs: array_module(x).concatenate(xs))

    def scatter_sum(self, x: Array, lengths: Sequence[int]) -> Array:
        start = sum(lengths[: self.rank])
        own = slice(start, start + lengths[self.rank])
        return self._meeting.all(self.rank, x, lambda xs: _sum([each[own] for each in xs]))

    def send(self, x: Array, to: int) -> None:
        """See Group. A thread need not wait for the receiver."""
        self._meeting.mail[self.rank, to].put(x.copy())

    def receive(self, like: Array, source: int) -> Array:
        x = self._meeting.mail[source, self.rank].get()
        if x is None:
            raise threading.BrokenBarrierError
        return x

    def split(self, part: int) -> ThreadGroup:
        parts = self.gather(np.array([part]), [1] * self.size).tolist()
        ranks = [rank for rank in range(self.size) if parts[rank] == part]
        meeting = self._meeting.all(self.rank, _Meeting(len(ranks)), lambda brought: brought[ranks[0]])
        self._meeting.inside.append(meeting)
        return ThreadGroup(ranks.index(self.rank), meeting)

    def leave(self) -> None:
        """Make every rank that waits, or will wait, raise BrokenBarrierError."""
        self._meeting.end()


def _sum(xs: Sequence[Array]) -> Array:
    total = xs[0].copy()
    for x in xs[1:]:
        total += x
    return total


class _Meeting:
    """Where the threads of a group exchange arrays."""

    def __init__(self, size: int) -> None:
        self.brought: list[Any] = [None] * size
        self.mail: dict[tuple[int, int], SimpleQueue[Array | None]] = {
            (source, to): SimpleQueue() for source in range(size) for to in range(size)
        }
        self.inside: list[_Meeting] = []  # groups of some of these threads; they end with this one
        self._barrier = threading.Barrier(size)

    def all(self, rank: int, x: Any, read: Callable[[list[Any]], Any]) -> Any:
        """Return read(the arrays of all ranks). No rank continues, or writes to an array, until all have read."""
        self.brought[rank] = x
        self._barrier.wait()
        result = read(self.brought)
        self._barrier.wait()
        return result

    def end(self) -> None:
        """Make every thread that waits, or will wait, raise BrokenBarrierError."""
        self._barrier.abort()
        for queue in self.mail.values():
            queue.put(None)
        for meeting in self.inside:
            meeting.end()


def thread_ranks(size: int) -> list[ThreadGroup]:
    """The ranks of one new group of threads, for `in_threads`."""
    check_sizes("thread_ranks", size=size)
    meeting = _Meeting(size)
    return [ThreadGroup(rank, meeting) for rank in range(size)]


def in_threads(ranks: int | Sequence[ThreadGroup], work: Callable[[Group], T]) -> list[T]:
    """work(group) on a thread for each rank. Returns the results by rank.

    ranks: all that `thread_ranks` returned, or the size of a new group. If work raises an error on one rank, the others
    stop where they wait for that rank. The error is raised here, and the group cannot be used again. Raises
    RuntimeError where the system starts no threads.
    """
    groups = thread_ranks(ranks) if isinstance(ranks, int) else ranks
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(group: ThreadGroup, context: contextvars.Context) -> None:
        try:
            results[group.rank] = context.run(work, group)
        except threading.BrokenBarrierError:  # another rank raised the real error
            pass
        except BaseException as error:
            errors.append(error)
            group.leave()

    # np.errstate and other context settings hold in the threads too
    threads = [threading.Thread(target=run, args=(each, contextvars.copy_context()), daemon=True) for each in groups]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:  # "can't start new thread"
        groups[0].leave()  # ends those that have begun
        raise RuntimeError(
            f"cannot start {len(groups)} threads, one for each rank ({error}); a browser's Python has no threads: "
            "run this in Python on a computer"
        ) from error
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(len(groups))]


ALONE: Group = thread_ranks(1)[0]  # the group of a program that runs by itself
