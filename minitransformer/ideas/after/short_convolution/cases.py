"""The cases of the short convolution for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from . import op as own
from .layer import ShortConvolution

op = partial(case.op, room=own)
op("short_convolution", (2, 5, 6), (4, 6), (6,), (2, 3, 6))
op("short_convolution from the start of a text", (2, 5, 3), (4, 3))
op("short_convolution longer than the text", (2, 2, 3), (4, 3), (3,))
layer("ShortConvolution with silu", lambda: ShortConvolution(3, 4, activation="silu"), (2, 5, 3))
layer_of_every_rank("ShortConvolution", lambda: ShortConvolution(4, 3), (..., 5, 4))
