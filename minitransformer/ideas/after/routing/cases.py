"""The cases of routing for `minitransformer check`."""

from functools import partial

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..experts import MixtureOfExperts
from ..gated import GatedFeedForward
from . import op as own
from .layer import SharedExperts, SigmoidRouting, SoftmaxRouting

op = partial(case.op, room=own)
_CHOSEN = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], bool)
op("softmax_gates", (2, 3, 5), chosen=_CHOSEN, factor=1.7)
op("softmax_gates of all experts", (3, 5), factor=0.6)
op("softmax_gates of one expert", (3, 5), chosen=np.eye(3, 5, dtype=bool))
op("sigmoid_gates", (2, 3, 5), chosen=_CHOSEN, factor=2.5)
op("sigmoid_gates of all experts", (3, 5))
op("sigmoid_gates that do not sum to one", (3, 5), chosen=_CHOSEN, factor=0.6, normalized=False)


def _mixture(route: SoftmaxRouting, n: int = 6) -> MixtureOfExperts:
    return MixtureOfExperts(4, 2, n, route=route)


layer("SoftmaxRouting", lambda: SoftmaxRouting(2, factor=1.3), (2, 3, 5))
layer("SigmoidRouting", lambda: SigmoidRouting(6, 2, 3, 2, 2.5), (2, 4, 6))
layer(
    "SharedExperts",
    lambda: SharedExperts(GatedFeedForward(4, 3, bias=False), _mixture(SoftmaxRouting(2), 3)),
    (2, 3, 4),
)
layer("MixtureOfExperts by a softmax over all, in groups", lambda: _mixture(SoftmaxRouting(2, 3, 2, 1.4)), (3, 4))
layer("MixtureOfExperts by sigmoids, in groups", lambda: _mixture(SigmoidRouting(6, 3, 3, 2, 2.5)), (3, 4))
layer_of_every_rank("SoftmaxRouting", lambda: SoftmaxRouting(2), (..., 4))
layer_of_every_rank("SigmoidRouting", lambda: SigmoidRouting(4, 2), (..., 4))
layer_of_every_rank("SharedExperts", lambda: SharedExperts(GatedFeedForward(4, 3), MixtureOfExperts(4, 2, 3)), (..., 4))
