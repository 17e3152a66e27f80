"""The cases of Mamba-2 for `minitransformer check`."""

from functools import partial

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..gated_delta_net.layer import DeltaCache
from . import op as own
from .layer import GroupedRMSNorm, Mamba2

op = partial(case.op, room=own)
op("softplus", (2, 5))
layer_of_every_rank("GroupedRMSNorm", lambda: GroupedRMSNorm(6, 2, 1e-3), (..., 6))
_REAL = np.array([[True] * 5, [False] * 2 + [True] * 3])[:, None]
layer("Mamba2", lambda: Mamba2(3, 4, 2, 3, 2, kernel=3, chunk=2, bias=True), (2, 4, 3))
layer("Mamba2 padded", lambda: Mamba2(6, 2, 3, 2, kernel=3), (2, 5, 6), mask=_REAL, along_directions=True)
layer_of_every_rank("Mamba2", lambda: Mamba2(4, 2, 3, 2, kernel=2), (..., 3, 4))
read_in_pieces(
    "Mamba2 with a cache", partial(Mamba2, 8, 4, 3, 5, 2, eps=1e-3, chunk=2), X, cache=DeltaCache, along_directions=True
)
