"""The cases of patches for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import frozen, layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from . import op as own
from .layer import PatchEmbedding

op = partial(case.op, room=own)
op("patches", (2, 3, 4, 6), 2, 3)
op("patches of an image with a rest", (2, 2, 5, 7), 2, 3)
layer("PatchEmbedding", lambda: PatchEmbedding((4, 6), (2, 3), 2, 5), (2, 2, 4, 6))
layer(
    "PatchEmbedding without a bias, with a norm and dropout",
    lambda: PatchEmbedding((5, 4), (2, 2), 3, 5, False, 0.3, layers.LayerNorm(5)),
    (2, 3, 5, 4),
    rng=frozen,
)
layer_of_every_rank("PatchEmbedding", lambda: PatchEmbedding((4, 6), (2, 3), 2, 5), (..., 2, 4, 6))
