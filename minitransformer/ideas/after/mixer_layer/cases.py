"""The cases of a layer without a feed-forward network for `minitransformer check`."""

from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer, some_mask
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core.layers import LayerNorm, MultiHeadAttention, Residual
from .layer import MixerLayer


def _made(width: int = 8) -> MixerLayer:
    return MixerLayer.of(Residual(MultiHeadAttention(width, 2), LayerNorm(width), "pre"))


layer("MixerLayer", _made, (2, 3, 8), mask=some_mask(2, 3, 3))
layer_of_every_rank("MixerLayer", lambda: _made(width=4), (..., 3, 4))
read_in_pieces("MixerLayer with a cache", _made, X, causal=True)
