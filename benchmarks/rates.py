"""What the machine can do: its rates of float32 matrix products and of memory traffic, on one thread and more.

    python -m benchmarks.rates --threads 2      prints one JSON object; compare.py's programs do not run meanwhile

Memory is measured as in STREAM (McCalpin 1995), on arrays far larger than the caches, as the best of several passes:

    copy     a = b                  a read and a write
    triad    a = b + s c            two reads and a write, here in pieces that stay in the cache between * and +
    read     sum of b_i b_i         a read: the traffic of decoding

A write counts once, although the processor may read the line first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

SIDE = 2048  # rows and columns of the matrices
ELEMENTS = 48 * 2**20  # elements of each array: 192 MiB
PIECE = 32 * 2**10  # elements


def best(function: Callable[[], object], seconds: float) -> float:
    """The shortest time of a call, among as many calls as fit into `seconds`, but at least three."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def numpy_matmul(threads: int, seconds: float) -> float:
    """GFLOP/s."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    with threadpoolctl.threadpool_limits(threads):
        return 2e-9 * SIDE**3 / best(lambda: np.matmul(a, b, out=out), seconds)


def torch_matmul(threads: int, seconds: float) -> float | None:
    """GFLOP/s, or None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    a, b = torch.randn(2, SIDE, SIDE)
    out = torch.empty_like(a)
    return 2e-9 * SIDE**3 / best(lambda: torch.matmul(a, b, out=out), seconds)


def bandwidth(threads: int, seconds: float) -> dict[str, float]:
    """GB/s of copy, triad and read, each thread on its own share of the arrays."""
    a, b, c = (np.full(ELEMENTS, 0.5, dtype=np.float32) for _ in range(3))
    share = ELEMENTS // threads
    parts = [slice(i * share, (i + 1) * share) for i in range(threads)]

    def copy(part: slice) -> None:
        np.copyto(a[part], b[part])

    def triad(part: slice) -> None:
        for start in range(part.start, part.stop, PIECE):
            piece = slice(start, min(start + PIECE, part.stop))
            np.multiply(c[piece], np.float32(3.0), out=a[piece])
            np.add(a[piece], b[piece], out=a[piece])

    def read(part: slice) -> None:
        np.dot(b[part], b[part])

    found = {}
    with ThreadPoolExecutor(threads) as pool, threadpoolctl.threadpool_limits(1):
        for function, arrays in ((copy, 2), (triad, 3), (read, 1)):
            shortest = best(lambda function=function: list(pool.map(function, parts)), seconds)
            found[function.__name__] = 1e-9 * arrays * 4 * share * threads / shortest
    return found


def measure(threads: int, seconds: float) -> dict[str, dict[str, float]]:
    """{"1": {...}, "2": {...}}: for each number of threads the GFLOP/s of "numpy matmul" and "torch matmul", and the
    GB/s of "copy", "triad" and "read".
    """
    rates: dict[str, dict[str, float]] = {}
    for n in sorted({1, threads}):
        products = {"numpy matmul": numpy_matmul(n, seconds), "torch matmul": torch_matmul(n, seconds)}
        rates[str(n)] = {name: rate for name, rate in products.items() if rate is not None} | bandwidth(n, seconds)
    return rates


def peaks(rates: dict[str, dict[str, float]]) -> tuple[float, float]:
    """The best rates of products (FLOP/s) and of memory (bytes/s), over all libraries and numbers of threads."""
    products = [rate for at in rates.values() for name, rate in at.items() if name.endswith("matmul")]
    memory = [rate for at in rates.values() for name, rate in at.items() if not name.endswith("matmul")]
    return 1e9 * max(products), 1e9 * max(memory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.threads, options.seconds)))
