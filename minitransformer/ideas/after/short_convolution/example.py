"""The stepper's example of the short convolution."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import short_convolution

EXAMPLES["short-convolution"] = Example(
    "A causal convolution of 4 tokens: each of 2 channels has a filter of 3 weights",
    op(short_convolution, (4, 2), (3, 2), (2,)),
)
ALSO_CALLED |= {"causal-convolution": "short-convolution", "conv1d": "short-convolution"}
