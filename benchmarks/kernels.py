"""Compare each kernel with its textbook op: on one thread, in turns, forward and backward separately."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import threadpoolctl

from minitransformer import fast
from minitransformer import ops as written
from minitransformer.layers import Cache, Encoder, Parameter
from minitransformer.run.fast.compiler import compile_first
from minitransformer.run.fast.row_blocks import numpy_only
from minitransformer.run.machines.freed_memory import keep_freed_memory
from minitransformer.training import Accelerate, AdamW, as_written

from .samples import spread

Call = Callable[[], Any]  # returns (y, backward)

# Each form with the context in which it runs. The last two are the fast form, without and with Numba.
FORMS: dict[str, Callable[[], Any]] = {
    "textbook": contextlib.nullcontext,
    "NumPy": numpy_only,
    "compiled": contextlib.nullcontext,
}


def calls(ops: ModuleType, accelerate: Accelerate, dtype: str = "float32") -> dict[str, Call]:
    """A call of each op at a size of the training cases, with the same numbers for the textbook and the fast ops."""
    rng = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    def heads(batch: int, n_heads: int, length: int, width: int) -> tuple[np.ndarray, ...]:
        """Queries, keys and values as split_heads makes them."""
        return tuple(array(batch, length, n_heads, width).swapaxes(1, 2) for _ in range(3))

    x, wide, gamma, beta = array(2048, 384), array(2048, 1536), array(384), array(384)
    w1, b1 = array(384, 1536), array(1536)
    logits, targets = array(64 * 24, 10_000), rng.integers(10_000, size=64 * 24)
    short, padded = heads(16, 4, 64, 32), heads(16, 4, 128, 64)
    middle, long = heads(8, 6, 256, 64), heads(1, 8, 1024, 64)
    mask = (np.arange(128) < rng.integers(64, 129, 16)[:, None])[:, None, None, :]
    return {
        "linear (2048, 384) to 1536": lambda: ops.linear(x, w1, b1),
        "layer_norm (2048, 384)": lambda: ops.layer_norm(x, gamma, beta),
        "gelu, exact (2048, 1536)": lambda: ops.gelu(wide),
        "gelu, tanh (2048, 1536)": lambda: ops.gelu(wide, approximate="tanh"),
        "cross_entropy (1536, 10000), smoothing": lambda: ops.cross_entropy(logits, targets, label_smoothing=0.1),
        "attention (16, 4, 64, 32), causal": lambda: ops.attention(*short, causal=True),
        "attention (16, 4, 128, 64), padding": lambda: ops.attention(*padded, mask),
        "attention (8, 6, 256, 64), causal": lambda: ops.attention(*middle, causal=True),
        "attention (1, 8, 1024, 64), causal": lambda: ops.attention(*long, causal=True),
        "a token after 300, 4 layers of width 768": _writing(accelerate, array, rng),
        "AdamW, 10 million parameters": _adamw(accelerate, array),
    }


def _writing(accelerate: Accelerate, array: Callable[..., np.ndarray], rng: np.random.Generator) -> Call:
    """One new token through layers of GPT-2: 113 MB of weights, more than a cache holds from one call to the next."""
    stack = accelerate(Encoder(4, 768, 12, 3072, activation="gelu_tanh", norm_order="pre", rng=rng))
    token, prompt, cache = array(1, 1, 768), array(1, 300, 768), Cache(4)
    stack = stack.to(dtype=str(token.dtype))
    stack(prompt, causal=True, cache=cache)

    def call() -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
        for layer in cache.self_attention:
            layer.length = 300  # forget the token of the call before
        return stack(token, causal=True, cache=cache)[0], lambda dy: None

    return call


def _adamw(accelerate: Accelerate, array: Callable[..., np.ndarray]) -> Call:
    parameters = [(f"p{i}", Parameter(array(1000, 1000))) for i in range(10)]
    for _, p in parameters:
        p.grad[...] = p.value
    optimizer = accelerate(AdamW(parameters, 1e-6))

    def call() -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
        optimizer.step()
        return np.zeros(()), lambda dy: None

    return call


@dataclass
class Times:
    """Seconds by form, in the order of the rounds."""

    forward: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})
    backward: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})


Measured = dict[str, Times]


def measure(repetitions: int, say: Callable[[str], None]) -> Measured:
    keep_freed_memory()
    compile_first()
    textbook, quick = calls(written, as_written), calls(fast.ops, fast.accelerate)
    measured: Measured = {}
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name in textbook:
            say(f"kernels: {name}")
            measured[name] = in_turns(textbook[name], quick[name], repetitions)
    return measured


def in_turns(textbook: Call, quick: Call, repetitions: int) -> Times:
    """Times of the textbook form, and of the fast form without and with Numba."""
    times = Times()
    for i in range(repetitions + 1):
        forms = (
            list(FORMS)[i % len(FORMS) :] + list(FORMS)[: i % len(FORMS)]
        )  # so that each form comes first equally often
        for form in forms:
            call = textbook if form == "textbook" else quick
            y = backward = None  # free what the previous form keeps
            with FORMS[form]():
                began = time.perf_counter()
                y, backward = call()
                between = time.perf_counter()
                dy = np.ones_like(y)
                ready = time.perf_counter()
                backward(dy)
                ended = time.perf_counter()
            if i:  # the first round only warms up
                times.forward[form].append(between - began)
                times.backward[form].append(ended - ready)
    return times


def table(measured: Measured) -> str:
    """Milliseconds, forward + backward, and each form's share of the textbook form's time."""
    lines = ["| op, one thread | textbook | NumPy | compiled | NumPy / textbook | compiled / textbook |"]
    lines.append("|---|" + "---:|" * 5)
    for name, times in measured.items():
        both = {form: [_milliseconds(part[form]) for part in (times.forward, times.backward)] for form in FORMS}
        total = {form: sum(parts) for form, parts in both.items()}
        cells = [" + ".join(f"{part:.2f}" for part in both[form] if part >= 0.005) for form in FORMS]
        cells += [f"{total[form] / total['textbook']:.2f}" for form in ("NumPy", "compiled")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = "Milliseconds, forward + backward: medians of rounds in which the three forms took turns. What has no form "
    note += "in NumPy ran as written there."
    return "\n".join([*lines, "", note])


def _milliseconds(samples: Sequence[float]) -> float:
    return 1e3 * spread(samples).median
