"""Restricted self-attention, in blocks. Vaswani et al. 2017, section 4.

Each position attends to positions at most r away. attention.py with a mask computes all T² scores and then hides most
of them. Here most are never computed. The sequence is cut into blocks of r positions. The queries of a block see the
keys of their own block and of its neighbours, which contain every position at most r away.

    keys     | k0 k1 k2 | k3 k4 k5 | k6 k7 k8 |          r is 3
    queries             | q3 q4 q5 |                     see k0 ... k8, and of these q3 may use k0 ... k6

That is T/r blocks of r × 3r scores: 3·r·T in place of T², each a product of width d, so O(r·T·d). A mask hides keys in
a neighbouring block that are more than r away, and positions outside the sequence. Causal attention leaves out the
block ahead: 2·r·T scores.

Backward. Within the blocks it is attention.py. A key is in the windows of up to three blocks, so its gradient is a sum
over them. Windows are copies from the sequence, so each gradient is added at the place where its key came from.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, Rng, array_module, device_of
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32_on_host
from ...core.arrays.masks import local_mask
from ...core.layers import Cost, ScaledDotProduct
from ...core.ops.attention import attention
from ..before.convolution import _collected, _windows


@op(
    "q, k: (..., T, d_k); v, output: (..., T, d_v); mask: booleans that broadcast to (..., T); radius >= 0; "
    "0 <= dropout < 1"
)
@in_float32_on_host
def local_attention(
    q: Array,
    k: Array,
    v: Array,
    radius: int,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Pullback]:
    """Attention of each position to those at most `radius` away, equal to attention with local_mask(T, radius).

    mask: True where a key is real. causal: no key after the query's position. scale, dropout, rng: as in attention.
    backward(doutput) returns (dq, dk, dv).
    """
    xp = array_module(q)
    t, size = q.shape[-2], max(radius, 1)
    real = xp.ones((t,), dtype=bool)
    if mask is not None:
        real = real & mask
    n = -(-t // size)  # blocks
    n_near = 2 if causal else 3  # blocks that a query sees
    behind = (xp.arange(size) + size)[:, None] - xp.arange(n_near * size)[None, :]  # query position minus key position
    within = (abs(behind) <= radius) & (behind >= (0 if causal else -radius))
    allowed = within & _near(real[..., None], n, size, n_near)[..., 0][..., None, :]

    asked = _blocks(q, n, size)
    near_k = _near(k, n, size, n_near)
    near_v = _near(v, n, size, n_near)
    found, attention_backward = attention(asked, near_k, near_v, allowed, False, scale, dropout, rng)
    output = found.reshape(*q.shape[:-2], n * size, v.shape[-1])[..., :t, :]

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dfound = _blocks(doutput, n, size)
        dasked, dnear_k, dnear_v = attention_backward(dfound)
        dq = dasked.reshape(*q.shape[:-2], n * size, q.shape[-1])[..., :t, :]
        dk = _of_near(dnear_k, t, size)
        dv = _of_near(dnear_v, t, size)
        return dq, dk, dv

    return output, backward


def _blocks(x: Array, n: int, size: int) -> Array:
    """(..., T, d) to (..., n, size, d), with zeros after the end."""
    *leading, t, d = x.shape
    padded = array_module(x).zeros((*leading, n * size, d), x.dtype)
    padded[..., :t, :] = x
    return padded.reshape(*leading, n, size, d)


def _near(x: Array, n: int, size: int, n_near: int) -> Array:
    """For each block the one before it, itself, and perhaps the next: (..., T, d) to (..., n, n_near·size, d).

    These are the windows of a convolution over the blocks.
    """
    blocks = _blocks(x, n, size)
    windows = _windows(blocks.reshape(*blocks.shape[:-2], size * x.shape[-1]), n_near, 1, 1)
    return windows.reshape(*blocks.shape[:-2], n_near * size, x.shape[-1])


def _of_near(dnear: Array, t: int, size: int) -> Array:
    """The adjoint of _near: each position adds up the gradients of the windows that it is in."""
    *leading, n, width, d = dnear.shape
    summed = _collected(dnear.reshape(*leading, n, width * d), width // size, 1, 1)
    return summed.reshape(*leading, n * size, d)[..., :t, :]


class Local(ScaledDotProduct):
    """Each position sees itself and `radius` positions on either side; other scores are never computed.

    For self-attention, with a mask that is the same for every query, (..., 1, T).
    """

    @declared("radius > 0")
    def __init__(self, radius: int, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.radius = radius

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        t_q, t_k = q.shape[-2], k.shape[-2]
        if t_q != t_k:  # new tokens with a cache: one row of scores for each
            close = local_mask(t_q, self.radius, t_k, device_of(q).name)
            return super().__call__(q, k, v, close if mask is None else mask & close, causal, rng)
        return local_attention(q, k, v, self.radius, _of_keys(mask), causal, self.scale, self.dropout, rng)

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """In blocks of `radius` tokens; each sees itself, the one before it and the one after it."""
        blocks = -(-length // self.radius)
        asked, near = n_heads * blocks * self.radius, 3 * self.radius
        weights = (3 if self.dropout else 1) * asked * near
        kept = n_heads * length * d_k + asked * d_k + 3 * asked * (d_k + d_v) + weights
        return Cost(flops=batch * 2 * asked * near * (d_k + d_v), kept=batch * kept)


def _of_keys(mask: Array | None) -> Array | None:
    """A mask (..., 1, T) of keys without its axis of queries."""
    if mask is not None and mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(
            "Local: the mask must be the same for every query, (..., 1, T), such as padding_mask; "
            f"got shape {mask.shape}"
        )
    return mask if mask is None or mask.ndim < 2 else mask[..., 0, :]
