"""The square of a ReLU, an activation of feed-forward networks.

So et al. 2021, "Primer: Searching for Efficient Transformers for Language Modeling", section 3, found it by a search:

    y = max(x, 0)²

Backward. Where x > 0 the slope of x² is 2x; where x < 0 nothing flows:

    dx = dy * 2 * max(x, 0)

At 0 both sides have the slope 0, so unlike ReLU it has no kink. Like ReLU it is exactly zero on half of all inputs.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32


@op("x, y: (...)")
@in_float32
def squared_relu(x: Array) -> tuple[Array, Pullback]:
    """max(x, 0)², element-wise. backward(dy) returns dx. So et al. 2021, "Primer", section 3."""
    xp = array_module(x)
    kept = xp.maximum(x, 0.0)
    y = kept * kept

    def backward(dy: Array) -> Array:
        dx = dy * 2.0 * kept
        return dx

    return y, backward
