"""Groups of ranks: the collectives over threads and over MPI, and what happens when a rank fails."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiers import in_one

from benchmarks.ranks import counted
from minitransformer import ops, parallel
from minitransformer.run.machines.parallel.group import ALONE, lengths, stretch, texts
from minitransformer.run.machines.parallel.ring import Ring

MPICH = importlib.metadata.distribution("mpich")
MPIEXEC, LIBMPI = (
    next(MPICH.locate_file(path) for path in MPICH.files or () if path.name == name)
    for name in ("mpiexec", "libmpi.so.12")
)


def mpiexec(n, *arguments, timeout=600, **options):
    """Run this Python on n ranks."""
    command = [str(MPIEXEC), "-n", str(n), sys.executable]
    found = os.environ | {"MPI4PY_LIBMPI": str(LIBMPI)}  # which mpi4py finds by itself in its own environment alone
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=found, **options
    )


def test_values_of_the_collectives():
    xs = np.random.default_rng(0).normal(size=(3, 6, 2))
    found = parallel.in_threads(
        3,
        lambda group: [
            y[0]
            for y in (
                parallel.broadcast(xs[group.rank], group, 1),
                parallel.reduce(xs[group.rank], group, 2),
                parallel.all_gather(xs[group.rank], group),
                parallel.reduce_scatter(xs[group.rank], group),
                parallel.all_reduce(xs[group.rank], group),
            )
        ],
    )
    total = xs[0] + xs[1] + xs[2]
    for rank, (broadcast, reduced, gathered, scattered, summed) in enumerate(found):
        np.testing.assert_array_equal(broadcast, xs[1])
        np.testing.assert_allclose(reduced, total if rank == 2 else 0.0 * total)
        np.testing.assert_array_equal(gathered, xs.reshape(18, 2))
        np.testing.assert_allclose(scattered, total[2 * rank : 2 * rank + 2])
        np.testing.assert_allclose(summed, total)


def test_stretches_cover_an_axis():
    for total in (0, 1, 5, 12):
        for size in (1, 2, 5):
            parts = parallel.in_threads(size, lambda group, total=total: range(total)[stretch(total, group)])
            assert [i for part in parts for i in part] == list(range(total))
            assert [len(part) for part in parts] == lengths(total, size)


def test_texts_of_unequal_length_and_none():
    said = ["zwölf", "", "a longer one"]
    assert parallel.in_threads(3, lambda group: texts(group, said[group.rank])) == [said] * 3
    assert texts(ALONE, "me") == ["me"]


def test_a_group_splits_in_parts():
    def work(group):
        part = group.split(group.rank % 2)
        return part.rank, part.size, part.sum(np.array([group.rank])).tolist()

    assert parallel.in_threads(5, work) == [(0, 3, [6]), (0, 2, [4]), (1, 3, [6]), (1, 2, [4]), (2, 3, [6])]


def test_a_ring_gives_what_the_group_gives():
    xs = np.random.default_rng(0).integers(0, 100, (4, 7, 2)).astype(float)  # whose sums are exact
    parts = [1, 0, 4, 2]

    def results(group):
        x = xs[group.rank]
        begun = x.copy()
        wait = group.begin_sum(begun)
        found = [group.broadcast(x, 2), group.sum(x), group.gather(x[: parts[group.rank]], parts)]
        wait()
        return [*found, begun, group.scatter_sum(x, parts), group.split(group.rank % 2).sum(x)]

    wanted = parallel.in_threads(4, results)
    for found, expected in zip(parallel.in_threads(4, lambda group: results(Ring(group))), wanted, strict=True):
        for y, y_wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(y, y_wanted)


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_step_sends_the_bytes_of_the_formula(n):
    assert set(counted(n)) == {"data", "data, sharded", "tensor", "pipeline"}
    for form, (bytes_, formula) in counted(n).items():
        assert bytes_ == formula, form


def test_an_error_on_one_rank_ends_all():
    def waits_in_a_part(group):
        part = group.split(group.rank // 2)
        if group.rank == 0:
            raise ZeroDivisionError("rank 0 divides")
        part.sum(np.ones(1))

    with pytest.raises(ZeroDivisionError, match="rank 0 divides"):
        parallel.in_threads(4, waits_in_a_part)

    def work(group):
        if group.rank == 1:
            raise ZeroDivisionError("rank 1 divides")
        parallel.all_reduce(np.ones(3), group)

    with pytest.raises(ZeroDivisionError, match="rank 1 divides"):
        parallel.in_threads(3, work)

    def waits_for_mail(group):
        if group.rank == 0:
            raise ZeroDivisionError
        parallel.receive(np.ones(3), group, 0)

    with pytest.raises(ZeroDivisionError):
        parallel.in_threads(2, waits_for_mail)


def vocabulary_loss(logits, targets, group, **options):
    return parallel.vocabulary_cross_entropy(logits, np.array(targets), group, 7, **options)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"ignore_index": 3}])
def test_vocabulary_cross_entropy_is_that_of_all_logits(options):
    logits = np.random.default_rng(0).normal(size=(5, 7)) * 1000.0  # whose exponentials overflow
    targets = [3, 0, 6, 3, 2]
    loss, backward = ops.cross_entropy(logits, np.array(targets), **options)

    def work(group):
        y, pullback = vocabulary_loss(logits[:, stretch(7, group)], targets, group, **options)
        return y, pullback(2.0)

    ranks = parallel.in_threads(3, work)
    np.testing.assert_allclose([y for y, _ in ranks], [loss] * 3, rtol=1e-14)
    np.testing.assert_allclose(np.concatenate([dx for _, dx in ranks], axis=1), backward(2.0), rtol=1e-12, atol=1e-300)


@in_one(
    "collective, message",
    [
        (lambda g: parallel.broadcast(np.ones(2), g, 3), "broadcast: root must be from 0 to 1, got 3"),
        (lambda g: parallel.reduce(np.ones(2), g, -1), "reduce: root must be from 0 to 1, got -1"),
        (lambda g: parallel.reduce_scatter(np.ones(3), g), "must divide into 2 equal stretches"),
        (lambda g: parallel.all_gather(np.array(1.0), g), "all_gather: x needs a first axis"),
        (lambda g: parallel.send(np.ones(2), g, g.rank), "send: to must be another rank than"),
        (lambda g: parallel.mean(np.ones(2), g, "4"), "mean: weight must be a number, got str"),
        (lambda g: vocabulary_loss(np.ones((3, 4)), [0, 1, 6], g), "logits must have shape \\(3, 3\\)"),
        (lambda g: vocabulary_loss(np.ones((3, 3 + g.rank)), [0, 1, 7], g), "targets must be from 0 to 6"),
        (lambda g: parallel.all_reduce([1.0], g), "all_reduce: x must be a NumPy or CuPy array, got list"),
    ],
)
def test_bad_input(collective, message):
    with pytest.raises((ValueError, TypeError), match=message):
        parallel.in_threads(2, collective)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3])
def test_collectives_over_mpi(n):
    done = mpiexec(n, Path(__file__).with_name("ranks_over_mpi.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("6 collectives ok") == n
