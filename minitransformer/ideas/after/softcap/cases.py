"""The cases of softcapped scores and logits for `minitransformer check`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import Random, Setup, call, frozen, layer, ordinary, some_mask
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from ..grouped import grouped
from ..window import Window
from . import op as own
from .layer import CappedOutput, SoftCapped

op = partial(case.op, room=own)
op("softcap", (3, 5), 1.3)
_QKV = (2, 3, 4), (2, 5, 4), (2, 5, 6)
op("softcapped_attention", *_QKV, 0.9)
op("softcapped_attention looking back, masked", *_QKV, 0.9, mask=some_mask(3, 5), causal=True, scale=0.8)
op("softcapped_attention with dropout", *_QKV, 0.9, dropout=0.3, rng=frozen)


def _capped_output(*shape: int) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        output = ordinary(CappedOutput(layers.Embedding(5, 4), 1.3), r)
        return call(r, output.unembed, shape, module=output)

    return build


for _shape in ((4,), (3, 4), (2, 3, 4), (2, 1, 3, 4)):
    case.case("layer", f"CappedOutput of rank {len(_shape)}", _capped_output(*_shape))
layer("SoftCapped", lambda: SoftCapped(0.9), (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3))
layer_of_every_rank("SoftCapped", lambda: SoftCapped(0.9), (..., 5, 4), (..., 5, 4), (..., 5, 3))
layer(
    "MultiHeadAttention with softcapped scores in a window",
    lambda: grouped(8, 4, 2, mix=Window(2, SoftCapped(0.9, 0.7))),
    (2, 4, 8),
    mask=some_mask(2, 4, 4),
)
