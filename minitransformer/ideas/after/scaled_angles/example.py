"""The stepper's example of YaRN's angles: a pair that keeps its speed, one between, one slowed by the factor."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .layer import ScaledRotary

EXAMPLES["yarn"] = Example(
    "YaRN for texts 4 times as long as the 40 tokens of training: 3 tokens of width 6, from position 50 on",
    op(
        ScaledRotary(100.0, {"kind": "yarn", "factor": 4.0, "trained": 40, "fast": 4.0}), (1, 3, 6), start=50
    ),
)  # fmt: skip
ALSO_CALLED |= {"scaled-angles": "yarn", "scaled-rotary": "yarn", "rope-scaling": "yarn", "long-texts": "yarn"}
