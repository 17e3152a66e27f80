"""The cases of the squared ReLU for `minitransformer check`."""

from functools import partial

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import layer
from ....core import layers
from . import op as own

op = partial(case.op, room=own)
op("squared_relu", (3, 5))
op("squared_relu at zero", lambda r: np.concatenate([[0.0, 1e-7, -1e-7], r.normal(size=4)]))
layer("FeedForward with a squared ReLU", lambda: layers.FeedForward(4, 7, own.squared_relu, bias=False), (2, 3, 4))
