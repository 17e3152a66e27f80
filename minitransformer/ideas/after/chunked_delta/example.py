"""The stepper's example of the delta rule in a chunk."""

import numpy as np

from ....check.verify.catalogue.case import Random, Setup
from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example
from .op import delta_chunk


def _chunk(r: Random) -> Setup:
    keys = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])  # the second key is like both others
    decay, beta = np.array([-0.1, -0.2, -0.3]), np.array([0.5, 0.9, 0.7])
    q, v, memory = (r.normal(size=shape).round(1) for shape in ((3, 2), (3, 2), (2, 2)))
    return Setup(delta_chunk, (q, keys, v, decay, beta, memory))


EXAMPLES["delta-chunk"] = Example("3 positions of the gated delta rule at once, with keys of width 2", _chunk)
ALSO_CALLED |= {"chunked-delta": "delta-chunk", "gated-delta-net": "delta-chunk"}
