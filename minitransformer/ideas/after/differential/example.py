"""The stepper's example of differential attention."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import differential_attention

EXAMPLES["differential"] = Example(
    "The difference of two attentions: 2 queries, 3 keys, each in two halves of width 2",
    op(differential_attention, (2, 4), (3, 4), (3, 2), ()),
)
ALSO_CALLED |= {"differential-attention": "differential", "diff-transformer": "differential"}
