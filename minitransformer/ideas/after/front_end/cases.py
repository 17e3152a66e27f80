"""The cases of a convolutional front end for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import frozen, layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ....core import layers
from . import op as own
from .layer import FrontEnd, StridedConvolution

op = partial(case.op, room=own)
op("strided_convolution", (2, 7, 3), (3, 3, 4), (4,), stride=2)
op("strided_convolution in larger steps", (2, 8, 3), (5, 3, 2), (2,), stride=3)
op("strided_convolution of every position", (2, 6, 3), (3, 3, 4), (4,))
layer("StridedConvolution", lambda: StridedConvolution(3, 4, stride=2), (2, 7, 3))
layer_of_every_rank("StridedConvolution", lambda: StridedConvolution(3, 4, stride=2), (..., 7, 3))


def _front_end(dropout: float = 0.0) -> FrontEnd:
    return FrontEnd(3, 4, 8, layers.LearnedPositions(4, 4), dropout)


layer("FrontEnd", partial(_front_end, 0.3), (2, 3, 7), rng=frozen)
layer_of_every_rank("FrontEnd", _front_end, (..., 3, 6))
