"""Each kernel beside its textbook op: on one thread, in turns, forward and backward apart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import threadpoolctl
from minitransformer.arrays.forms import textbook

from minitransformer import ops
from minitransformer.arrays.backend import keep_freed_memory
from minitransformer.fast.blocks import numpy_only
from minitransformer.layers import Cache, Encoder, FeedForward, Parameter
from minitransformer.training import AdamW

from .samples import spread

FORMS: dict[str, Callable[[], Any]] = {"textbook": textbook, "NumPy": numpy_only, "compiled": contextlib.nullcontext}
_RNG = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape, dtype=np.float32)


def _heads(batch: int, n_heads: int, length: int, width: int) -> tuple[np.ndarray, ...]:
    """Queries, keys and values as split_heads makes them."""
    return tuple(_array(batch, length, n_heads, width).swapaxes(1, 2) for _ in range(3))


def _calls() -> dict[str, Callable[[], Any]]:
    """A call of each op at a size of cases 1 to 5, which returns (y, backward)."""
    x, wide, gamma, beta = _array(2048, 384), _array(2048, 1536), _array(384), _array(384)
    w1, b1 = _array(384, 1536), _array(1536)
    feed_forward = FeedForward(384, 1536, "gelu_tanh")
    logits, targets = _array(64 * 24, 10_000), _RNG.integers(10_000, size=64 * 24)
    long, short, padded = _heads(8, 6, 256, 64), _heads(16, 4, 64, 32), _heads(16, 4, 128, 64)
    mask = (np.arange(128) < _RNG.integers(64, 129, 16)[:, None])[:, None, None, :]
    return {
        "linear (2048, 384) to 1536": lambda: ops.linear(x, w1, b1),
        "layer_norm (2048, 384)": lambda: ops.layer_norm(x, gamma, beta),
        "gelu, exact (2048, 1536)": lambda: ops.gelu(wide),
        "gelu, tanh (2048, 1536)": lambda: ops.gelu(wide, approximate="tanh"),
        "feed_forward (2048, 384), 1536, tanh": lambda: feed_forward(x),
        "cross_entropy (1536, 10000), smoothing": lambda: ops.cross_entropy(logits, targets, label_smoothing=0.1),
        "attention (8, 6, 256, 64), causal": lambda: ops.attention(*long, causal=True),
        "attention (16, 4, 64, 32), causal": lambda: ops.attention(*short, causal=True),
        "attention (16, 4, 128, 64), padding": lambda: ops.attention(*padded, mask),
        "a token after 300, 4 layers of width 768": _writing(),
    }


def _writing() -> Callable[[], Any]:
    """One new token through layers of GPT-2: 113 MB of weights, more than a cache holds from one call to the next."""
    stack = Encoder(4, 768, 12, 3072, activation="gelu_tanh", norm_order="pre", rng=_RNG)
    token, cache = _array(1, 1, 768), Cache(4)
    stack(_array(1, 300, 768), causal=True, cache=cache)

    def call() -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
        for layer in cache.self_attention:
            layer.length = 300  # forget the token of the call before
        return stack(token, causal=True, cache=cache)[0], lambda dy: None

    return call


@dataclass
class Times:
    """Seconds by form, in the order of the rounds."""

    forward: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})
    backward: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})


Measured = dict[str, Times]


def measure(repetitions: int, say: Callable[[str], None]) -> Measured:
    keep_freed_memory()
    measured: Measured = {}
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name, call in _calls().items():
            say(f"kernels: {name}")
            measured[name] = _in_turns(call, repetitions)
        say("kernels: AdamW")
        measured["AdamW, 10 million parameters"] = _in_turns(_adamw(), repetitions)
    return measured


def _adamw() -> Callable[[], Any]:
    parameters = [(f"p{i}", Parameter(_array(1000, 1000))) for i in range(10)]
    for _, p in parameters:
        p.grad[...] = p.value
    optimizer = AdamW(parameters, 1e-6)

    def call() -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
        optimizer.step()
        return np.zeros(()), lambda dy: None

    return call


def _in_turns(call: Callable[[], Any], repetitions: int) -> Times:
    times = Times()
    for i in range(repetitions + 1):
        forms = list(FORMS)[i % len(FORMS) :] + list(FORMS)[: i % len(FORMS)]  # so that each comes first in turn
        for form in forms:
            y = backward = None  # what the form before has kept
            with FORMS[form]():
                began = time.perf_counter()
                y, backward = call()
                between = time.perf_counter()
                dy = np.ones_like(y)
                ready = time.perf_counter()
                backward(dy)
                ended = time.perf_counter()
            if i:  # the first round wakes what sleeps
                times.forward[form].append(between - began)
                times.backward[form].append(ended - ready)
    return times


def table(measured: Measured) -> str:
    """Milliseconds, forward + backward, and each form's share of the textbook's time."""
    lines = ["| op, one thread | textbook | NumPy | compiled | NumPy / textbook | compiled / textbook |"]
    lines.append("|---|" + "---:|" * 5)
    for name, times in measured.items():
        both = {form: [_milliseconds(part[form]) for part in (times.forward, times.backward)] for form in FORMS}
        total = {form: sum(parts) for form, parts in both.items()}
        cells = [" + ".join(f"{part:.2f}" for part in both[form] if part >= 0.005) for form in FORMS]
        cells += [f"{total[form] / total['textbook']:.2f}" for form in ("NumPy", "compiled")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = "Milliseconds, forward + backward: medians of rounds in which the three forms took turns."
    return "\n".join([*lines, "", note])


def _milliseconds(samples: Sequence[float]) -> float:
    return 1e3 * spread(samples).median
