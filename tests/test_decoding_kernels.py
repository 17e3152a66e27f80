"""The kernels of decoding: one new token on a cache, and products of a few rows shared out among threads."""

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
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from kernel_checks import entered, require_rounded_alike, require_that_it_waits, twin_of
from tiers import in_one
from waiting import wait_until

from minitransformer.ideas import GatedFeedForward
from minitransformer.ideas.after.grouped import grouped
from minitransformer.ideas.after.rotary import rotary_turn
from minitransformer.layers import (
    Cache,
    Decoder,
    Encoder,
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    MultiHeadAttention,
    Residual,
    RMSNorm,
)
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.fast import accelerate, decoding, decoding_loops, ops, phases, sublayers, twins, weights
from minitransformer.run.machines import threads

kernel = decoding.new_token


@pytest.fixture(params=[1, 2, 3])
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """This many BLAS threads, and every call uses them."""
    monkeypatch.setattr(decoding, "SHARED", 1)
    monkeypatch.setattr(decoding, "LARGE", 1)
    monkeypatch.setattr(decoding, "LEAST_SIDE", 1)
    with threadpoolctl.threadpool_limits(request.param, user_api="blas"):
        yield request.param


def encoder_layer(d_model: int = 12, n_heads: int = 3, d_ff: int = 20, **options: Any) -> Any:
    """The fast twin of a layer."""
    options = {"norm_order": "pre", "activation": "gelu_tanh"} | options
    part, eps = options.pop("part", {}), options.pop("eps", None)
    layer = EncoderLayer(d_model, n_heads, d_ff, rng=np.random.default_rng(0), **options)
    vars(layer.feed_forward).update(part)
    if eps is not None:
        layer.self_attention.norm.eps = layer.feed_forward.norm.eps = eps
    return twin_of(layer)


def tokens(n_rows: int = 1, length: int = 1, width: int = 12, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(2).normal(size=(n_rows, length, width)).astype(dtype)


def written(layer: Any, x: np.ndarray, prompt: int = 3) -> np.ndarray:
    """The outputs of a prompt and then of one token after the other."""
    cache = KeyValueCache()
    pieces = [x[:, :prompt], *(x[:, i : i + 1] for i in range(prompt, x.shape[1]))]
    return np.concatenate([layer(piece, causal=True, cache=cache)[0] for piece in pieces], axis=1)


def begun(layer: Any, n_rows: int = 1, width: int = 12) -> KeyValueCache:
    """The cache of a layer that has read two tokens."""
    cache = KeyValueCache()
    layer.textbook(tokens(n_rows, 2, width), causal=True, cache=cache)
    return cache


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the kernel returns for each call that it takes."""
    answers: list[Any] = []

    def noted(*given: Any, **options: Any) -> Any:
        y = kernel(*given, **options)
        answers.extend([] if y is None else [y])
        return y

    monkeypatch.setattr(twins, "new_token", noted)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 2, decoding.FEW])
@pytest.mark.parametrize(
    "sizes", [(15, 5, 22), (36, 9, 7), (8, 1, 64)], ids=["few heads", "more heads than parts", "one head"]
)
@pytest.mark.parametrize("options", [{}, {"bias": False, "activation": "relu"}, {"activation": "gelu", "eps": 0.1}])
def test_a_token_on_the_cache_is_computed_as_in_the_textbook(
    n_rows: int, sizes: tuple[int, int, int], options: dict[str, Any], n_threads: int, taken: list[Any]
) -> None:
    layer = encoder_layer(*sizes, **options)
    x = tokens(n_rows, 40, sizes[0])
    rounded = written(layer.textbook, x)
    exact = written(layer.to(dtype="float64").textbook, x.astype(np.float64))
    layer.to(dtype="float32")
    found = written(layer, x)
    assert sum(y is not None for y in taken) == 37, "every token after the prompt"
    assert found.dtype == np.float32
    require_rounded_alike([found], [rounded], [exact])


def test_positions_that_are_given_are_those_of_the_turn(n_threads: int) -> None:
    """As in a batch with padding on the left. The loop counts from the length of the cache."""
    attention = grouped(12, 2, 1, 6, turn=rotary_turn(50.0))
    layer = twin_of(
        EncoderLayer.of(Residual(attention, RMSNorm(12), "pre"), Residual(FeedForward(12, 20), RMSNorm(12), "pre"))
    )
    x, places = tokens(2, 6), np.array([[0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]])

    def read(layer: Any) -> np.ndarray:
        cache = KeyValueCache()
        pieces = [(x[:, a:b], places[:, a:b]) for a, b in ((0, 3), (3, 4), (4, 5), (5, 6))]
        return np.concatenate([layer(piece, cache=cache, positions=at)[0] for piece, at in pieces], axis=1)

    np.testing.assert_allclose(read(layer), read(layer.textbook), rtol=1e-4, atol=1e-5)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a weight": lambda layer: vars(layer.feed_forward.sublayer.gate.weight).update(value=np.eye(12, 20, dtype="f4")),
    "a gain": lambda layer: vars(layer.self_attention.norm.gamma).update(value=np.full(12, 3.0, np.float32)),
    "an epsilon": lambda layer: vars(layer.feed_forward.norm).update(eps=5.0),
    "a norm": lambda layer: vars(layer.feed_forward).update(norm=RMSNorm(12, 7.0)),
    "the scale": lambda layer: vars(layer.self_attention.sublayer.mix.inner).update(scale=3.0),
    "the turn of queries": lambda layer: vars(layer.self_attention.sublayer).update(turn_query=rotary_turn(2.0)[0]),
    "the base of a turn": lambda layer: vars(layer.self_attention.sublayer.turn_key).update(base=3.0),
    "the curve": lambda layer: vars(layer.feed_forward.sublayer).update(activation="relu"),
    "numbers in place": lambda layer: layer.self_attention.sublayer.value.weight.value.fill(0.5),
    "nothing": lambda layer: None,
}


@in_one("change", CHANGES)
def test_a_stack_is_one_call_that_sees_what_has_changed_since_the_last_token(change: str, monkeypatch: Any) -> None:
    def made() -> EncoderLayer:
        attention = grouped(12, 4, 2, 6, turn=rotary_turn(50.0), rng=np.random.default_rng(1))
        parts = attention, GatedFeedForward(12, 20, rng=np.random.default_rng(2))
        return EncoderLayer.of(*(Residual(part, RMSNorm(12), "pre") for part in parts))

    stack: Any = accelerate(Encoder.of([made(), made(), made()], RMSNorm(12)).to(dtype="float32"))
    mine, theirs, x, calls = stack.new_cache(), stack.new_cache(), tokens(2, 40), []
    monkeypatch.setattr(decoding, "on_threads", lambda *given: calls.append(given[1]) or given[1](*given[2:]))

    def step(a: int, b: int) -> None:
        found, expected = (
            form(x[:, a:b], causal=True, cache=cache)[0] for form, cache in ((stack, mine), (stack.textbook, theirs))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

    step(0, 3)
    for i in range(3, 22):  # the buffers grow on the way
        step(i, i + 1)
    CHANGES[change](stack.layers[1])
    for i in range(22, 40):
        step(i, i + 1)
    assert calls == [decoding_loops.layer] * 37 and mine.length == 40


def test_after_a_call_that_fails_midway_no_old_address_is_left() -> None:
    stack: Any = twin_of(Decoder(1, 12, 3, 20, rng=np.random.default_rng(0)).to(dtype="float32"))
    mine, theirs, x, memory = stack.new_cache(), stack.new_cache(), tokens(2, 40), tokens(2, 7)
    for i in range(30):
        first = mine.self_attention[0]
        if i and first.length == first.buffers()[0].shape[-2]:  # it gets room; then the memory is found wrong
            with pytest.raises(ValueError, match="another memory"):
                stack(x[:, i : i + 1], memory.copy(), cache=mine)
            first.length -= 1
        found, expected = (
            form(x[:, i : i + 1], memory, cache=cache)[0] for form, cache in ((stack, mine), (stack.textbook, theirs))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_a_stack_that_reads_a_memory_is_one_call(norm_order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack: Any = twin_of(Decoder(3, 12, 3, 20, norm_order=norm_order, rng=np.random.default_rng(0)).to(dtype="float32"))
    memory, seen, x = tokens(2, 7), np.ones((2, 1, 7), bool), tokens(2, 12)
    seen[1, :, 4:] = False
    caches, calls = [stack.new_cache(), stack.new_cache()], []
    monkeypatch.setattr(decoding, "on_threads", lambda *given: calls.append(given[1]) or given[1](*given[2:]))
    for a, b in ((0, 3), *((i, i + 1) for i in range(3, 12))):
        if b == 8:
            stack.layers[1].cross_attention.norm.eps = 3.0
        found, expected = (
            form(x[:, a:b], memory, memory_mask=seen, cache=cache)[0]
            for form, cache in zip((stack, stack.textbook), caches, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert calls == [decoding_loops.layer] * 9
    with pytest.raises(ValueError, match="another memory"):
        stack(x[:, :1], memory.copy(), cache=caches[0])


def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SHARED", 1)
    layer, x = encoder_layer(24, 3, 40), tokens(2, 20, 24)
    found = []
    for n in (1, 2, 3, 12):  # the last is more than there are parts
        with threadpoolctl.threadpool_limits(n, user_api="blas"):
            monkeypatch.setattr(decoding, "blas_threads", lambda n=n: n)
            found.append(written(layer, x))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_large_scores_overflow_nowhere(n_threads: int, taken: list[Any]) -> None:
    layer = encoder_layer(8, 2, 12)
    for linear in (layer.self_attention.sublayer.query, layer.self_attention.sublayer.key):
        linear.weight.value *= 100.0
    x = tokens(2, 6, 8)
    expected = written(layer.textbook, x, 1)
    np.testing.assert_allclose(written(layer, x, 1), expected, rtol=1e-3, atol=1e-3)
    x[0, 5, 3] = np.nan
    found = written(layer, x, 1)
    assert np.isnan(found[0, 5]).all()
    assert np.isfinite(found[1]).all()
    assert all(y is not None for y in taken if y is not taken[0])


@in_one("n_rows, d_in, d_out, transposed", [(1, 37, 11), (3, 8, 1), (8, 5, 130), (2, 1, 3), (1, 4, 4)], [False, True])
def test_products_of_few_rows(n_rows: int, d_in: int, d_out: int, transposed: bool, n_threads: int) -> None:
    rng = np.random.default_rng(0)
    x, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((n_rows, d_in), (d_out,)))
    weight = rng.normal(size=(d_out, d_in) if transposed else (d_in, d_out)).astype(np.float32)
    weight = weight.T if transposed else weight
    y, _ = ops.linear(x, weight, bias)
    exact = x.astype(np.float64) @ weight + bias
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


@in_one("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_feed_forward_network_of_few_rows(activation: str, n_threads: int) -> None:
    layer = FeedForward(7, 13, activation, rng=np.random.default_rng(0))
    layer.inner.bias.value[...] = np.random.default_rng(1).normal(size=13)
    layer.output.bias.value[...] = np.random.default_rng(2).normal(size=7)
    x, dy = (np.random.default_rng(seed).normal(size=(2, 3, 7)).astype(np.float32) for seed in (3, 4))
    expected, expected_backward = layer(x)
    expected_dx = expected_backward(dy)
    y, backward = accelerate(layer)(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backward(dy), expected_dx, rtol=1e-4, atol=1e-5)


def test_the_work_is_shared_among_the_threads_of_blas(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = encoder_layer(), np.ones((1, 12), np.float32)
    cache, weight = begun(layer), np.ones((12, 30), np.float32)
    for name, call in {"layer": lambda: layer(tokens(), cache=cache), "product": lambda: ops.linear(x, weight)}.items():
        used = entered(monkeypatch, decoding_loops, name, n_threads)
        call()
        assert len(used) == n_threads and threading.get_ident() in used


def test_little_work_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = np.ones((1, 512), np.float32), np.ones((512, 512), np.float32)
    assert weight.size < decoding.SHARED
    layer = encoder_layer()
    cache = begun(layer)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        used = [entered(monkeypatch, decoding_loops, name, 1) for name in ("product", "layer")]
        ops.linear(x, weight)
        layer(tokens(), cache=cache)
    assert used == [{threading.get_ident()}] * 2


@pytest.mark.parametrize(("n_rows", "d_in", "d_out"), [(1, 1 << 18, 1), (8, 1 << 15, 8), (9, 512, 512), (1, 511, 512)])
def test_narrow_or_small_matrices_and_many_rows_are_left_to_blas(
    n_rows: int, d_in: int, d_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding_loops, "product", lambda *arrays: pytest.fail("not for the loop"))
    ops.linear(np.ones((n_rows, d_in), np.float32), np.ones((d_in, d_out), np.float32))


def test_no_more_threads_enter_than_there_are_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    monkeypatch.setattr(decoding, "blas_threads", lambda: 64)
    monkeypatch.setattr(decoding, "together", lambda loop, calls: entered.append(len(calls)) or loop(*calls[0]))
    ops.linear(np.ones((1, 1024), np.float32), np.ones((1024, 1024), np.float32))
    assert entered == [decoding_loops.PARTS]


def test_a_thread_that_comes_late_changes_nothing() -> None:
    x, weight = tokens(1, 30)[0], tokens(1, 12, 7)[0]
    terms, y = np.empty((decoding_loops.PARTS, 30, 7), np.float32), np.empty((30, 7), np.float32)
    counts = phases.counters(2)
    given = weights.form_of(weight), np.empty(0, np.float32), terms, y, counts
    decoding_loops.product(x, *given)
    np.testing.assert_allclose(y, x @ weight, rtol=1e-5, atol=1e-5)
    before, owners = y.copy(), sys.getrefcount(counts)
    x[:] = 0.0
    decoding_loops.product(x, *given)
    np.testing.assert_array_equal(y, before)
    assert sys.getrefcount(counts) == owners  # or every call would keep its counters for ever


@pytest.mark.few(2)
@pytest.mark.parametrize("phase", range(2 * decoding_loops.PHASES - 1))  # a network has one less
def test_no_phase_of_a_layer_begins_before_all_parts_of_the_last_are_done(phase: int, monkeypatch: Any) -> None:
    """Another thread has taken a part, and is slow."""
    held, called = phases.counters(2 * decoding_loops.PHASES), threading.Event()
    assert phases.take(held, phase) == 0

    def enter(loop: Any, calls: list[tuple[Any, ...]]) -> None:
        called.set()
        loop(*calls[0])

    monkeypatch.setattr(decoding, "together", enter)
    monkeypatch.setattr(decoding_loops, "counters", lambda n: held)
    layer = encoder_layer()
    cache = begun(layer)
    require_that_it_waits(lambda: layer(tokens(), cache=cache), called, held, phase)


def test_no_sum_is_taken_before_all_terms_are_there() -> None:
    counts = phases.counters(2)
    phases.take(counts, 0)
    x, weight = tokens(1, 30)[0], tokens(1, 12, 7)[0]
    terms, y = np.zeros((decoding_loops.PARTS, 30, 7), np.float32), np.empty((30, 7), np.float32)
    given = weights.form_of(weight), np.empty(0, np.float32), terms, y, counts
    adder = threading.Thread(target=decoding_loops.product, args=(x, *given))
    adder.start()
    wait_until(lambda: counts[0] > decoding_loops.PARTS)  # it has done all other parts
    adder.join(0.2)
    assert adder.is_alive()
    assert not counts[2 * phases.LINE :].any()
    phases.done(counts, 0)
    adder.join(600.0)
    assert not adder.is_alive()


def test_parts_cover_everything_once() -> None:
    for size in (1, 7, 8, 12, 1000):
        stretches = [phases.stretch(size, part, decoding_loops.PARTS) for part in range(decoding_loops.PARTS)]
        assert [i for first, last in stretches for i in range(first, last)] == list(range(size))


def test_each_part_is_given_away_once() -> None:
    counts, given = phases.counters(3), [[] for _ in range(4)]

    def take(mine: list[int]) -> None:
        while (part := phases.take(counts, 1)) < 5000:
            mine.append(part)
            phases.done(counts, 1)

    takers = [threading.Thread(target=take, args=(mine,)) for mine in given]
    for taker in takers:
        taker.start()
    phases.wait(counts, 1, 5000)
    for taker in takers:
        taker.join()
    assert sorted(part for mine in given for part in mine) == list(range(5000))
    assert not counts[: 2 * phases.LINE].any()
    assert not counts[4 * phases.LINE :].any()


def test_who_waits_goes_on_when_all_is_done_and_not_before() -> None:
    counts, went_on = phases.counters(1), threading.Event()

    def wait() -> None:
        phases.wait(counts, 0, 2)
        went_on.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    phases.done(counts, 0)
    assert not went_on.wait(0.05)
    phases.done(counts, 0)
    assert went_on.wait(600.0)
    waiting.join()


def test_a_helper_has_no_helpers() -> None:
    found: dict[bool, int] = {}
    here, both_began = threading.get_ident(), threading.Barrier(2)

    def work(part: int) -> None:
        both_began.wait(10.0)
        found[threading.get_ident() == here] = threads.blas_threads()

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        threads.together(work, [(0,), (1,)])
    assert found == {True: 2, False: 1}


def test_a_part_that_no_helper_begins_is_done_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._helpers, "ready", lambda number: True)
    monkeypatch.setattr(threads._helpers, "tasks", SimpleQueue())  # which nobody serves
    done = []
    threads.together(lambda part: done.append((part, threading.get_ident())), [(0,), (1,), (2,)])
    assert done == [(part, threading.get_ident()) for part in range(3)]

    def fail(part: int) -> None:
        done.append(part)
        raise IndexError

    done.clear()
    with pytest.raises(IndexError):
        threads.together(fail, [(0,), (1,), (2,)])
    assert done == [0]


def test_work_within_work_ends() -> None:
    done = []

    def outer(here: int) -> None:
        threads.together(lambda there: done.append((here, there)), [(0,), (1,), (2,)])

    caller = threading.Thread(target=threads.together, args=(outer, [(0,), (1,), (2,)]), daemon=True)
    caller.start()
    caller.join(30.0)
    assert not caller.is_alive()
    assert sorted(done) == [(here, there) for here in range(3) for there in range(3)]


def test_callers_side_by_side_have_helpers_of_their_own() -> None:
    all_began = threading.Barrier(6)
    callers = [
        threading.Thread(target=threads.together, args=(lambda part: all_began.wait(120.0), [(0,), (1,)]), daemon=True)
        for _ in range(3)
    ]
    for n, caller in enumerate(callers[:-1], 1):
        caller.start()
        wait_until(lambda n=n: all_began.n_waiting == 2 * n)  # until its helper has begun
    callers[-1].start()
    for caller in callers:
        caller.join(300.0)
    assert not all_began.broken
    assert not any(caller.is_alive() for caller in callers)


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


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_after_an_error_blas_has_its_threads_again(error: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        assert threads.blas_threads() == 1
        raise error

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(threads, "together", fail)
            threads.share_out(print, [1, 2])
        assert threads.blas_threads() == 2
        assert not threads._one_at_a_time.locked()
        assert not threads._before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_begins_amid_shared_work_has_all_threads_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    def fork(*given: Any) -> None:
        children.append(os.fork())
        if children[-1] == 0:
            free = not threads._one_at_a_time.locked() and threads.blas_threads() == 2
            os._exit(0 if free else 1)

    with threadpoolctl.threadpool_limits(2, user_api="blas"), monkeypatch.context() as patch:
        patch.setattr(threads, "together", fork)
        threads.share_out(print, [1, 2])
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there is no way to interrupt one thread here")
def test_ctrl_c_arrives_when_the_helpers_are_done() -> None:
    done, begun = [], threading.Event()

    def work(part: int) -> None:
        if part == 0:
            assert begun.wait(10.0)
        if part == 1:
            begun.set()
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


@pytest.mark.slow
def test_a_call_at_the_very_end_of_the_interpreter() -> None:
    code = """
import numpy, threadpoolctl
from minitransformer.fast import ops
threadpoolctl.threadpool_limits(2, user_api="blas")
x, w = numpy.ones((1, 2048), "float32"), numpy.ones((2048, 2048), "float32")
ops.linear(x, w)
class Last:
    def __del__(self, call=ops.linear, x=x, w=w):
        print(call(x, w)[0][0, 0])
last = Last()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    assert shown.stdout.split() == ["2048.0"]


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_in_a_part_arrives_after_all_parts_are_done(wrong: int) -> None:
    done, all_began = [], threading.Barrier(3)

    def work(part: int) -> None:
        all_began.wait(10.0)
        if part == wrong:
            raise ZeroDivisionError
        done.append(part)

    with pytest.raises(ZeroDivisionError):
        threads.together(work, [(0,), (1,), (2,)])
    assert sorted(done) == [part for part in (0, 1, 2) if part != wrong]


def test_each_norm_has_its_own_eps(taken: list[Any]) -> None:
    layer, x = encoder_layer(), tokens(2, 6)
    layer.self_attention.norm.eps, layer.feed_forward.norm.eps = 0.5, 2.0
    expected = written(layer.textbook, x)
    np.testing.assert_allclose(written(layer, x), expected, rtol=1e-4, atol=1e-4)
    assert taken[-1] is not None


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_a_hidden_unit_that_is_nan_stays_so(activation: str, taken: list[Any]) -> None:
    layer = encoder_layer(activation=activation)
    cache = begun(layer)
    layer.feed_forward.sublayer.inner.weight.value[3, 5] = np.nan
    assert np.isnan(layer(tokens(), cache=cache)[0]).all()
    assert taken[0] is not None


def of_a_memory() -> KeyValueCache:
    cache = begun(encoder_layer())
    cache.memory = tokens()
    return cache


CACHES: dict[str, tuple[Callable[[], KeyValueCache], str]] = {
    "of a memory": (of_a_memory, "another memory"),
    "of wider heads": (lambda: begun(encoder_layer(24, 3), width=24), "start a new cache for another layer"),
    "of another batch": (lambda: begun(encoder_layer(), 2), "start a new cache for another batch"),
}


@pytest.mark.parametrize("which", CACHES)
def test_another_cache_is_refused_and_stays_as_it_was(which: str) -> None:
    make, message = CACHES[which]
    cache = make()
    with pytest.raises(ValueError, match=message):
        encoder_layer()(tokens(), cache=cache)
    assert cache.length == 2


class Other(KeyValueCache):
    pass


PARTS = ["self_attention", "self_attention.norm", "self_attention.sublayer", "feed_forward", "feed_forward.norm"]
PARTS += ["feed_forward.sublayer", *(f"self_attention.sublayer.{name}" for name in ("query", "key", "value", "output"))]
PARTS += [f"feed_forward.sublayer.{name}" for name in ("inner", "output")]


@pytest.mark.parametrize("path", PARTS)
def test_a_layer_with_a_part_of_another_class_calls_it(path: str, taken: list[Any]) -> None:
    layer = encoder_layer()
    found = layer
    for name in path.split("."):
        found = getattr(found, name)
    called = []

    class Own(type(found)):
        def __call__(self, *given: Any, **options: Any) -> Any:
            called.append(path)
            return super().__call__(*given, **options)

    cache = begun(layer)
    found.__class__ = Own
    layer(tokens(), cache=cache)
    assert called
    assert not taken


@pytest.mark.parametrize(
    "options",
    [
        {"norm_order": "post"},
        {"part": {"norm": RMSNorm(12)}},
        {"part": {"sublayer": GatedFeedForward(12, 20)}},
        {"activation": "silu"},
    ],
    ids=("post-norm", "another norm", "a gated network", "another activation"),
)
def test_other_parts_have_their_forms(options: dict[str, Any], taken: list[Any]) -> None:
    layer, x = encoder_layer(**options), tokens(2, 6)
    expected = written(layer.textbook, x)
    np.testing.assert_allclose(written(layer, x), expected, rtol=1e-4, atol=1e-4)
    assert len(taken) == 3


def test_what_the_kernel_does_not_take_is_computed_by_the_layer(taken: list[Any]) -> None:
    def asked(x: np.ndarray, layer: Any, cache: KeyValueCache) -> np.ndarray | None:
        return kernel(layer, x, cache=cache)

    layer = encoder_layer()
    assert asked(tokens(), layer, begun(layer)) is not None
    assert asked(tokens(), layer, KeyValueCache()) is None
    assert asked(tokens(length=2), layer, begun(layer)) is None
    assert asked(tokens(decoding.FEW + 1), layer, begun(layer, decoding.FEW + 1)) is None
    assert asked(tokens(dtype="float64"), layer, begun(layer)) is None
    assert asked(tokens()[0], layer, begun(layer)) is None
    assert asked(tokens(width=9), layer, begun(layer)) is None
    layer(tokens(), mask=np.ones((1, 3), bool), cache=begun(layer))
    cache = begun(layer)
    cache.__class__ = Other
    layer(tokens(), cache=cache)
    with pytest.raises(ValueError, match="leave out rng"):
        layer(tokens(), cache=begun(layer), rng=np.random.default_rng(0))
    layer.textbook(tokens(), cache=begun(layer))
    assert not taken
    own = layer.textbook
    own.__class__ = type("Own", (EncoderLayer,), {})
    own = accelerate(own)
    own(tokens(), cache=begun(own))
    assert not taken
    wide = encoder_layer().to(dtype="float64")
    cache = KeyValueCache()
    for _ in range(2):
        wide(tokens(dtype="float64"), cache=cache)
    assert not taken
    assert asked(tokens(), layer, cache) is None, "a cache of another dtype"


def test_a_weight_that_is_a_view_is_read_as_it_lies(taken: list[Any]) -> None:
    layer, x = encoder_layer(), tokens(2, 6)
    expected = written(layer.textbook, x)
    weight = layer.self_attention.sublayer.output.weight
    for view, n_taken in ((np.ascontiguousarray(weight.value.T).T, 3), (np.repeat(weight.value, 2, axis=1)[:, ::2], 0)):
        weight.value = view
        taken.clear()
        np.testing.assert_allclose(written(layer, x), expected, rtol=1e-4, atol=1e-4)
        assert len(taken) == n_taken, "rows of a matrix or of its transpose"


NAMES = [name for name, _ in encoder_layer().parameters()]


@in_one("name, shape", NAMES, [((5, 12),), ((12, 9),), ((7,),), ((1,),), ((12, 12, 1),)])
def test_parameters_that_do_not_fit_are_left_to_the_layer(name: str, shape: tuple[int, ...], taken: list[Any]) -> None:
    """Compiled loops read past the end of what is too short, so no wrong shape may come to them."""
    layer = encoder_layer()
    cache = begun(layer)
    dict(layer.parameters())[name].value = np.ones(shape, np.float32)
    with contextlib.suppress(ValueError):  # a bias of one number is broadcast
        layer(tokens(), cache=cache)
    kernels = {"self_attention": sublayers.residual_attention, "feed_forward": sublayers.residual_feed_forward}
    part = name.partition(".")[0]
    assert not taken and kernels[part](getattr(layer, part), tokens()) is None


@pytest.mark.parametrize(("n_heads", "width", "d"), [(0, 12, 12), (5, 12, 3), (6, 12, 2), (5, 10, 5)])
def test_heads_that_do_not_fit_are_left_to_the_layer(n_heads: int, width: int, d: int, taken: list[Any]) -> None:
    """Also with a cache of heads of width 2, as 12 // 5 is, which leaves a rest."""
    layer = encoder_layer()
    cache = begun(layer if width == 12 else encoder_layer(width, 5), width=width)
    attention = layer.self_attention.sublayer
    attention.n_heads, attention.d_k, attention.d_v = n_heads, d, d
    with pytest.raises(ValueError, match=r"split_heads|start a new cache"):
        layer(tokens(), cache=cache)
    assert not taken and (width == 12 or sublayers.residual_attention(layer.self_attention, tokens()) is None)


@pytest.mark.parametrize("other", [{"d_k": 1}, {"d_v": 1}, {"d_k": 2, "d_v": 2}])
def test_a_cache_of_another_layer_is_refused(other: dict[str, int]) -> None:
    cache, x = KeyValueCache(), np.ones((1, 1, 12), np.float32)
    MultiHeadAttention(12, 3)(x, cache=cache)
    layer = MultiHeadAttention(12, 3, **other)
    for form in (layer, accelerate(layer)):
        with pytest.raises(ValueError, match="start a new cache for another layer"):
            form(x, cache=cache)
        assert cache.length == 1


def test_a_query_that_sees_nothing_gets_zeros(taken: list[Any]) -> None:
    layer = encoder_layer(4, 1, 4)
    cache = begun(layer, width=4)
    for _, parameter in layer.parameters():
        parameter.value.fill(0.0)
    s = layer.self_attention.sublayer
    s.query.bias.value.fill(1e20)
    s.key.bias.value.fill(-1e20)
    s.value.bias.value.fill(1.0)
    s.output.weight.value[...] = np.eye(4)
    cache.read()[0][...] = -1e20
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(layer(np.ones((1, 1, 4), np.float32), cache=cache)[0], np.ones((1, 1, 4)))
    assert taken[0] is not None


def test_backward_of_the_feed_forward_network_is_settled_by_forward(n_threads: int) -> None:
    layer = accelerate(FeedForward(7, 13, "relu", rng=np.random.default_rng(0)))
    x = np.random.default_rng(3).normal(size=(2, 7)).astype(np.float32)
    _, backward = layer(x)
    before = backward(np.ones((2, 7), np.float32))
    layer.inner.bias.value = np.full(13, -9.0, np.float32)
    np.testing.assert_array_equal(backward(np.ones((2, 7), np.float32)), before)


@pytest.mark.parametrize(
    ("length", "error"),
    [(-1, ValueError), (-100_000, ValueError), (17, ValueError), (100_000, ValueError), (1.0, TypeError)],
)
def test_a_length_outside_the_cache_is_refused(length: Any, error: type, taken: list[Any]) -> None:
    layer = encoder_layer()
    cache = begun(layer)
    with pytest.raises(error, match="KeyValueCache: length"):
        cache.length = length
    assert cache.length == 2
    assert layer(tokens(), cache=cache)[0].shape == (1, 1, 12) and taken[-1] is not None
    with pytest.raises(ValueError, match="from 0 to 0"):
        KeyValueCache().length = 1


def test_a_smaller_length_forgets_the_last_tokens(taken: list[Any]) -> None:
    layer, x = encoder_layer(), tokens(1, 5)
    cache, expected = KeyValueCache(), written(layer, x)
    layer(x[:, :3], causal=True, cache=cache)
    layer(-x[:, 3:4], causal=True, cache=cache)
    cache.length = 3
    for i in (3, 4):
        y = layer(x[:, i : i + 1], causal=True, cache=cache)[0]
        np.testing.assert_allclose(y, expected[:, i : i + 1], rtol=1e-5, atol=1e-6)
    assert taken[-1] is not None


def test_rows_of_the_cache_that_were_selected(taken: list[Any]) -> None:
    layer, x = encoder_layer(), tokens(3, 6)
    found = []
    for form in (layer.textbook, layer):
        cache = begun(layer, 3)
        cache.select(np.array([2, 0, 0]))
        found.append(form(x[:, 5:], causal=True, cache=cache)[0])
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)
    assert taken[0] is not None


def model() -> LanguageModel:
    config = LanguageModelConfig(50, max_length=64, d_model=24, n_heads=3, d_ff=96, n_layers=2)
    return accelerate(LanguageModel(config, np.random.default_rng(0)))


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
