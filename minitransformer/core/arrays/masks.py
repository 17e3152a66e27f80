"""Masks: which query may attend to which key.

A mask is a boolean array and True means "may attend". Masks broadcast to (..., T_q, T_k) and combine with `&`:

    mask = causal_mask(T) & padding_mask(lengths)     # (T, T) & (B, 1, T) -> (B, T, T)

If T_q differs from T_k, the queries are the *last* T_q of the T_k positions, as when a decoder continues from a cache:
query i is at position i + T_k - T_q. A query that may attend to nothing gives a zero output and zero gradients.
"""

import functools

import numpy as np

from .backend import Array, array_module, get_device
from .boundary import check_array, check_integers, check_positive, check_sizes


def _distance(where: str, t_q: int, t_k: int | None, device: str | None) -> Array:
    """Query position minus key position, (T_q, T_k)."""
    t_k = t_q if t_k is None else t_k
    if not type(t_q) is type(t_k) is int or min(t_q, t_k) < 1:
        check_sizes(where, t_q=t_q, t_k=t_k)
    xp = get_device(device).xp
    return (xp.arange(t_q) + (t_k - t_q))[:, None] - xp.arange(t_k)[None, :]


def causal_mask(t_q: int, t_k: int | None = None, device: str | None = None) -> Array:
    """(T_q, T_k): each position may attend to itself and to all before it. Vaswani et al. 2017, section 3.2.3.

    causal_mask(3) is [[1, 0, 0], [1, 1, 0], [1, 1, 1]].
    """
    return _distance("causal_mask", t_q, t_k, device) >= 0


@functools.lru_cache(maxsize=2)
def kept_causal_mask(t_q: int, t_k: int, device: str) -> Array:
    """The same, to be read only: it is kept, since each layer of a stack asks for it again."""
    return causal_mask(t_q, t_k, device)


def local_mask(t_q: int, radius: int, t_k: int | None = None, device: str | None = None) -> Array:
    """(T_q, T_k): each position may attend to itself and to at most `radius` positions on either side.

    This is the restricted self-attention of Vaswani et al. 2017, section 4. local_mask(3, 1) is
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]].
    """
    check_integers("local_mask", radius=radius)
    if radius < 0:
        raise ValueError(f"local_mask: radius must be at least 0, got {radius}")
    distance = _distance("local_mask", t_q, t_k, device)
    return abs(distance) <= radius


def padding_mask(lengths: Array, t_k: int | None = None) -> Array:
    """(B, 1, T_k): the keys of sequence b beyond its length are padding, to which no query may attend.

    lengths: (B,) integers from 0 to T_k, on the device for the mask; T_k defaults to the longest.
    padding_mask([1, 3]) is [[[1, 0, 0]], [[1, 1, 1]]].
    """
    if isinstance(lengths, list | tuple):
        lengths = np.asarray(lengths)
    check_array("padding_mask", "lengths", lengths)
    if lengths.dtype.kind not in "iu" or lengths.ndim != 1:
        raise TypeError(
            f"padding_mask: lengths must be a vector of integers, got {lengths.dtype} of shape {lengths.shape}"
        )
    longest = int(lengths.max())
    t_k = longest if t_k is None else t_k
    check_integers("padding_mask", t_k=t_k)
    if int(lengths.min()) < 0 or longest > t_k:
        raise ValueError(f"padding_mask: every length must be from 0 to {t_k}, got {int(lengths.min())} to {longest}")
    check_positive("padding_mask", t_k=t_k)
    positions = array_module(lengths).arange(t_k)
    return (positions[None, :] < lengths[:, None])[:, None, :]
