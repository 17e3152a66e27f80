"""Ways to mix the positions of a sequence, and the cost of each in theory. Vaswani et al. 2017, table 1.

                    products      sequential steps    path from the first token to the last
    attention       2·n²·d        1                   1
    recurrent       2·n·d²        n                   n
    convolution     k·n·d²        1                   log_k(n), dilated
    restricted      4·r·n·d       1                   n / r, looking back
    linear          2·n·d²        1                   1
    flash           n²·d          1                   1

The products are the multiplications in the matrix products of the mixing itself, without the projections around
attention. For the recurrent layer these are W_x and W. In restricted attention a block attends to itself and to the
block before it. Linear attention also has products within blocks of b positions, 2·b·n·d of them, and one more column
for the denominators. Flash attention skips the tiles ahead of the queries; attention.py computes and masks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import ideas
from ...core import ops
from ...core.arrays.backend import Array, Pullback, array_module, device_of, to_device
from ...core.layers import Module, MultiHeadAttention
from ...ideas import Recurrent

KERNEL, RADIUS, BLOCK = 3, 16, 64
Step = Callable[[Array], tuple[Array, Pullback]]
Random = np.random.Generator
Run = Callable[[Array, Random], tuple[Array, Pullback]]


def value(formula: str, **sizes: int) -> int:
    """What a formula gives, such as "2·n²·d" for these n and d."""
    return int(eval(formula.replace("·", "*").replace("²", "**2"), dict[str, Any](sizes)))


def _once(n: int) -> int:
    return 1


@dataclass(frozen=True)
class Mixer:
    """A way to mix. formula: its multiplications; power_n, power_d: its exponents; steps(n), path(n): for length n.

    by_length, by_width: sizes (n, d) in which n or d grows, large enough that the products take most of the time.
    run(x, rng) returns (y, backward): the whole causal mixing of x: (n, d). hop(i, x): the function of layer i, for
    counting path lengths; None for `run`.
    """

    name: str
    formula: str
    power_n: int
    power_d: int
    by_length: tuple[tuple[int, int], ...]
    by_width: tuple[tuple[int, int], ...]
    run: Run
    steps: Callable[[int], int] = _once
    path: Callable[[int], int] = _once
    hop: Callable[[int, Array, Random], Step] | None = None

    def multiplications(self, n: int, d: int) -> int:
        """Their number by the formula."""
        return value(self.formula, n=n, d=d)

    def layer(self, i: int, x: Array, rng: Random) -> Step:
        """The function of layer i."""
        return self.hop(i, x, rng) if self.hop else lambda x: self.run(x, rng)


def _drawn(like: Array, rng: Random, *shape: int) -> Array:
    """Numbers of standard deviation 1/√(rows), so that a product keeps the size of its input."""
    return to_device(rng.normal(size=shape).astype(like.dtype) / math.sqrt(math.prod(shape[:-1])), device_of(like).name)


def _to_itself(op: Callable[..., Any], *sizes: int, **options: Any) -> Run:
    """An op that attends, from x to x."""

    def run(x: Array, rng: Random) -> tuple[Array, Pullback]:
        y, attention_backward = op(x, x, x, *sizes, **options)
        return y, lambda dy: sum(attention_backward(dy))

    return run


_attention = _to_itself(ops.attention, causal=True)
_restricted = _to_itself(ideas.local_attention, RADIUS, causal=True)
_linear = _to_itself(ideas.linear_attention, block=BLOCK)
_flash = _to_itself(ideas.flash_attention, causal=True, tile=BLOCK)


def _convolution(x: Array, rng: Random, dilation: int = 1) -> tuple[Array, Pullback]:
    weight, bias = _drawn(x, rng, KERNEL, x.shape[-1], x.shape[-1]), array_module(x).zeros(x.shape[-1], x.dtype)
    y, convolution_backward = ideas.convolution(x, weight, bias, dilation, causal=True)
    return y, lambda dy: convolution_backward(dy)[0]


def _recurrent(x: Array, rng: Random, cell: str = "rnn") -> tuple[Array, Pullback]:
    layer = Recurrent(x.shape[-1], x.shape[-1], cell, rng=rng).to(device_of(x).name, str(x.dtype))
    return layer(x)


def _step_of_all(i: int, x: Array, rng: Random) -> Step:
    """One step of a plain cell at every position at once: each takes its left neighbour's state so far.

    After i such steps the state of a position has read its own token and the i - 1 before it.
    """
    weight = _drawn(x, rng, x.shape[-1], x.shape[-1])

    def hop(h: Array) -> tuple[Array, Pullback]:
        xp = array_module(h)
        before = xp.zeros_like(h)
        before[1:] = h[:-1]
        y, cell_backward = ideas.rnn_cell(xp.zeros_like(h) if i else h, before if i else xp.zeros_like(h), weight)

        def backward(dy: Array) -> Array:
            dinputs, dbefore, _ = cell_backward(dy)
            dh = xp.zeros_like(h)
            dh[:-1] = dbefore[1:]
            return dh if i else dinputs

        return y, backward

    return hop


def _grown(start: int, times: int, n: int | None = None, d: int | None = None) -> tuple[tuple[int, int], ...]:
    """Sizes (n, d): one is fixed, the other doubles from `start` on."""
    sizes = [start << i for i in range(times)]
    return tuple((size if n is None else n, size if d is None else d) for size in sizes)


def _log(n: int, base: int) -> int:
    """The smallest i with baseⁱ ≥ n."""
    i = 0
    while base**i < n:
        i += 1
    return i


MIXERS = {
    mixer.name: mixer
    for mixer in (
        Mixer("attention", "2·n²·d", 2, 1, _grown(256, 4, d=512), _grown(512, 4, n=512), _attention),
        Mixer(
            "recurrent", "2·n·d²", 1, 2, _grown(64, 4, d=256), _grown(256, 4, n=32), _recurrent,
            steps=lambda n: n, path=lambda n: n, hop=_step_of_all,
        ),
        Mixer(
            "convolution", f"{KERNEL}·n·d²", 1, 2, _grown(1024, 4, d=64), _grown(256, 3, n=512), _convolution,
            path=lambda n: _log(n, KERNEL), hop=lambda i, x, rng: lambda x: _convolution(x, rng, KERNEL**i),
        ),
        Mixer(
            "restricted", f"{4 * RADIUS}·n·d", 1, 1, _grown(1024, 4, d=64), _grown(256, 4, n=1024), _restricted,
            path=lambda n: -(-(n - 1) // RADIUS),
        ),
        Mixer(
            "linear", f"n·(2·d·(d + 1) + {BLOCK}·(2·d + 1))", 1, 2,
            _grown(1024, 4, d=64), _grown(512, 3, n=512), _linear,
        ),
        Mixer("flash", f"n·(n + {BLOCK})·d", 2, 1, _grown(1024, 3, d=64), _grown(1024, 4, n=512), _flash),
    )
}  # fmt: skip


def _attending(x: Array, rng: Random) -> tuple[Array, Pullback]:
    layer: Module = MultiHeadAttention(x.shape[-1], 1, rng=rng).to(dtype=str(x.dtype))
    return layer(x, causal=True)


def _stack_of_convolutions(x: Array, rng: Random) -> tuple[Array, Pullback]:
    """Enough dilated layers to reach from the last position to the first."""
    pullbacks = []
    for i in range(_log(x.shape[0], KERNEL)):
        x, pullback = _convolution(x, rng, KERNEL**i)
        pullbacks.append(pullback)

    def backward(dy: Any) -> Array:
        for pullback in reversed(pullbacks):
            dy = pullback(dy)
        return dy

    return x, backward


# Freshly initialised layers, through which `compare flow` sends a gradient.
FLOWS: dict[str, Run] = {
    "rnn": _recurrent,
    "lstm": lambda x, rng: _recurrent(x, rng, "lstm"),
    "convolution": _stack_of_convolutions,
    "attention": _attending,
}
