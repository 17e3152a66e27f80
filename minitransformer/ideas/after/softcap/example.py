"""The stepper's example of softcapped scores."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import softcapped_attention

EXAMPLES["softcap"] = Example(
    "Attention of 2 queries to 3 keys, each score within (-1, 1)",
    op(softcapped_attention, (2, 3), (3, 3), (3, 4), cap=1.0),
)
ALSO_CALLED |= {"softcapped-attention": "softcap", "softcapping": "softcap", "gemma-2": "softcap"}
