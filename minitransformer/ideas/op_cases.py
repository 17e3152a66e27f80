"""At least one case for every op of this room, and one for every rank of its inputs and masks."""

from functools import partial
from typing import Any

import numpy as np

from .. import ideas
from ..check.verify.catalogue import case, ranks_of_arrays
from ..check.verify.catalogue.case import Draw, Random, frozen, gain, some_mask
from ..core import ops
from ..core.arrays.backend import Array

op = partial(case.op, room=ideas)
_TARGETS = np.array([[1, -100, 4], [4, 0, 2]])


def _class_weights(r: Random) -> Array:
    return r.uniform(0.5, 3.0, 5)


def _decay(*shape: int) -> Draw:
    """Negative numbers: exp(decay) is what is kept."""
    return lambda r: -abs(r.normal(size=shape))


op("low_rank_linear", (2, 3, 5), (5, 2), (2, 4))
op("layer_norm_over_axes", (3, 2, 4), gain((2, 4)), (2, 4))
op("rms_norm_over_axes", (3, 2, 4), gain((2, 4)))
op("gated", (2, 3, 4), (2, 3, 4))
op("gated by gelu", (3, 4), (3, 4), activation=lambda r: ops.gelu)
op("weighted_cross_entropy", (2, 3, 5), _TARGETS, _class_weights, label_smoothing=0.2)
op("weighted_cross_entropy summed", (4, 5), np.array([3, 0, 2, 0]), _class_weights, ignore_index=0, reduction="sum")
op("weighted_cross_entropy of each position", (2, 3, 5), _TARGETS, _class_weights, reduction="none")
op("repeat_heads", (2, 3, 4, 5), times=2)
op("rotary", (2, 3, 5, 6), start=2, base=5e5)
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
op("additive_attention with a mask", *_ADDITIVE, mask=some_mask(2, 3, 5))

_LOCAL = (7, 4), (7, 4), (7, 3)
_SHORT = (4, 4), (4, 4), (4, 3)
op("local_attention", *_LOCAL, 2)
op("local_attention of the position itself", *_SHORT, 0)
op("local_attention farther than the sequence", *_SHORT, 9, scale=0.3)
_PADDED: dict[str, Any] = {"mask": np.arange(7) < 5, "causal": True, "dropout": 0.3, "rng": frozen}
op("local_attention looking back, padded, with dropout", *_LOCAL, 3, **_PADDED)

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
op("sink_attention looking back, with mask and scale", *_SINK, **_LOOKING_BACK)

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

_op = partial(op, along_directions=True)
for _rank, _axes in ranks_of_arrays.leading((..., 4)):
    _op(f"layer_norm_over_axes of rank {_rank}", (*_axes, 4), gain(4), gain(4))
    _op(f"rms_norm_over_axes of rank {_rank}", (*_axes, 4), gain(4))
for _eps in ranks_of_arrays.EPS:
    _op(f"layer_norm_over_axes with ε = {_eps}", (3, 2, 4), gain((2, 4)), gain((2, 4)), eps=_eps)
    _op(f"rms_norm_over_axes with ε = {_eps}", (3, 2, 4), gain((2, 4)), eps=_eps)
op("clamped_swiglu", (3, 6), 0.8, 0.9)
