"""The kernels of decoding: one new token on a cache, and products of a few rows shared out among threads."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from minitransformer import ops
from minitransformer.forms import _kernels, textbook
from minitransformer.kernels import decoding, loops, threads
from minitransformer.layers import Cache, FeedForward, KeyValueCache, Linear, MultiHeadAttention
from minitransformer.models import LanguageModel, LanguageModelConfig

kernel = _kernels["cached_attention"]


@pytest.fixture(params=[1, 2, 3])
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """So many threads of BLAS, and everything is worth them."""
    monkeypatch.setattr(threads, "WAKING", 0)
    monkeypatch.setattr(threads, "LEAST", 1)
    monkeypatch.setattr(decoding, "LARGE", 1)
    monkeypatch.setattr(decoding, "LEAST_SIDE", 1)
    with threadpoolctl.threadpool_limits(request.param, user_api="blas"):
        yield request.param


def attention(d_model: int, n_heads: int, **options: Any) -> MultiHeadAttention:
    layer = MultiHeadAttention(d_model, n_heads, rng=np.random.default_rng(0), **options)
    rng = np.random.default_rng(1)
    for _, parameter in layer.parameters():  # biases that are not zero, and weights of ordinary size
        parameter.value[...] = rng.normal(size=parameter.value.shape)
    return layer


def written(layer: MultiHeadAttention, x: np.ndarray, prompt: int) -> np.ndarray:
    """The outputs of a prompt and then of one token after the other."""
    cache = KeyValueCache()
    pieces = [x[:, :prompt], *(x[:, i : i + 1] for i in range(prompt, x.shape[1]))] if prompt else np.split(x, 5, 1)
    return np.concatenate([layer(piece, causal=True, cache=cache)[0] for piece in pieces], axis=1)


@pytest.mark.parametrize("n_rows", [1, 2, decoding.FEW])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"d_k": 3, "d_v": 7}], ids=["plain", "no bias", "d_k, d_v"])
def test_a_token_on_the_cache_is_computed_as_in_the_textbook(
    n_rows: int, options: dict[str, Any], n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = attention(15, 5, **options)
    x = np.random.default_rng(2).normal(size=(n_rows, 40, 15)).astype(np.float32)
    with textbook():
        rounded = written(layer, x, 3)
        exact = written(layer.to(dtype="float64"), x.astype(np.float64), 3)
    layer.to(dtype="float32")
    taken = []
    monkeypatch.setitem(_kernels, "cached_attention", lambda *given: taken.append(kernel(*given)) or taken[-1])
    found = written(layer, x, 3)
    assert sum(y is not None for y in taken) == 37, "every token after the prompt"
    ulp = np.finfo(np.float32).eps * np.abs(exact).max()
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() <= 2.0 * np.abs(rounded - exact).max() + 4.0 * ulp


def test_large_scores_overflow_nowhere(n_threads: int) -> None:
    layer = attention(8, 2)
    x = 100.0 * np.random.default_rng(2).normal(size=(2, 6, 8)).astype(np.float32)
    with textbook():
        expected = written(layer, x, 1)
    np.testing.assert_allclose(written(layer, x, 1), expected, rtol=1e-4, atol=1e-2)
    x[0, 5, 3] = np.nan
    found = written(layer, x, 1)
    assert np.isnan(found[0, 5]).all()
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize(("n_rows", "d_in", "d_out"), [(1, 37, 11), (3, 8, 1), (8, 5, 130), (2, 1, 3), (1, 4, 4)])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_few_rows(n_rows: int, d_in: int, d_out: int, transposed: bool, n_threads: int) -> None:
    rng = np.random.default_rng(0)
    x, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((n_rows, d_in), (d_out,)))
    weight = rng.normal(size=(d_out, d_in) if transposed else (d_in, d_out)).astype(np.float32)
    weight = weight.T if transposed else weight
    y, _ = ops.linear(x, weight, bias)
    exact = x.astype(np.float64) @ weight + bias
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_feed_forward_network_of_few_rows(activation: str, n_threads: int) -> None:
    layer = FeedForward(7, 13, activation, rng=np.random.default_rng(0))
    layer.inner.bias.value[...] = np.random.default_rng(1).normal(size=13)
    layer.output.bias.value[...] = np.random.default_rng(2).normal(size=7)
    x, dy = (np.random.default_rng(seed).normal(size=(2, 3, 7)).astype(np.float32) for seed in (3, 4))
    with textbook():
        expected, expected_backward = layer(x)
        expected_dx = expected_backward(dy)
    y, backward = layer(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backward(dy), expected_dx, rtol=1e-4, atol=1e-5)


def who_computes(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[], Any], expected: int) -> None:
    """Require that so many threads run the loop of this name at the same time."""
    loop, used = getattr(loops, name), set()
    all_of_them = threading.Barrier(expected)

    def noted(*arrays: Any) -> None:
        if threading.get_ident() not in used:
            used.add(threading.get_ident())
            all_of_them.wait(30.0)  # so that one thread cannot do it all before another has begun
        loop(*arrays)

    monkeypatch.setattr(loops, name, noted)
    call()
    assert len(used) == expected
    assert threading.get_ident() in used


def test_the_work_is_shared_among_the_threads_of_blas(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((1, 12), np.float32)
    layer, cache = attention(12, 3), KeyValueCache()
    feed_forward = FeedForward(12, 24)
    weight = np.ones((12, 30), np.float32)
    for name, call in {
        "attend": lambda: layer(x[None], cache=cache),
        "dots": lambda: ops.linear(x, np.ones((30, 12), np.float32).T),
    }.items():
        who_computes(monkeypatch, name, call, n_threads)
    for call in (lambda: ops.linear(x, weight), lambda: feed_forward(x)):
        with monkeypatch.context() as patch:
            who_computes(patch, "add_products", call, n_threads)


def test_little_work_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = np.ones((1, 512), np.float32), np.ones((512, 512), np.float32)
    assert weight.size < threads.LEAST
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        who_computes(monkeypatch, "add_products", lambda: ops.linear(x, weight), 1)


@pytest.mark.parametrize(("n_rows", "d_in", "d_out"), [(1, 1 << 18, 1), (8, 1 << 15, 8), (9, 512, 512), (1, 511, 512)])
def test_narrow_or_small_matrices_and_many_rows_are_left_to_blas(
    n_rows: int, d_in: int, d_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "add_products", lambda *arrays: pytest.fail("not for the loop"))
    ops.linear(np.ones((n_rows, d_in), np.float32), np.ones((d_in, d_out), np.float32))


def test_shares_cover_everything_once_and_none_is_much_larger_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 12, 1000):
        for numbers in (1, threads.LEAST, 5 * threads.LEAST + 1, 1000 * threads.LEAST):
            for n in (1, 2, 5):
                with threadpoolctl.threadpool_limits(n, user_api="blas"):
                    parts = threads.shares(size, numbers)
                assert [i for part in parts for i in range(size)[part]] == list(range(size))
                lengths = [part.stop - part.start for part in parts]
                assert lengths[0] + 1 >= max(lengths)  # it is rounded
                assert min(lengths) > 0
                assert len(parts) == 1 or numbers >= threads.LEAST
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = threads.shares(1000, 10 * threads.WAKING)
    assert (first.stop, second.stop) == (550, 1000)  # one reads for as long as the other needs to wake up and read
    for size, n, expected in [
        (2, 2, [1, 1]),
        (12, 2, [6, 6]),
        (4, 4, [1] * 4),
        (12, 16, [1] * 12),
        (25, 16, [2] * 9 + [1] * 7),
    ]:
        monkeypatch.setattr(threads, "blas_threads", lambda n=n: n)
        lengths = [part.stop - part.start for part in threads.shares(size, 1 << 30)]
        assert sorted(lengths) == sorted(expected), "much work is shared evenly"


def test_a_helper_has_no_helpers() -> None:
    found: dict[bool, int] = {}
    here = threading.get_ident()
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        threads.together(
            lambda part: found.update({threading.get_ident() == here: threads.blas_threads()}), [(0,), (1,)]
        )
    assert found == {True: 2, False: 1}


def test_after_an_error_no_further_part_is_begun() -> None:
    begun = []

    def work(part: int) -> None:
        begun.append(part)
        if part == 0:
            raise ZeroDivisionError
        time.sleep(0.01)

    with threadpoolctl.threadpool_limits(2, user_api="blas"), pytest.raises(ZeroDivisionError):
        threads.share_out(work, list(range(100)))
    assert len(begun) < 10


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there is no way to interrupt one thread here")
def test_ctrl_c_arrives_when_the_helpers_are_done() -> None:
    done = []

    def work(part: int) -> None:
        if part == 1:
            time.sleep(0.1)  # until the main thread waits
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.3)
            done.append(part)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it is ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.together(work, [(0,), (1,)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1]


def test_an_error_keeps_no_arrays_alive() -> None:
    class Marked:
        pass

    def work(part: Marked) -> None:
        raise ZeroDivisionError

    marks = [Marked(), Marked()]
    alive = [weakref.ref(mark) for mark in marks]
    gc.disable()
    try:
        with contextlib.suppress(ZeroDivisionError):
            threads.together(work, [(mark,) for mark in marks])
        del marks[:]
        time.sleep(0.05)  # until the helper waits again
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()


def test_where_no_thread_can_be_started_one_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.together(done.append, [(0,), (1,), (2,)])
        assert done == [0, 1, 2]
    threads.together(done.append, [(3,), (4,)])
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_call_at_the_very_end_of_the_interpreter() -> None:
    code = """
import numpy, threadpoolctl
from minitransformer import ops
threadpoolctl.threadpool_limits(2, user_api="blas")
x, w = numpy.ones((1, 2048), "float32"), numpy.ones((2048, 2048), "float32")
ops.linear(x, w)
class Last:
    def __del__(self, call=ops.linear, x=x, w=w):
        print(call(x, w)[0][0, 0])
last = Last()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["2048.0"]


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_in_a_part_arrives_after_all_parts_are_done(wrong: int) -> None:
    done = []

    def work(part: int) -> None:
        if part == wrong:
            raise ZeroDivisionError
        done.append(part)

    with pytest.raises(ZeroDivisionError):
        threads.together(work, [(0,), (1,), (2,)])
    assert sorted(done) == [part for part in (0, 1, 2) if part != wrong]


def test_what_the_kernel_does_not_take_is_computed_by_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Linear):
        def __call__(self, x: np.ndarray) -> Any:
            return 2.0 * super().__call__(x)[0], None

    def one(n_rows: int = 1, length: int = 1, dtype: str = "float32") -> np.ndarray:
        return np.random.default_rng(0).normal(size=(n_rows, length, 12)).astype(dtype)

    layer = attention(12, 3)
    assert kernel(one(), layer, KeyValueCache()) is not None
    assert kernel(one(length=2), layer, KeyValueCache()) is None
    assert kernel(one(decoding.FEW + 1), layer, KeyValueCache()) is None
    assert kernel(one(dtype="float64"), layer, KeyValueCache()) is None
    assert kernel(one()[0], layer, KeyValueCache()) is None
    read_before = KeyValueCache()
    attention(12, 3).to(dtype="float64")(one(dtype="float64"), cache=read_before)
    assert kernel(one(), layer, read_before) is None
    monkeypatch.setitem(_kernels, "cached_attention", lambda *given: pytest.fail("not for the kernel"))
    cache = KeyValueCache()
    layer(one(), mask=np.ones((1, 1), bool), cache=cache)
    layer(one(), memory=one(length=4), cache=KeyValueCache())
    with textbook():
        expected = layer(one(), cache=KeyValueCache())[0]
    layer.output.__class__ = Twice
    np.testing.assert_allclose(layer(one(), cache=KeyValueCache())[0], 2.0 * expected, rtol=1e-6)

    class Other(MultiHeadAttention):
        pass

    class Window(KeyValueCache):
        pass

    layer = attention(12, 3)
    layer(one(), cache=Window())
    layer.__class__ = Other
    layer(one(), cache=KeyValueCache())


@pytest.mark.parametrize("name", ["query.weight", "key.weight", "value.bias", "output.weight", "output.bias"])
@pytest.mark.parametrize("shape", [(5, 12), (12, 9), (7,), (12, 12, 1)])
def test_parameters_that_do_not_fit_are_left_to_the_layer(name: str, shape: tuple[int, ...]) -> None:
    """Compiled loops read past the end of what is too short, so no wrong shape may come to them."""
    layer = attention(12, 3)
    dict(layer.parameters())[name].value = np.ones(shape, np.float32)
    with pytest.raises(ValueError, match=r"linear: |attention: |split_heads"):
        layer(np.ones((1, 1, 12), np.float32), cache=KeyValueCache())


def test_heads_that_do_not_divide_the_width_are_left_to_the_layer() -> None:
    layer = attention(12, 3)
    for name in ("query", "key"):
        getattr(layer, name).weight.value = np.ones((12, 10), np.float32)
        getattr(layer, name).bias.value = np.ones(10, np.float32)
    with pytest.raises(ValueError, match="split_heads"):
        layer(np.ones((1, 1, 12), np.float32), cache=KeyValueCache())


def test_no_heads_are_refused_by_the_layer() -> None:
    layer = attention(12, 3)
    layer.n_heads = 0
    with pytest.raises(ValueError, match="split_heads"):
        layer(np.ones((1, 1, 12), np.float32), cache=KeyValueCache())


@pytest.mark.parametrize("other", [{"d_k": 1}, {"d_v": 1}, {"d_k": 2, "d_v": 2}])
def test_a_cache_of_another_layer_is_refused(other: dict[str, int]) -> None:
    cache, x = KeyValueCache(), np.ones((1, 1, 12), np.float32)
    attention(12, 3)(x, cache=cache)
    for form in (textbook(), contextlib.nullcontext()):
        with form, pytest.raises(ValueError, match="start a new cache for another layer"):
            attention(12, 3, **other)(x, cache=cache)
        assert cache.length == 1


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    layer = attention(4, 1)
    for _, parameter in layer.parameters():
        parameter.value.fill(0.0)
    layer.query.bias.value.fill(1e20)
    layer.key.bias.value.fill(-1e20)
    layer.value.bias.value.fill(1.0)
    layer.output.weight.value[...] = np.eye(4)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(
            layer(np.ones((1, 1, 4), np.float32), cache=KeyValueCache())[0], np.zeros((1, 1, 4))
        )


def test_backward_of_the_feed_forward_network_is_settled_by_forward(n_threads: int) -> None:
    layer = FeedForward(7, 13, "relu", rng=np.random.default_rng(0))
    x = np.random.default_rng(3).normal(size=(2, 7)).astype(np.float32)
    _, backward = layer(x)
    before = backward(np.ones((2, 7), np.float32))
    layer.inner.bias.value = np.full(13, -9.0, np.float32)
    np.testing.assert_array_equal(backward(np.ones((2, 7), np.float32)), before)


def test_a_cache_of_another_batch_is_refused_and_stays_as_it_was() -> None:
    layer, cache = attention(12, 3), KeyValueCache()
    layer(np.ones((2, 1, 12), np.float32), cache=cache)
    with pytest.raises(ValueError, match="start a new cache for another batch"):
        layer(np.ones((1, 1, 12), np.float32), cache=cache)
    assert cache.length == 1


def test_rows_of_the_cache_that_were_selected() -> None:
    layer, x = attention(12, 3), np.random.default_rng(0).normal(size=(3, 6, 12)).astype(np.float32)
    rows = np.array([2, 0, 0])
    found = []
    for form in (textbook(), threadpoolctl.threadpool_limits(1)):
        cache = KeyValueCache()
        with form:
            layer(x[:, :5], causal=True, cache=cache)
            cache.select(rows)
            found.append(layer(x[:, 5:], causal=True, cache=cache)[0])
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def model() -> LanguageModel:
    config = LanguageModelConfig(50, max_length=64, d_model=24, n_heads=3, d_ff=96, n_layers=2)
    return LanguageModel(config, np.random.default_rng(0))


def last_logits(model: LanguageModel, ids: np.ndarray) -> np.ndarray:
    cache = Cache(2)
    return np.stack([model(ids[:, i : i + 1], cache=cache)[0] for i in range(ids.shape[1])])


def test_several_threads_may_write_at_the_same_time(n_threads: int) -> None:
    gpt, ids = model(), np.random.default_rng(0).integers(50, size=(4, 1, 30))
    expected = [last_logits(gpt, each) for each in ids]
    found: dict[int, np.ndarray] = {}
    writers = [threading.Thread(target=lambda i=i: found.update({i: last_logits(gpt, ids[i])})) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for i in range(4):
        np.testing.assert_array_equal(found[i], expected[i])  # for a given number of threads the same bits


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_after_fork_has_threads_of_its_own(n_threads: int) -> None:
    gpt, ids = model(), np.arange(9)[None]
    expected = last_logits(gpt, ids)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for threads it has not
        os._exit(0 if np.array_equal(last_logits(gpt, ids), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
