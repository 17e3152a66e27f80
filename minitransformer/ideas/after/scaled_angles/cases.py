"""The cases of scaled rotary positions for `minitransformer check`."""

import numpy as np

from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..grouped import grouped
from .layer import ScaledRotary, scaled_turn

YARN = {"kind": "yarn", "factor": 4.0, "trained": 40, "fast": 4.0}
LONGROPE = {"kind": "longrope", "short": [1.0, 1.5], "long": [2.0, 5.0], "trained": 4, "attention": 1.2}
_AT = np.array([[0, 0, 1, 2], [2, 3, 4, 5]])  # one text of 3 tokens, one of 6

layer("ScaledRotary", lambda: ScaledRotary(50.0, YARN), (2, 3, 5, 8), start=2)
layer("ScaledRotary of a part, neighbours in pairs", lambda: ScaledRotary(50.0, YARN, 6, True), (3, 5, 8))
layer("ScaledRotary that follows the length", lambda: ScaledRotary(50.0, LONGROPE), (2, 3, 4, 4), positions=_AT)
layer_of_every_rank("ScaledRotary", lambda: ScaledRotary(50.0, YARN), (..., 3, 4))
layer(
    "MultiHeadAttention with YaRN in a part of each head",
    lambda: grouped(16, 4, 2, turn=scaled_turn(50.0, YARN, 2)),
    (2, 4, 16),
    causal=True,
)
