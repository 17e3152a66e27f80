"""Run by mpiexec from test_parallel.py: each collective over MPI against its definition and finite differences."""

import sys

import numpy as np

from minitransformer import parallel, verify
from minitransformer.run.machines.parallel import mpi

group = mpi.world()
COLLECTIVES = {
    "broadcast": (lambda x, g: parallel.broadcast(x, g, g.size - 1), 3),
    "reduce": (lambda x, g: parallel.reduce(x, g, g.size - 1), 3),
    "all_gather": (parallel.all_gather, 3),
    "reduce_scatter": (parallel.reduce_scatter, 2 * group.size),
    "identity": (parallel.identity, 3),
    "mean": (lambda x, g: parallel.mean(x, g, 1.0 + g.rank), 3),
}
WANTED = {
    "broadcast": lambda xs: [xs[-1]] * len(xs),
    "reduce": lambda xs: [*[0.0 * xs[0]] * (len(xs) - 1), sum(xs)],
    "all_gather": lambda xs: [np.concatenate(xs)] * len(xs),
    "reduce_scatter": lambda xs: np.split(sum(xs), len(xs)),
    "identity": lambda xs: [xs[0]] * len(xs),
    "mean": lambda xs: [np.average(xs, axis=0, weights=1.0 + np.arange(len(xs)))] * len(xs),
}


def over_mpi(collective, one_value):
    """f(x_0, ..., x_{n-1}) on every rank alike: this rank's part by the collective, the others' gathered."""

    def all_of(part):
        return group.gather(part[None], [1] * group.size)

    def f(*xs):
        y, backward = collective(xs[group.rank if len(xs) > 1 else 0].copy(), group)
        ys = y if one_value else all_of(y)

        def f_backward(dys):
            dxs = all_of(backward(dys.copy() if one_value else dys[group.rank].copy()))
            return tuple(dxs) if len(xs) > 1 else dxs[-1]

        return ys, f_backward

    return f


for name, (collective, length) in COLLECTIVES.items():
    rng = np.random.default_rng(7)  # the same on every rank
    xs = [rng.normal(size=(length, 2)) for _ in range(1 if name == "identity" else group.size)]
    f = over_mpi(collective, one_value=name == "mean")
    report = verify.gradients(f, *xs, intermediates=False, name=name)
    y = collective(xs[group.rank if len(xs) > 1 else 0], group)[0]
    np.testing.assert_allclose(y, WANTED[name](xs * group.size if len(xs) == 1 else xs)[group.rank], rtol=1e-14)
    if not report.ok:
        sys.exit(f"rank {group.rank}: {report}")

x = np.full((2, 3), float(group.rank))  # a ring of send and receive, and the gradients around it the other way
right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
if group.size > 1:
    _, send_backward = parallel.send(x, group, right)
    y, receive_backward = parallel.receive(x, group, left)
    assert (y == left).all()
    receive_backward(10.0 + y)
    assert (send_backward() == 10.0 + group.rank).all()
unequal = group.gather(np.full(group.rank, group.rank), list(range(group.size)))
assert unequal.tolist() == [rank for rank in range(group.size) for _ in range(rank)]
numbers = np.random.default_rng(group.rank).normal(size=(5, 1 << 16))
again = [numbers.copy() for _ in range(3)]
for rows in again:
    for wait in [group.begin_sum(row) for row in rows]:
        wait()
np.testing.assert_allclose(again[0], group.sum(numbers), rtol=1e-12, atol=1e-12)
assert (again[0] == again[1]).all() and (again[0] == again[2]).all()  # the same bits each time, and on each rank
assert (group.broadcast(again[0], 0) == again[0]).all()
half = group.split(group.rank % 2)
assert group.place() == group.rank  # all on this machine
assert half.sum(np.array([group.rank]))[0] == sum(range(group.rank % 2, group.size, 2))
print(f"rank {group.rank} of {group.size}: {len(COLLECTIVES)} collectives ok")
