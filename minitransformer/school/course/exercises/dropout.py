"""Dropout, forward and backward."""

from ..exercise import Arguments, Array, Draw, exercise


def _dropout_forward(draw: Draw) -> Arguments:
    shape = draw.sizes(3 if draw.extreme else 2, 4, 8)
    usual = {1: 1, 2: 60}.get(draw.number) or draw.integer(7, 22)  # a small rate and a large one are always there
    rate = 0.0 if draw.ones else usual / 64.0  # exact in float32, so that u < rate is the same
    u = draw.rng.random(shape)
    below = max(rate - 2.0**-14, 0.0)
    u.flat[:4] = (rate, 0.05, 0.95, below)[: u.size]
    if draw.extreme:
        u.flat[-1] = below
    return draw.gradient(*shape), rate, u


@exercise(_dropout_forward)
def dropout_forward(x: Array, rate: float, u: Array) -> Array:
    """Dropout.

    Set each entry of x to zero with probability `rate`, and scale up the rest so that the expected value does not
    change. The random numbers are given: an entry is dropped where u < rate.

    x, y: of any shape; rate: a number from 0 to below 1; u: uniform numbers from [0, 1), of the shape of x.

    Hint: An entry survives with probability 1 - rate. By what must it be multiplied for the mean to stay x?
    """
    keep = u >= rate
    y = x * keep / (1.0 - rate)
    return y


def _dropout_backward(draw: Draw) -> Arguments:
    x, rate, u = _dropout_forward(draw)
    return draw.gradient(*x.shape), u >= rate, rate


@exercise(_dropout_backward)
def dropout_backward(dy: Array, keep: Array, rate: float) -> Array:
    """Dropout, backward.

    y = dropout(x): where `keep` is False the entry was set to zero, the others were divided by 1 - rate. Given dy,
    return dx.

    dy, dx: of any shape; keep: booleans of the same shape; rate: a number from 0 to below 1.

    Hint: Dropout multiplies each entry by a fixed number. So does its backward pass.
    """
    dx = dy * keep / (1.0 - rate)
    return dx
