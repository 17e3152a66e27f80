"""The cases of norms with less in them for `minitransformer check`."""

from typing import Any

from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core.layers import FeedForward, Residual
from .layer import LayerNormWithoutBias, NoNorm

layer("LayerNormWithoutBias", lambda: LayerNormWithoutBias(4), (2, 3, 4))
layer_of_every_rank("LayerNormWithoutBias", lambda: LayerNormWithoutBias(4), (..., 4))
layer("NoNorm", lambda: NoNorm(4), (2, 3, 4))
layer_of_every_rank("NoNorm", lambda: NoNorm(4), (..., 4))
none: Any = NoNorm(4)
layer("Residual without a norm", lambda: Residual(FeedForward(4, 5), none, "pre"), (2, 3, 4))
