"""The cases of a window on both sides for `minitransformer check`."""

from typing import Any

import numpy as np

from ....check.verify.catalogue.case import layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..local import Local
from .layer import BothSides

_QKV = (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3)
_REAL = np.array([[True] * 5, [False, True, True, True, True]])[:, None, None]


def _in_blocks(mix: Any, *qkv: Any, **options: Any) -> Any:
    """The same in blocks."""
    return Local(mix.radius)(*qkv, **options)[0]


layer("BothSides", lambda: BothSides(1), *_QKV, truth=_in_blocks)
layer("BothSides masked", lambda: BothSides(2), *_QKV, mask=_REAL, truth=_in_blocks)
layer_of_every_rank("BothSides", lambda: BothSides(1), (..., 5, 4), (..., 5, 4), (..., 5, 3))
