"""At least one case for every op."""

import numpy as np

from ....core.arrays.backend import Array
from .case import Random, frozen, gain, op, some_mask


def _off_kink(r: Random) -> Array:
    """Numbers at least 0.01 away from 0, where ReLU has its kink."""
    x = r.normal(size=(3, 5))
    return np.where(abs(x) < 0.01, 0.01, x)


# T_q 3, T_k 5, d_k 4, d_v 6: if sizes were equal, a missing transpose, or √T in place of √d_k, would pass.
_QKV = (2, 3, 4), (2, 5, 4), (2, 5, 6)
_QKV_HEADS = (2, 3, 4, 2), (2, 3, 4, 2), (2, 3, 4, 3)
_TARGETS = np.array([[1, -100, 4], [4, 0, 2]])
_REAL = np.arange(4) < np.array([[2], [0], [4]])  # the second sequence is all padding

op("linear", (2, 3, 4), (4, 5), (5,))
op("linear without bias", (3, 4), (4, 2))
op("softmax", (2, 3, 4))
op("softmax along another axis, with temperature", (3, 4, 2), axis=1, temperature=0.7)
op("softmax along an axis counted from the end, hot", (2, 3, 4, 5), axis=-4, temperature=7.0)
op("softmax of a fully masked row", lambda r: np.where(some_mask(3, 4)(r), r.normal(size=(3, 4)), -np.inf))
op("attention", *_QKV)
op("attention with mask and scale", *_QKV, mask=some_mask(3, 5), scale=0.8)
op("attention with causal mask and dropout", *_QKV, causal=True, dropout=0.3, rng=frozen)
op("attention with heads", *_QKV_HEADS, mask=some_mask(2, 1, 4, 4), causal=True)
op("attention with a bias", (2, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 3), None, False, 0.3, 0.0, None, (1, 4, 5))
op("attention with all options", *_QKV, some_mask(3, 5), True, -1.3, 0.3, frozen, (2, 3, 5))
op("attention of more queries than keys", (2, 5, 4), (2, 3, 4), (2, 3, 6), causal=True)
op("attention with a mask of queries", *_QKV, mask=np.array([[True], [False], [True]]))
op("attention that sees nothing", *_QKV, mask=np.zeros((3, 5), bool))
# Where sizes differ, a forgotten transpose fails at once; here it must be found by its numbers.
op("attention where all sizes are equal", (2, 4, 4), (2, 4, 4), (2, 4, 4))
op("split_heads", (2, 4, 6), 3)
op("merge_heads", (2, 3, 4, 2))
op("layer_norm", (2, 3, 5), gain(5), (5,))
op("layer_norm of two elements, with a large ε", (4, 2), gain(2), (2,), eps=0.1)
op("rms_norm", (2, 3, 5), gain(5))
op("rms_norm with a large ε", (4, 3), gain(3), eps=0.1)
op("relu", _off_kink)
op("relu at its kink", lambda r: np.concatenate([[0.0, 1e-7, -1.0], r.normal(size=4)]))
op("gelu", (3, 5))
op("gelu by tanh", (3, 5), approximate="tanh")
op("silu", (3, 5))
op("embedding", np.array([[1, 4, 1], [0, 1, 4]]), (6, 3))
op("embedding of one token, in 32 bits", np.array(3, np.int32), (7, 5))
op("learned_positions", (7, 3), 4, start=2)
op("learned_positions from the first", (7, 5), 4)
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
op("cross_entropy of smoothing alone", (2, 3, 5), _TARGETS, label_smoothing=1.0, reduction="sum")
op("cross_entropy where no position counts", (3, 4), np.full(3, -100))
op("cross_entropy of each position", (2, 3, 5), _TARGETS, label_smoothing=0.1, reduction="none")
op("cross_entropy of tied logits", lambda r: r.integers(2, size=(3, 5)).astype(np.float64), np.array([1, 4, 0]))
op("mean_pool", (3, 4, 5), _REAL)
op("mean_pool of everything", (2, 3, 4))
op("tanh", (3, 5))
