"""The cases of RMSNorm without a gain for `minitransformer check`."""

from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from ..grouped import grouped
from ..qk_norm import qk_norm
from .layer import PlainRMSNorm

layer("PlainRMSNorm", lambda: PlainRMSNorm(4), (2, 3, 4))
layer_of_every_rank("PlainRMSNorm", lambda: PlainRMSNorm(4), (..., 4))
layer(
    "Residual with a plain norm",
    lambda: layers.Residual(layers.FeedForward(4, 6, "gelu"), PlainRMSNorm(4), "pre"),
    (2, 3, 4),
)
layer(
    "MultiHeadAttention with plain norms of queries and keys",
    lambda: grouped(8, 4, 2, turn=qk_norm(2, rotary_base=50.0, kind=PlainRMSNorm)),
    (2, 4, 8),
    causal=True,
)
