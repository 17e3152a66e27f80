"""The stepper's example of a contrastive loss."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import contrastive_loss

EXAMPLES["contrastive"] = Example(
    "Three pictures and their three texts as vectors of width 2: which belong together?",
    op(contrastive_loss, (3, 2), (3, 2), ()),
)
ALSO_CALLED |= {"contrastive-loss": "contrastive", "clip": "contrastive", "info-nce": "contrastive"}
