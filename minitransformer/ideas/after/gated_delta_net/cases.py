"""The cases of Gated DeltaNet for `minitransformer check`."""

from functools import partial

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from . import op as own
from .layer import DeltaCache, GatedDeltaNet

op = partial(case.op, room=own)
op("step_decay", (2, 5, 3), (3,), (3,))
_REAL = np.array([[True] * 5, [False] * 2 + [True] * 3])[:, None]
layer("GatedDeltaNet", lambda: GatedDeltaNet(3, 4, 2, 5, 2, kernel=3, chunk=2), (3, 3))
layer("GatedDeltaNet with β up to 2", lambda: GatedDeltaNet(3, 2, 1, 3, 2, kernel=2, most=2.0), (3, 3))
layer("GatedDeltaNet padded", lambda: GatedDeltaNet(6, 2, 2, 3, 2), (2, 5, 6), mask=_REAL, along_directions=True)
layer_of_every_rank("GatedDeltaNet", lambda: GatedDeltaNet(4, 2, 1, 3, 2, kernel=2), (..., 3, 4))
_NET = partial(GatedDeltaNet, 8, 4, 2, 6, 5, eps=1e-3, chunk=2)
read_in_pieces("GatedDeltaNet with a cache", _NET, X, cache=DeltaCache, along_directions=True)
