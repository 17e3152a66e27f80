"""Groups of GPUs over NCCL, with CuPy: each rank drives one GPU. MPI tells all ranks the id of the group.

NCCL's calls return at once. A sum is queued on CuPy's current stream, behind the kernels that compute its summands and
before those that read it. `begin_sum` queues it on a separate stream, beside the kernels; events say what waits for
what. Arrays on the host, such as a count of tokens, go over MPI. So do send and receive, by way of the host: on a
stream of NCCL a send waits for its receiver, and two ranks of a pipeline that send to each other would wait for ever.

This has not run on a GPU: tests/test_nccl.py runs it on a stand-in for CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, array_module, device_of, get_device, to_numpy
from .group import Group
from .mpi import MPIGroup

_KINDS = {"b": "INT8", "i": "INT32", "l": "INT64", "q": "INT64", "e": "FLOAT16", "f": "FLOAT32", "d": "FLOAT64"}


def on_gpus(group: MPIGroup, device: str) -> NCCLGroup:
    """The group over NCCL of ranks that have a GPU each. Raises ValueError for another device, or without a GPU."""
    if device != "cupy":
        raise ValueError(f'several ranks compute on "numpy" or "cupy", not on "{device}"')
    cuda, place = get_device(device).xp.cuda, group.place()
    if place >= cuda.runtime.getDeviceCount():
        raise ValueError(
            f"this is rank number {place + 1} of its machine, which has fewer GPUs; start one rank for each"
        )
    return NCCLGroup(group, cuda, place)


class NCCLGroup:
    """One rank of a group of GPUs; see Group in group.py.

    over: the same ranks over MPI. cuda: the module cupy.cuda. place: which of the machine's GPUs this rank drives.
    """

    def __init__(self, over: Group, cuda: Any, place: int) -> None:
        self.rank, self.size, self._over, self._cuda, self._place = over.rank, over.size, over, cuda, place
        cuda.Device(place).use()
        own = np.array(cuda.nccl.get_unique_id() if over.rank == 0 else (0,) * 128, np.int8)
        key = tuple(over.broadcast(own, 0).tolist())
        self._nccl = cuda.nccl.NcclCommunicator(over.size, key, over.rank)
        self._beside = cuda.Stream(non_blocking=True)

    def broadcast(self, x: Array, root: int) -> Array:
        if isinstance(x, np.ndarray):
            return self._over.broadcast(x, root)
        y = x.copy()
        self._nccl.broadcast(y.data.ptr, y.data.ptr, y.size, self._kind(y), root, self._stream())
        return y

    def sum(self, x: Array) -> Array:
        if isinstance(x, np.ndarray):
            return self._over.sum(x)
        y = x.copy()
        self._nccl.allReduce(y.data.ptr, y.data.ptr, y.size, self._kind(y), self._cuda.nccl.NCCL_SUM, self._stream())
        return y

    def begin_sum(self, x: Array) -> Callable[[], None]:
        """See Group. The GPU waits; the host does not."""
        if not x.flags.c_contiguous:
            raise ValueError("begin_sum: x must be contiguous, because it is replaced in place")
        self._beside.wait_event(self._cuda.get_current_stream().record())
        stream = self._beside.ptr
        self._nccl.allReduce(x.data.ptr, x.data.ptr, x.size, self._kind(x), self._cuda.nccl.NCCL_SUM, stream)
        ended = self._beside.record()
        return lambda: self._cuda.get_current_stream().wait_event(ended)

    def gather(self, x: Array, lengths: Sequence[int]) -> Array:
        """See Group. Each rank broadcasts its stretch, because NCCL gathers only stretches of equal length."""
        if isinstance(x, np.ndarray):
            return self._over.gather(x, lengths)
        ends = np.cumsum(lengths).tolist()
        y = array_module(x).empty((ends[-1], *x.shape[1:]), x.dtype)
        y[ends[self.rank] - lengths[self.rank] : ends[self.rank]] = x
        for root, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            part = y[end - length : end]
            self._nccl.broadcast(part.data.ptr, part.data.ptr, part.size, self._kind(y), root, self._stream())
        return y

    def scatter_sum(self, x: Array, lengths: Sequence[int]) -> Array:
        """See Group. One reduction for each rank sums its stretch there."""
        if isinstance(x, np.ndarray):
            return self._over.scatter_sum(x, lengths)
        x = x.copy()
        ends = np.cumsum(lengths).tolist()
        nccl, kind, stream = self._cuda.nccl, self._kind(x), self._stream()
        for root, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            part = x[end - length : end]
            self._nccl.reduce(part.data.ptr, part.data.ptr, part.size, kind, nccl.NCCL_SUM, root, stream)
        return x[ends[self.rank] - lengths[self.rank] : ends[self.rank]].copy()

    def send(self, x: Array, to: int) -> None:
        self._over.send(to_numpy(x), to)

    def receive(self, like: Array, source: int) -> Array:
        return device_of(like).to_device(self._over.receive(np.empty(like.shape, like.dtype), source))

    def split(self, part: int) -> NCCLGroup:
        return NCCLGroup(self._over.split(part), self._cuda, self._place)

    def _kind(self, x: Array) -> int:
        return int(getattr(self._cuda.nccl, f"NCCL_{_KINDS[x.dtype.char]}"))

    def _stream(self) -> int:
        return int(self._cuda.get_current_stream().ptr)
