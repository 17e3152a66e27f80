"""The stepper's example of the delta rule with a decay for each channel."""

import numpy as np

from ....check.verify.catalogue.case import Random, Setup
from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example
from .op import channel_chunk


def _chunk(r: Random) -> Setup:
    keys, beta = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.array([0.5, 0.9, 0.7])
    decay = np.array([[-0.1] * 3, [-2.0] * 3])  # the first channel lasts, the second forgets
    q, v, memory = (r.normal(size=shape).round(1) for shape in ((3, 2), (3, 2), (2, 2)))
    return Setup(channel_chunk, (q, keys, v, decay, beta, memory))


EXAMPLES["channel-chunk"] = Example("3 positions of Kimi's delta rule at once; the second channel fades faster", _chunk)
ALSO_CALLED |= {"kimi-delta": "channel-chunk", "channel-delta": "channel-chunk"}
