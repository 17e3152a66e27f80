"""The cases of differential attention for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import layer, some_mask
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from . import op as own
from .layer import Differential

op = partial(case.op, room=own)
op("difference_factor", (3,), (3,), (3,), (3,))
op("difference_factor from a smaller start", (3,), (3,), (3,), (3,), initial=0.2)
op("difference_factor from a larger start", (3,), (3,), (3,), (3,), initial=1.1)
_QKV = (2, 3, 8), (2, 5, 8), (2, 5, 6)
op("differential_attention", *_QKV, ())
op("differential_attention looking back, masked", *_QKV, (), mask=some_mask(3, 5), causal=True, scale=0.8)
layer("Differential", lambda: Differential(4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))
layer_of_every_rank("Differential", lambda: Differential(4, 3), (..., 5, 4), (..., 5, 4), (..., 5, 4))
layer(
    "MultiHeadAttention with a difference of two",
    lambda: layers.MultiHeadAttention(8, 2, mix=Differential(4)),
    (2, 4, 8),
    mask=some_mask(2, 4, 4),
)
