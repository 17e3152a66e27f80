"""At least one case for every op."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...arrays.backend import Array
from .case import Draw, Random, frozen, gain, op, some_mask


def _off_kink(r: Random) -> Array:
    """Numbers at least 0.01 away from 0, where ReLU has its kink."""
    x = r.normal(size=(3, 5))
    return np.where(abs(x) < 0.01, 0.01, x)


def _class_weights(r: Random) -> Array:
    return r.uniform(0.5, 3.0, 5)


def _decay(*shape: int) -> Draw:
    """Negative numbers: exp(decay) is what is kept."""
    return lambda r: -abs(r.normal(size=shape))


# T_q 3, T_k 5, d_k 4, d_v 6: if sizes were equal, a missing transpose, or √T in place of √d_k, would pass.
_QKV = (2, 3, 4), (2, 5, 4), (2, 5, 6)
_QKV_HEADS = (2, 3, 4, 2), (2, 3, 4, 2), (2, 3, 4, 3)
_TARGETS = np.array([[1, -100, 4], [4, 0, 2]])
_REAL = np.arange(4) < np.array([[2], [0], [4]])  # the second sequence is all padding

op("linear", (2, 3, 4), (4, 5), (5,))
op("linear without bias", (3, 4), (4, 2))
op("low_rank_linear", (2, 3, 5), (5, 2), (2, 4))
op("softmax", (2, 3, 4))
op("softmax along another axis, with temperature", (3, 4, 2), axis=1, temperature=0.7)
op("softmax of a fully masked row", lambda r: np.where(some_mask(3, 4)(r), r.normal(size=(3, 4)), -np.inf))
op("attention", *_QKV)
op("attention with mask and scale", *_QKV, mask=some_mask(3, 5), scale=0.8)
op("attention with causal mask and dropout", *_QKV, causal=True, dropout=0.3, rng=frozen)
op("attention with heads", *_QKV_HEADS, mask=some_mask(2, 1, 4, 4), causal=True)
op("attention with a bias", (2, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 3), None, False, 0.3, 0.0, None, (1, 4, 5))
# Where sizes differ, a forgotten transpose fails at once; here it must be found by its numbers.
op("attention where all sizes are equal", (2, 4, 4), (2, 4, 4), (2, 4, 4))
op("split_heads", (2, 4, 6), 3)
op("merge_heads", (2, 3, 4, 2))
op("layer_norm", (2, 3, 5), gain(5), (5,))
op("layer_norm of two elements, with a large ε", (4, 2), gain(2), (2,), eps=0.1)
op("rms_norm", (2, 3, 5), gain(5))
op("rms_norm with a large ε", (4, 3), gain(3), eps=0.1)
op("layer_norm_over_axes", (3, 2, 4), gain((2, 4)), (2, 4))
op("rms_norm_over_axes", (3, 2, 4), gain((2, 4)))
op("relu", _off_kink)
op("relu at its kink", lambda r: np.concatenate([[0.0, 1e-7, -1.0], r.normal(size=4)]))
op("gelu", (3, 5))
op("gelu by tanh", (3, 5), approximate="tanh")
op("silu", (3, 5))
op("gated", (2, 3, 4), (2, 3, 4))
op("gated by gelu", (3, 4), (3, 4), activation=lambda r: ops.gelu)
op("embedding", np.array([[1, 4, 1], [0, 1, 4]]), (6, 3))
op("learned_positions", (7, 3), 4, start=2)
op("dropout", (3, 5), 0.4, rng=frozen)
op("dropout switched off", (3, 5), 0.4, None)
op("cross_entropy", (2, 3, 5), _TARGETS)
op("cross_entropy with label smoothing", (2, 3, 5), _TARGETS, label_smoothing=0.2)
op(
    "cross_entropy summed, another index ignored",
    (4, 5),
    np.array([3, 0, 2, 0]),
    ignore_index=0,
    label_smoothing=0.1,
    reduction="sum",
)
op("cross_entropy of each position", (2, 3, 5), _TARGETS, label_smoothing=0.1, reduction="none")
op("cross_entropy of tied logits", lambda r: r.integers(2, size=(3, 5)).astype(np.float64), np.array([1, 4, 0]))
op("weighted_cross_entropy", (2, 3, 5), _TARGETS, _class_weights, label_smoothing=0.2)
op("weighted_cross_entropy summed", (4, 5), np.array([3, 0, 2, 0]), _class_weights, ignore_index=0, reduction="sum")
op("weighted_cross_entropy of each position", (2, 3, 5), _TARGETS, _class_weights, reduction="none")
op("mean_pool", (3, 4, 5), _REAL)
op("mean_pool of everything", (2, 3, 4))
op("tanh", (3, 5))
op("repeat_heads", (2, 3, 4, 5), times=2)
op("rotary", (2, 3, 5, 6), start=2)
op("rotary with neighbours in pairs", (5, 4), base=50.0, interleaved=True)
op("rotary with positions of each sequence", (2, 3, 4), positions=np.array([[0, 0, 1], [4, 5, 9]]))
op("rotate", (2, 3, 5, 8), (5, 3), (5, 3))
op("rotate with neighbours in pairs", (2, 4, 6), (2, 1, 3), (2, 1, 3), interleaved=True)
op("relative_bias", (8, 3), t_q=9, t_k=11, max_distance=7)
op("relative_bias looking back", (6, 2), t_q=4, t_k=13, both_ways=False, max_distance=9)
op("alibi", (3,), t_q=4, t_k=6)
op("alibi of more queries than keys", (2,), t_q=5, t_k=3)
op("rnn_cell", (2, 3), (2, 3), (3, 3))
op("lstm_cell", (2, 12), (2, 6), (3, 12))
op("gru_cell", (2, 9), (2, 3), (3, 9), (9,))
op("gru_cell_reset_first", (2, 9), (2, 3), (3, 9))
op("convolution", (2, 6, 3), (3, 3, 4), (4,))
op("convolution looking back, dilated", (2, 6, 3), (2, 3, 4), (4,), dilation=3, causal=True)
op("convolution centred and dilated", (2, 6, 3), (5, 3, 4), (4,), dilation=2)

_ADDITIVE = (2, 3, 4), (2, 5, 4), (2, 5, 6), (4,)
op("additive_attention", *_ADDITIVE)
op("additive_attention with a mask", *_ADDITIVE, mask=some_mask(2, 3, 5), options_first=True)

_LOCAL = (7, 4), (7, 4), (7, 3)
_SHORT = (4, 4), (4, 4), (4, 3)
op("local_attention", *_LOCAL, 2)
op("local_attention of the position itself", *_SHORT, 0)
op("local_attention farther than the sequence", *_SHORT, 9, scale=0.3)
op(
    "local_attention looking back, padded, with dropout",
    *_LOCAL,
    3,
    mask=np.arange(7) < 5,
    causal=True,
    dropout=0.3,
    rng=frozen,
    options_first=True,
)

_FLASH = (2, 5, 4), (2, 7, 4), (2, 7, 3)
_SOME_REAL = np.array([[1, 0, 1, 1, 0, 1, 1], [0] * 7], dtype=bool)  # the second sequence is all padding
op("flash_attention", *_FLASH, tile=3)
op("flash_attention in one tile", *_FLASH, scale=0.8)
op("flash_attention looking back, padded", *_FLASH, mask=_SOME_REAL, causal=True, tile=2)
# The first two queries come before every key.
op("flash_attention of more queries than keys", (5, 2), (3, 2), (3, 4), causal=True, tile=2)

_SINK = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (3,)
_LOOKING_BACK: dict[str, Any] = {"mask": some_mask(5, 7), "causal": True, "scale": 0.8}
op("sink_attention", *_SINK)
op("sink_attention looking back, with mask and scale", *_SINK, **_LOOKING_BACK, options_first=True)

_LINEAR = (2, 7, 4), (2, 7, 4), (2, 7, 3)
op("linear_attention", *_LINEAR)
op("linear_attention as a recurrence", *_LINEAR, block=1)
op("linear_attention in blocks, padded", *_LINEAR, mask=_SOME_REAL, block=3)
_MEMORY = (2, 5, 3), (2, 5, 3), (2, 5, 4)
op("gated_delta", *_MEMORY, _decay(2, 5, 3), (2, 5))
op("gated_delta from a state, one decay for all", *_MEMORY, _decay(2, 5, 1), (2, 5), (2, 3, 4), scale=0.7)
op("top_k_gates", (2, 3, 5))
op("top_k_gates of one expert", (3, 4), 1)
op("top_k_gates of all experts", (3, 4), 4)
op("load_balance", (3, 2, 4))
op("load_balance of one expert", (5, 3), 1)
