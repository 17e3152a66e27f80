"""The stepper's example of a state space."""

import numpy as np

from ....check.verify.catalogue.case import Random, Setup
from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example
from .op import state_space


def _text(r: Random) -> Setup:
    q, k, v, state = (r.normal(size=shape).round(1) for shape in ((3, 2), (3, 2), (3, 2), (2, 2)))
    return Setup(state_space, (q, k, v, np.array([-0.1, -0.5, -2.0]), state), {"chunk": 2})


EXAMPLES["state-space"] = Example("3 positions of a state space that fades, in chunks of 2, with a state before", _text)
ALSO_CALLED |= {"mamba": "state-space", "mamba2": "state-space", "ssd": "state-space"}
