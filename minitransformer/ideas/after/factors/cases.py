"""The cases of constant factors for `minitransformer check`."""

from __future__ import annotations

from collections.abc import Callable

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import Random, Setup, call, layer, ordinary
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from ...after.gated import GatedFeedForward
from .layer import ScaledOutput, ScaledUpdate


def _scaled_output(*shape: int) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        output = ordinary(ScaledOutput(layers.Embedding(5, 4), 1.3), r)
        return call(r, output.unembed, shape, module=output)

    return build


for _shape in ((4,), (3, 4), (2, 3, 4), (2, 1, 3, 4)):
    case.case("layer", f"ScaledOutput of rank {len(_shape)}", _scaled_output(*_shape))
layer("ScaledUpdate", lambda: ScaledUpdate(GatedFeedForward(4, 7), layers.RMSNorm(4), 0.4), (2, 3, 4))
layer_of_every_rank("ScaledUpdate", lambda: ScaledUpdate(GatedFeedForward(4, 6), layers.RMSNorm(4), 0.4), (..., 4))
