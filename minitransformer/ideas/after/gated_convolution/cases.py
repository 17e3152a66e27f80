"""The cases of the gated convolution for `minitransformer check`."""

from functools import partial

import numpy as np

from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ...before.state_cache import StateCache
from .layer import GatedConvolution

_REAL = np.array([[True] * 5, [False] * 2 + [True] * 3])[:, None]
layer("GatedConvolution", lambda: GatedConvolution(3, 2, bias=True), (2, 4, 3))
layer("GatedConvolution padded", lambda: GatedConvolution(3, 3, bias=True), (2, 5, 3), mask=_REAL)
layer_of_every_rank("GatedConvolution", lambda: GatedConvolution(4, 3), (..., 5, 4))
read_in_pieces("GatedConvolution with a cache", partial(GatedConvolution, 8, 3, True), X, cache=StateCache)
