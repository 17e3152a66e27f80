"""The stepper's example of scaled angles."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .layer import ScaledRotary

EXAMPLES["yarn"] = Example(
    "Rotary positions with YaRN's angles: 3 tokens of width 6, trained on 30 tokens, for texts of 120",
    op(ScaledRotary(10.0, {"kind": "yarn", "factor": 4.0, "trained": 30, "fast": 4.0}), (3, 6)),
)
ALSO_CALLED |= {"scaled-angles": "yarn", "rope-scaling": "yarn", "longrope": "yarn"}
