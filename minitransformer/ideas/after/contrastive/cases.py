"""The cases of a contrastive loss for `minitransformer check`."""

from functools import partial

from ....check.verify.catalogue import case
from . import op as own

op = partial(case.op, room=own)
op("unit_length", (3, 5))
op("scaled_cosines", (3, 5), (4, 5), ())
op("contrastive_loss", (4, 5), (4, 5), ())
