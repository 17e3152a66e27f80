"""The exercise on scaled angles."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _angles(draw: Draw) -> Arguments:
    width = 2 if draw.ones else 2 * draw.integer(8, 14)
    base = draw.uniform(5e4, 5e5) if draw.extreme else draw.uniform(800.0, 9000.0)
    trained = draw.integer(3000, 9000) if draw.extreme else draw.integer(200, 900)
    return (
        base,
        width,
        draw.uniform(2.0, 60.0 if draw.extreme else 8.0),
        trained,
        draw.uniform(9.0, 20.0),
        draw.uniform(1.0, 2.0),
    )


@exercise(_angles)
def yarn_angles(base: float, width: int, factor: float, trained: int, fast: float, slow: float) -> tuple[Array, float]:
    """YaRN's angles.

    Rotary positions turn pair i of a head by ω_i = base^(-2i/width) at each token, i = 0, ..., width/2 - 1. A model
    that was trained on texts of `trained` tokens is to read texts `factor` times as long. YaRN lets the fast pairs
    turn as before and slows the slow ones down by the factor:

        frequency_i = γ_i ω_i + (1 - γ_i) ω_i / factor

    In a training text, pair i comes round (trained ω_i / 2π) times. Let i(r) be the number i, not rounded, of a pair
    that comes round r times. γ is 1 up to i(fast), 0 from i(slow) on, and a straight line over i between them. The
    scores are multiplied by m², with m = 0.1 ln(factor) + 1, as the cosines and sines are by m.

    Return the frequencies, (width/2,), and m. width is even; fast > slow.

    Hint: Solve trained · base^(-2i/width) / 2π = r for i: take the logarithm of both sides. np.clip cuts a line off at
    0 and at 1.
    """
    i = np.arange(width // 2)
    turns = base ** (-2.0 * i / width)
    first, last = (width * np.log(trained / (2.0 * np.pi * r)) / (2.0 * np.log(base)) for r in (fast, slow))
    keep = 1.0 - np.clip((i - first) / (last - first), 0.0, 1.0)
    frequencies = keep * turns + (1.0 - keep) * turns / factor
    m = 0.1 * np.log(factor) + 1.0
    return frequencies, m
