"""The stepper's example of patches."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import patches

EXAMPLES["patches"] = Example(
    "An image of 2 channels and 4 × 6 pixels, cut into four tiles of 2 × 3", op(patches, (2, 4, 6), p=2, q=3)
)
ALSO_CALLED |= {"patch": "patches", "vit": "patches", "vision-transformer": "patches"}
