"""The cases of the quick GELU for `minitransformer check`."""

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import layer
from ....core import layers
from . import op as own

case.op("quick_gelu", (3, 5), room=own)
layer("FeedForward with a quick GELU", lambda: layers.FeedForward(4, 6, own.quick_gelu), (2, 3, 4))
