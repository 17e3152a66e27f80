"""Rotation by given cosines and sines, of a part of the width. Su et al. 2021, "RoFormer", section 3.2.

`rotary` rotates the whole of each vector by the paper's angles. Later models choose other angles (stretched, for longer
texts), or rotate only the first r of the d numbers, so that the others do not depend on the position (Black et al.
2022, "GPT-NeoX-20B", sec. 2.1.1). This op takes the cosines and sines for the pairs (a, b) among the first r numbers:

    a' = a cos θ - b sin θ
    b' = a sin θ + b cos θ

Backward rotates dy back, and passes on the gradients of the other numbers unchanged:

    da =  da' cos θ + db' sin θ
    db = -da' sin θ + db' cos θ

cos θ multiplied a in a' and b in b', so its gradient is da' a + db' b; likewise that of sin θ is db' a - da' b. Where
one cosine served several rows, its gradient is summed over them.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32
from ...core.ops.attention import _summed_to
from .rotary import _pairs, _together


@op("x, y: (..., T, d); cos: broadcasts to (..., T, P); sin: broadcasts to (..., T, P)")
@in_float32
def rotate(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> tuple[Array, Pullback]:
    """Rotate the first r of the d numbers of each row, pair by pair, P = r/2.

    interleaved: pair i is
    (x[2i], x[2i + 1]), else (x[i], x[i + r/2]). backward(dy) returns (dx, dcos, dsin). Su et al. 2021.
    """
    xp = array_module(x)
    width = 2 * cos.shape[-1] if cos.ndim else 0
    if cos.shape != sin.shape or not 0 < width <= x.shape[-1]:
        raise ValueError(
            "rotate: x must be (..., T, d), and cos and sin of one shape that broadcasts to (..., T, r/2), r at most "
            f"d; got x {x.shape}, cos {cos.shape}, sin {sin.shape}"
        )
    xa, xb = _pairs(x[..., :width], interleaved)
    turned = _together(xa * cos - xb * sin, xa * sin + xb * cos, interleaved)
    y = xp.concatenate([turned, x[..., width:]], axis=-1)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dya, dyb = _pairs(dy[..., :width], interleaved)
        back = _together(dya * cos + dyb * sin, dyb * cos - dya * sin, interleaved)
        dx = xp.concatenate([back, dy[..., width:]], axis=-1)
        dcos = _summed_to(dya * xa + dyb * xb, cos.shape)
        dsin = _summed_to(dyb * xa - dya * xb, sin.shape)
        return dx, dcos, dsin

    return y, backward
