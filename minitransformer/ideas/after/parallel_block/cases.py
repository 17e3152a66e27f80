"""The cases of a parallel block for `minitransformer check`."""

from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer, some_mask
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core.layers import FeedForward, LayerNorm, MultiHeadAttention, Residual
from .layer import ParallelLayer


def _made(one_norm: bool = False, width: int = 8) -> ParallelLayer:
    first = LayerNorm(width)
    second = first if one_norm else LayerNorm(width)
    attention, feed_forward = MultiHeadAttention(width, 2), FeedForward(width, 6, "gelu")
    return ParallelLayer.of(Residual(attention, first, "pre"), Residual(feed_forward, second, "pre"))


layer("ParallelLayer", _made, (2, 3, 8))
layer("ParallelLayer with one norm, masked", lambda: _made(True), (2, 3, 8), mask=some_mask(2, 3, 3))
layer_of_every_rank("ParallelLayer", lambda: _made(width=4), (..., 3, 4))
read_in_pieces("ParallelLayer with a cache", _made, X, causal=True)
