"""The size of a layer's cache, in bytes: by a formula, and measured.

A layer of width D with H heads of width d = D / H must keep these numbers after n tokens, to read one more:

    multi-head    2·n·H·d          every head has a key and a value for each token
    grouped       2·n·G·d          G heads of keys and values        Ainslie et al. 2023
    multi-query   2·n·d            one                               Shazeer 2019
    latent        n·(d_c + d_R)    d_c = 4·d, d_R = d/2              DeepSeek-V2, section 3.1.2
    window        2·w·H·d          the last w tokens                 Beltagy et al. 2020
    sinks         2·(w + s)·H·d    and the first s                   Xiao et al. 2024
    linear        H·d·(d + 1)      the sums S and z                  Katharopoulos et al. 2020
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...core.arrays.backend import to_device
from ...core.layers import KeyValueCache, MultiHeadAttention
from ...core.layers.module import generator
from ...ideas import LatentAttention, LinearAttention, RollingCache, StateCache, grouped
from .mixers import value

GROUPS, WINDOW, SINKS = 2, 128, 4


@dataclass(frozen=True)
class Kind:
    """A kind of attention. formula: how many numbers it keeps; layer(D, H, rng): a layer; cache(): an empty cache."""

    formula: str
    layer: Callable[..., Any]
    cache: Callable[[], Any]


def _latent(d_model: int, n_heads: int, rng: Any) -> LatentAttention:
    d = d_model // n_heads
    return LatentAttention(d_model, n_heads, d, 4 * d, d // 2, rng=rng)


KINDS = {
    "multi-head": Kind("2·n·H·d", MultiHeadAttention, KeyValueCache),
    "grouped": Kind(f"2·n·{GROUPS}·d", partial(grouped, n_key_heads=GROUPS), KeyValueCache),
    "multi-query": Kind("2·n·d", partial(grouped, n_key_heads=1), KeyValueCache),
    "latent": Kind("n·(4·d + d/2)", _latent, KeyValueCache),
    "window": Kind(f"2·min(n, {WINDOW})·H·d", MultiHeadAttention, partial(RollingCache, WINDOW)),
    "window and sinks": Kind(
        f"2·min(n, {WINDOW} + {SINKS})·H·d", MultiHeadAttention, partial(RollingCache, WINDOW, SINKS)
    ),
    "linear": Kind("H·d·(d + 1)", LinearAttention, StateCache),
}


def predicted(name: str, n: int, d_model: int, n_heads: int) -> int:
    """The bytes according to the formula, in float32."""
    return 4 * value(KINDS[name].formula, n=n, H=n_heads, d=d_model // n_heads)


def measured(name: str, n: int, d_model: int, n_heads: int) -> tuple[int, int]:
    """The bytes of the cache's content after n tokens, read in pieces, and of the buffers that hold it.

    The buffers of a growing cache double when they are full, so they are larger than their content.
    """
    rng = generator(np.random.default_rng(0))
    layer, cache = KINDS[name].layer(d_model, n_heads, rng=rng), KINDS[name].cache()
    x = to_device(rng.normal(size=(1, n, d_model)).astype(np.float32))
    options = {} if isinstance(cache, StateCache) else {"causal": True}
    for start in range(0, n, 64):
        layer(x[:, start : start + 64], cache=cache, **options)
    if isinstance(cache, StateCache):
        assert cache.state is not None
        return cache.state.nbytes, cache.state.nbytes
    return sum(x.nbytes for x in cache.read()), sum(x.nbytes for x in cache.buffers())
