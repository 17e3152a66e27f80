"""The stepper's example of routing by sigmoids."""

import numpy as np

from ....check.verify.catalogue.case import Random, Setup
from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .layer import SigmoidRouting


def _routing(r: Random) -> Setup:
    route = SigmoidRouting(6, k=2, groups=3, kept=2, factor=2.5)
    route.bias.value = np.array([0.2, -0.1, 0.0, 0.3, -0.2, 0.1])
    return op(route, (2, 6))(r)


EXAMPLES["routing"] = Example(
    "Routing by sigmoids: each of 2 tokens goes to 2 of 6 experts, from the best 2 of 3 groups", _routing
)
ALSO_CALLED |= {"sigmoid-routing": "routing", "sigmoid-gates": "routing", "deepseek-v3": "routing"}
