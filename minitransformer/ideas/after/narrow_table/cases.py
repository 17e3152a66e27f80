"""The cases of a narrow table of tokens for `minitransformer check`."""

from ....check.verify.catalogue.case import Random, Setup, call, case, ids, layer, ordinary
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core.layers import LayerNorm
from .layer import ProjectedEmbedding, ThenProjected


def _tied(r: Random) -> Setup:
    """Into the stack and out of it, with one table."""
    embed = ordinary(ProjectedEmbedding(5, 3, 4), r)
    return call(r, embed.unembed, (2, 4, 3), module=embed)


layer("ProjectedEmbedding", lambda: ProjectedEmbedding(5, 3, 4), ids(5, 2, 4))
for _shape in ((4,), (3, 4), (2, 3, 4), (2, 1, 3, 4)):
    layer(f"ProjectedEmbedding of rank {len(_shape)}", lambda: ProjectedEmbedding(5, 3, 4), ids(5, *_shape))
case("layer", "ProjectedEmbedding as output", _tied)
layer("ThenProjected", lambda: ThenProjected(LayerNorm(4), 4, 3), (2, 3, 4))
layer("ThenProjected without a norm", lambda: ThenProjected(None, 4, 3), (2, 3, 4))
layer_of_every_rank("ThenProjected", lambda: ThenProjected(LayerNorm(4), 4, 3), (..., 4))
