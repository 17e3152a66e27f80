"""The cases of gated attention for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer, some_mask
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from ..qk_norm import qk_norm
from . import op as own
from .layer import Columns, GatedAttention, OpenedFeedForward, Unchanged, gated_attention

op = partial(case.op, room=own)
op("sigmoid", (3, 5))
layer("GatedAttention", lambda: gated_attention(6, 4, 2, 3, bias=True), (2, 4, 6), mask=some_mask(2, 4, 4))
layer(
    "GatedAttention looking back, rotated",
    lambda: gated_attention(6, 2, 1, 4, turn=qk_norm(4, rotary_base=50.0)),
    (2, 4, 6),
    causal=True,
)
read_in_pieces("GatedAttention with a cache", lambda: gated_attention(8, 4, 2, 2), X, causal=True)
layer("Columns", lambda: Columns(layers.Linear(3, 12), 2, 1), (2, 4, 3))
layer_of_every_rank("Columns", lambda: Columns(layers.Linear(3, 12), 3, 0), (..., 3))
layer("OpenedFeedForward", lambda: OpenedFeedForward(3, 5), (2, 4, 3))
layer_of_every_rank("OpenedFeedForward", lambda: OpenedFeedForward(3, 5), (..., 3))
layer("Unchanged", lambda: Unchanged(3), (2, 4, 3))
layer_of_every_rank("Unchanged", lambda: Unchanged(3), (..., 3))


def _whole() -> GatedAttention:
    attention = layers.MultiHeadAttention(4, 2)
    attention.output = Unchanged(4)
    return GatedAttention(attention, layers.Linear(4, 4), layers.Linear(4, 4))


layer_of_every_rank("GatedAttention", _whole, (..., 3, 4))
