"""A case, or several, for every op."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...arrays.backend import Array
from .case import Random, Setup, call, case, frozen, some_mask


def _qkv(r: Random) -> tuple[Array, Array, Array]:
    """T_q 3, T_k 5, d_k 4, d_v 6: with equal sizes a missing transpose and √T for √d_k would pass."""
    return r.normal(size=(2, 3, 4)), r.normal(size=(2, 5, 4)), r.normal(size=(2, 5, 6))


def _qkv_heads(r: Random) -> tuple[Array, Array, Array]:
    return r.normal(size=(2, 3, 4, 2)), r.normal(size=(2, 3, 4, 2)), r.normal(size=(2, 3, 4, 3))


def _off_kink(x: Array) -> Array:
    """x with every entry at least 0.01 away from 0, where ReLU has its kink."""
    return np.where(abs(x) < 0.01, 0.01, x)


_TARGETS = np.array([[1, -100, 4], [4, 0, 2]])
_REAL = np.arange(4) < np.array([[2], [0], [4]])  # the second sequence is all padding

case("op", "linear", lambda r: call(ops.linear, r.normal(size=(2, 3, 4)), r.normal(size=(4, 5)), r.normal(size=5)))
case("op", "linear without bias", lambda r: call(ops.linear, r.normal(size=(3, 4)), r.normal(size=(4, 2))))
case(
    "op",
    "low_rank_linear",
    lambda r: call(ops.low_rank_linear, r.normal(size=(2, 3, 5)), r.normal(size=(5, 2)), r.normal(size=(2, 4))),
)
case("op", "softmax", lambda r: call(ops.softmax, r.normal(size=(2, 3, 4))))
case(
    "op",
    "softmax along another axis, with temperature",
    lambda r: call(ops.softmax, r.normal(size=(3, 4, 2)), axis=1, temperature=0.7),
)
case(
    "op",
    "softmax of a fully masked row",
    lambda r: call(ops.softmax, np.where(some_mask(r, 3, 4), r.normal(size=(3, 4)), -np.inf)),
)
case("op", "attention", lambda r: call(ops.attention, *_qkv(r)))
case(
    "op",
    "attention with mask and scale",
    lambda r: call(ops.attention, *_qkv(r), mask=some_mask(r, 3, 5), scale=0.8),
)
case(
    "op",
    "attention with causal mask and dropout",
    lambda r: call(ops.attention, *_qkv(r), causal=True, dropout=0.3, **frozen(r)),
)
case(
    "op",
    "attention with heads",
    lambda r: call(ops.attention, *_qkv_heads(r), mask=some_mask(r, 2, 1, 4, 4), causal=True),
)
case(
    "op",
    "attention with a bias",
    lambda r: call(
        ops.attention,
        *(r.normal(size=(2, 3, *axes)) for axes in ((4, 2), (5, 2), (5, 3))),
        *(None, False, 0.3, 0.0, None),
        r.normal(size=(1, 4, 5)),
    ),
)
case(  # with unequal sizes a forgotten transpose fails at once; here it must be found by its numbers
    "op",
    "attention where all sizes are equal",
    lambda r: call(ops.attention, *(r.normal(size=(2, 4, 4)) for _ in range(3))),
)
case("op", "split_heads", lambda r: call(ops.split_heads, r.normal(size=(2, 4, 6)), 3))
case("op", "merge_heads", lambda r: call(ops.merge_heads, r.normal(size=(2, 3, 4, 2))))
case(
    "op",
    "layer_norm",
    lambda r: call(ops.layer_norm, r.normal(size=(2, 3, 5)), r.normal(1.0, 0.5, 5), r.normal(size=5)),
)
case(
    "op",
    "layer_norm of two elements, with a large ε",
    lambda r: call(ops.layer_norm, r.normal(size=(4, 2)), r.normal(1.0, 0.5, 2), r.normal(size=2), eps=0.1),
)
case("op", "rms_norm", lambda r: call(ops.rms_norm, r.normal(size=(2, 3, 5)), r.normal(1.0, 0.5, 5)))
case(
    "op",
    "rms_norm with a large ε",
    lambda r: call(ops.rms_norm, r.normal(size=(4, 3)), r.normal(1.0, 0.5, 3), eps=0.1),
)
case("op", "relu", lambda r: call(ops.relu, _off_kink(r.normal(size=(3, 5)))))
case("op", "relu at its kink", lambda r: call(ops.relu, np.concatenate([[0.0, 1e-7, -1.0], r.normal(size=4)])))
case("op", "gelu", lambda r: call(ops.gelu, r.normal(size=(3, 5))))
case("op", "gelu by tanh", lambda r: call(ops.gelu, r.normal(size=(3, 5)), approximate="tanh"))
case("op", "silu", lambda r: call(ops.silu, r.normal(size=(3, 5))))
case("op", "gated", lambda r: call(ops.gated, r.normal(size=(2, 3, 4)), r.normal(size=(2, 3, 4))))
case(
    "op",
    "gated by gelu",
    lambda r: call(ops.gated, r.normal(size=(3, 4)), r.normal(size=(3, 4)), activation=ops.gelu),
)
case("op", "embedding", lambda r: call(ops.embedding, np.array([[1, 4, 1], [0, 1, 4]]), r.normal(size=(6, 3))))
case("op", "learned_positions", lambda r: call(ops.learned_positions, r.normal(size=(7, 3)), 4, start=2))
case("op", "dropout", lambda r: call(ops.dropout, r.normal(size=(3, 5)), 0.4, **frozen(r)))
case("op", "dropout switched off", lambda r: call(ops.dropout, r.normal(size=(3, 5)), 0.4, None))
case("op", "cross_entropy", lambda r: call(ops.cross_entropy, r.normal(size=(2, 3, 5)), _TARGETS))
case(
    "op",
    "cross_entropy with label smoothing",
    lambda r: call(ops.cross_entropy, r.normal(size=(2, 3, 5)), _TARGETS, label_smoothing=0.2),
)
case(
    "op",
    "cross_entropy summed, another index ignored",
    lambda r: call(
        ops.cross_entropy,
        r.normal(size=(4, 5)),
        np.array([3, 0, 2, 0]),
        ignore_index=0,
        label_smoothing=0.1,
        reduction="sum",
    ),
)
case(
    "op",
    "cross_entropy of tied logits",
    lambda r: call(ops.cross_entropy, r.integers(2, size=(3, 5)).astype(np.float64), np.array([1, 4, 0])),
)
case("op", "mean_pool", lambda r: call(ops.mean_pool, r.normal(size=(3, 4, 5)), _REAL))
case("op", "mean_pool of everything", lambda r: call(ops.mean_pool, r.normal(size=(2, 3, 4))))
case("op", "tanh", lambda r: call(ops.tanh, r.normal(size=(3, 5))))
case("op", "repeat_heads", lambda r: call(ops.repeat_heads, r.normal(size=(2, 3, 4, 5)), times=2))
case("op", "rotary", lambda r: call(ops.rotary, r.normal(size=(2, 3, 5, 6)), start=2))
case(
    "op",
    "rotary with neighbours in pairs",
    lambda r: call(ops.rotary, r.normal(size=(5, 4)), base=50.0, interleaved=True),
)
case(
    "op",
    "rotary with positions of each sequence",
    lambda r: call(ops.rotary, r.normal(size=(2, 3, 4)), positions=np.array([[0, 0, 1], [4, 5, 9]])),
)
case("op", "relative_bias", lambda r: call(ops.relative_bias, r.normal(size=(8, 3)), t_q=9, t_k=11, max_distance=7))
case(
    "op",
    "relative_bias looking back",
    lambda r: call(ops.relative_bias, r.normal(size=(6, 2)), t_q=4, t_k=13, both_ways=False, max_distance=9),
)
case("op", "alibi", lambda r: call(ops.alibi, r.normal(size=3), t_q=4, t_k=6))
case("op", "alibi of more queries than keys", lambda r: call(ops.alibi, r.normal(size=2), t_q=5, t_k=3))
case(
    "op", "rnn_cell", lambda r: call(ops.rnn_cell, r.normal(size=(2, 3)), r.normal(size=(2, 3)), r.normal(size=(3, 3)))
)
case(
    "op",
    "lstm_cell",
    lambda r: call(ops.lstm_cell, r.normal(size=(2, 12)), r.normal(size=(2, 6)), r.normal(size=(3, 12))),
)
case(
    "op",
    "gru_cell",
    lambda r: call(ops.gru_cell, r.normal(size=(2, 9)), r.normal(size=(2, 3)), r.normal(size=(3, 9)), r.normal(size=9)),
)


def _convolved(r: Random, kernel: int, **options: Any) -> Setup:
    shapes = [(2, 6, 3), (kernel, 3, 4), (4,)]
    return call(ops.convolution, *(r.normal(size=shape) for shape in shapes), **options)


case("op", "convolution", lambda r: _convolved(r, 3))
case("op", "convolution looking back, dilated", lambda r: _convolved(r, 2, dilation=3, causal=True))
case("op", "convolution centred and dilated", lambda r: _convolved(r, 5, dilation=2))


def _additive(r: Random, *axes: int, **options: Any) -> Setup:
    shapes = [(*axes, 3, 4), (*axes, 5, 4), (*axes, 5, 6), (4,)]
    return call(ops.additive_attention, *(r.normal(size=shape) for shape in shapes), **options)


case("op", "additive_attention", lambda r: _additive(r, 2))
case("op", "additive_attention with a mask", lambda r: _additive(r, 2, mask=some_mask(r, 2, 3, 5)))


def _local(r: Random, radius: int, t: int = 7, **options: Any) -> Setup:
    shapes = [(t, 4), (t, 4), (t, 3)]
    return call(ops.local_attention, *(r.normal(size=shape) for shape in shapes), radius, **options)


case("op", "local_attention", lambda r: _local(r, 2))
case("op", "local_attention of the position itself", lambda r: _local(r, 0, 4))
case("op", "local_attention farther than the sequence", lambda r: _local(r, 9, 4, scale=0.3))
case(
    "op",
    "local_attention looking back, padded, with dropout",
    lambda r: _local(r, 3, mask=np.arange(7) < 5, causal=True, dropout=0.3, **frozen(r)),
)


def _flash(r: Random, **options: Any) -> Setup:
    shapes = [(2, 5, 4), (2, 7, 4), (2, 7, 3)]
    return call(ops.flash_attention, *(r.normal(size=shape) for shape in shapes), **options)


_SOME_REAL = np.array([[1, 0, 1, 1, 0, 1, 1], [0] * 7], dtype=bool)  # the second sequence is all padding
case("op", "flash_attention", lambda r: _flash(r, tile=3))
case("op", "flash_attention in one tile", lambda r: _flash(r, scale=0.8))
case("op", "flash_attention looking back, padded", lambda r: _flash(r, mask=_SOME_REAL, causal=True, tile=2))
case(  # the first two queries precede every key
    "op",
    "flash_attention of more queries than keys",
    lambda r: call(ops.flash_attention, *(r.normal(size=s) for s in [(5, 2), (3, 2), (3, 4)]), causal=True, tile=2),
)


def _sink(r: Random, **options: Any) -> Setup:
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (3,)]
    return call(ops.sink_attention, *(r.normal(size=shape) for shape in shapes), **options)


case("op", "sink_attention", _sink)
case(
    "op",
    "sink_attention looking back, with mask and scale",
    lambda r: _sink(r, mask=some_mask(r, 5, 7), causal=True, scale=0.8),
)


def _linear(r: Random, **options: Any) -> Setup:
    shapes = [(2, 7, 4), (2, 7, 4), (2, 7, 3)]
    return call(ops.linear_attention, *(r.normal(size=shape) for shape in shapes), **options)


case("op", "linear_attention", _linear)
case("op", "linear_attention as a recurrence", lambda r: _linear(r, block=1))
case("op", "linear_attention in blocks, padded", lambda r: _linear(r, mask=_SOME_REAL, block=3))
case("op", "top_k_gates", lambda r: call(ops.top_k_gates, r.normal(size=(2, 3, 5))))
case("op", "top_k_gates of one expert", lambda r: call(ops.top_k_gates, r.normal(size=(3, 4)), 1))
case("op", "top_k_gates of all experts", lambda r: call(ops.top_k_gates, r.normal(size=(3, 4)), 4))
case("op", "load_balance", lambda r: call(ops.load_balance, r.normal(size=(3, 2, 4))))
case("op", "load_balance of one expert", lambda r: call(ops.load_balance, r.normal(size=(5, 3)), 1))
