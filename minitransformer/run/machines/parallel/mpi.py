"""Groups of processes over MPI, with mpi4py: `mpiexec -n 4 minitransformer ...`, on one machine or many.

mpiexec (or srun) starts the processes and gives each its rank in the environment. Only then is mpi4py imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")  # MPICH, PMIx, Open MPI


def started_by_mpi() -> bool:
    """Whether mpiexec, or another launcher of MPI, started this process."""
    return any(name in os.environ for name in RANKS)


def world() -> MPIGroup:
    """The group of all processes that MPI started together. Raises ImportError without mpi4py."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: MPI itself is not installed
        raise ImportError(
            f"mpiexec started this process, but mpi4py cannot be imported ({error}); install the extra: "
            'pip install "minitransformer[parallel]"'
        ) from error
    return MPIGroup(MPI.COMM_WORLD)


class MPIGroup:
    """One rank of an MPI communicator, with NumPy arrays. See Group in group.py."""

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI

        self.communicator, self._mpi = communicator, MPI
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._on_the_way: list[tuple[Any, np.ndarray]] = []  # keeps the arrays alive until they are received
        self._sums: list[Any] = []  # those that have begun

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        y = np.array(x, order="C")
        self.communicator.Bcast(y, root)
        return y

    def sum(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, order="C")
        y = np.empty_like(x)
        self.communicator.Allreduce(x, y)
        return y

    def begin_sum(self, x: np.ndarray) -> Callable[[], None]:
        """See Group. MPI advances a sum only during a call, so each call also tests the earlier sums."""
        if not x.flags.c_contiguous:
            raise ValueError("begin_sum: x must be contiguous, because it is replaced in place")
        self._sums = [request for request in self._sums if not request.Test()]
        request = self.communicator.Iallreduce(self._mpi.IN_PLACE, x)
        self._sums.append(request)
        return request.Wait

    def gather(self, x: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        y = np.empty((sum(lengths), *x.shape[1:]), x.dtype)
        self.communicator.Allgatherv(np.asarray(x, order="C"), [y, self._counts(x, lengths)])
        return y

    def scatter_sum(self, x: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        y = np.empty((lengths[self.rank], *x.shape[1:]), x.dtype)
        self.communicator.Reduce_scatter(np.asarray(x, order="C"), y, self._counts(x, lengths))
        return y

    def send(self, x: np.ndarray, to: int) -> None:
        """See Group. It does not wait for the receiver."""
        x = np.array(x, order="C")
        self._on_the_way = [(request, sent) for request, sent in self._on_the_way if not request.Test()]
        self._on_the_way.append((self.communicator.Isend(x, to), x))

    def receive(self, like: np.ndarray, source: int) -> np.ndarray:
        y = np.empty(like.shape, like.dtype)
        self.communicator.Recv(y, source)
        return y

    def place(self) -> int:
        """The number of this rank among those of its machine, from 0 on."""
        return int(self.communicator.Split_type(self._mpi.COMM_TYPE_SHARED).Get_rank())

    def split(self, part: int) -> MPIGroup:
        return MPIGroup(self.communicator.Split(part))

    def _counts(self, x: np.ndarray, lengths: Sequence[int]) -> list[int]:
        """How many numbers each rank's stretch has."""
        return [length * int(np.prod(x.shape[1:], dtype=np.int64)) for length in lengths]
