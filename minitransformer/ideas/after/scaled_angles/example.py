"""The stepper's example of YaRN's angles: a pair that keeps its speed, two on the ramp, one slowed by the factor."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .layer import ScaledRotary

EXAMPLES["yarn"] = Example(
    "YaRN's angles for texts 4 times as long as the 40 tokens of training: 3 tokens of width 8",
    op(ScaledRotary(50.0, {"kind": "yarn", "factor": 4.0, "trained": 40, "fast": 4.0}), (3, 8)),
)
ALSO_CALLED |= {"scaled-angles": "yarn", "scaled-rotary": "yarn", "rope-scaling": "yarn", "long-texts": "yarn"}
