"""A group over NCCL on a stand-in for CuPy: strict arrays, and collectives that read and write at the given addresses.

The stand-in's streams begin nothing before somebody waits for it, so a sum that nobody waits for is missing.
"""

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from minitransformer import parallel
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.core.arrays.strict import StrictArray
from minitransformer.core.training.corpora import TextCorpus
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.machines.parallel import nccl
from minitransformer.run.machines.parallel.nccl import NCCLGroup, on_gpus
from minitransformer.training import AdamW, Workers

KINDS = {0: "b", 2: "i", 4: "q", 6: "e", 7: "f", 8: "d"}  # ncclDataType_t in nccl.h
CURRENT = 0  # the address of the current stream


def at(address, count, kind):
    """The numbers at an address."""
    dtype = np.dtype(KINDS[kind])
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


class Stream:
    """A queue: what is put on it runs when a stream waits for an event that was recorded after it."""

    queues: dict[int, list] = {}  # noqa: RUF012  # by the address of the stream

    def __init__(self, non_blocking):
        assert non_blocking  # otherwise it would wait for the default stream
        self.ptr = id(self)
        self.queues[self.ptr] = []
        self.fed = False

    def wait_event(self, event):
        event()
        self.fed = True

    def record(self):
        assert self.fed, "the sum begins before the kernels that compute its summands have ended"
        self.fed = False
        queue, self.queues[self.ptr] = self.queues[self.ptr], []

        def event():
            while queue:
                queue.pop(0)()

        return event


class Cuda:
    """What NCCLGroup needs of cupy.cuda, for one rank in a thread."""

    meetings: dict[tuple[int, ...], list] = {}  # noqa: RUF012  # the ranks of a group by its id
    lock = threading.Lock()
    Stream = Stream

    def __init__(self):
        self.used = []
        names = {"INT8": 0, "INT32": 2, "INT64": 4, "FLOAT16": 6, "FLOAT32": 7, "FLOAT64": 8}
        self.nccl = SimpleNamespace(
            get_unique_id=self.get_unique_id, NcclCommunicator=Communicator, NCCL_SUM=0,
            **{f"NCCL_{name}": number for name, number in names.items()},
        )  # fmt: skip

    def get_unique_id(self):
        with self.lock:
            key = (len(self.meetings) - 100, *[-128] * 127)
            self.meetings[key] = []
        return key

    def Device(self, number):
        return SimpleNamespace(use=lambda: self.used.append(number))

    @staticmethod
    def get_current_stream():
        return SimpleNamespace(ptr=CURRENT, record=lambda: lambda: None, wait_event=lambda event: event())


class Communicator:
    """NcclCommunicator, with the arguments that CuPy's has, on the ranks of a group of threads."""

    def __init__(self, n, key, rank):
        assert len(key) == 128
        with Cuda.lock:
            if not Cuda.meetings[key]:
                Cuda.meetings[key] += parallel.thread_ranks(n)
        self.group = Cuda.meetings[key][rank]

    def _do(self, stream, work):
        if stream == CURRENT:
            work()
        else:
            Stream.queues[stream].append(work)

    def allReduce(self, source, target, count, kind, op, stream):
        assert op == 0

        def work():
            at(target, count, kind)[...] = self.group.sum(at(source, count, kind))

        self._do(stream, work)

    def broadcast(self, source, target, count, kind, root, stream):
        def work():
            at(target, count, kind)[...] = self.group.broadcast(at(source, count, kind), root)

        self._do(stream, work)

    def reduce(self, source, target, count, kind, op, root, stream):
        def work():
            total = self.group.sum(at(source, count, kind))
            if self.group.rank == root:
                at(target, count, kind)[...] = total
            else:
                at(target, count, kind)[...] = 77  # NCCL leaves something here that is no result

        self._do(stream, work)


@pytest.fixture(autouse=True)
def addresses(monkeypatch):
    """CuPy's arrays have the address of their memory; so have the strict ones here."""
    memory = property(lambda x: SimpleNamespace(ptr=x._numpy.ctypes.data))
    monkeypatch.setattr(StrictArray, "data", memory, raising=False)


def with_gpus(n, work):
    return parallel.in_threads(n, lambda over: work(NCCLGroup(over, Cuda(), over.rank)))


def test_the_collectives_are_those_of_threads():
    xs = np.random.default_rng(0).normal(size=(3, 7, 2)).astype(np.float32)
    sizes = [2, 2, 3]

    def results(group, x):
        return [
            group.broadcast(x, 1),
            group.sum(x),
            group.gather(x[: sizes[group.rank]], sizes),
            group.scatter_sum(x, sizes),
            group.split(group.rank // 2).sum(x),
        ]

    wanted = parallel.in_threads(3, lambda group: results(group, xs[group.rank]))

    def work(group):
        x = to_device(xs[group.rank], "strict")
        found = results(group, x)
        assert group._cuda.used == [group.rank] * 2 and (to_numpy(x) == xs[group.rank]).all()
        whole = x.astype("int64")
        assert to_numpy(group.sum(whole)).dtype == np.int64
        return found

    for found, expected in zip(with_gpus(3, work), wanted, strict=True):
        for y, y_wanted in zip(found, expected, strict=True):
            assert type(y) is StrictArray
            np.testing.assert_array_equal(to_numpy(y), y_wanted)


def test_send_receive_and_arrays_on_the_host():
    def work(group):
        x = to_device(np.full(3, float(group.rank)), "strict")
        group.send(x, 1 - group.rank)
        assert group.sum(np.array([group.rank])).tolist() == [1]
        return to_numpy(group.receive(x, 1 - group.rank)).tolist()

    assert with_gpus(2, work) == [[1.0] * 3, [0.0] * 3]


def test_a_sum_that_has_begun_ends_in_the_wait():
    def work(group):
        x = to_device(np.arange(4.0), "strict")
        wait = group.begin_sum(x)
        before = to_numpy(x).tolist()
        wait()
        with pytest.raises(ValueError, match="x must be contiguous"):
            group.begin_sum(x[::2])
        return before, to_numpy(x).tolist()

    assert with_gpus(2, work) == [([0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 4.0, 6.0])] * 2


@pytest.mark.parametrize("n", [1, 3])
def test_training_on_gpus_equals_one_rank_on_the_host(n):
    config = LanguageModelConfig(
        11, max_length=6, n_layers=2, d_model=8, n_heads=2, d_ff=12, dropout=0.0, attention_dropout=0.0
    )
    corpus = TextCorpus(np.random.default_rng(1).integers(0, 11, 200), length=6, rows=5)
    batches = corpus.batches(np.random.default_rng(2))

    def train(group, device):
        model = LanguageModel(config, np.random.default_rng(0)).to(device, "float64")
        workers, optimizer = Workers(model, 1, group), AdamW(model.parameters(), 0.01)
        losses = []
        for step in range(3):
            losses.append(workers.loss_and_gradients(corpus, [batches[step]], (0, step)))
            optimizer.step()
        return losses, model.state()

    losses, state = parallel.in_threads(1, lambda group: train(group, "numpy"))[0]
    for losses_there, state_there in with_gpus(n, lambda group: train(group, "strict")):
        np.testing.assert_allclose(losses_there, losses, rtol=1e-12)
        for name, value in state.items():
            np.testing.assert_allclose(state_there[name], value, rtol=1e-7, atol=1e-10)


def test_each_rank_takes_a_gpu_of_its_machine(monkeypatch):
    cuda = Cuda()
    cuda.runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    monkeypatch.setattr(nccl, "get_device", lambda name: SimpleNamespace(xp=SimpleNamespace(cuda=cuda)))
    (rank,) = parallel.thread_ranks(1)
    rank.place = lambda: 0
    assert on_gpus(rank, "cupy").sum(np.ones(1)).tolist() == [1.0] and cuda.used == [0]
    rank.place = lambda: 1
    with pytest.raises(ValueError, match="rank number 2 of its machine, which has fewer GPUs"):
        on_gpus(rank, "cupy")
    with pytest.raises(ValueError, match='several ranks compute on "numpy" or "cupy", not on "strict"'):
        on_gpus(rank, "strict")
