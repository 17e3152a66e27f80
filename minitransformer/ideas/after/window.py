"""A window to the left, around a part that mixes, and a cache that forgets the tokens which no window reaches any more.

    query i sees keys i - width + 1, ..., i, and the first `always` keys

The window is that of Beltagy et al. 2020, "Longformer"; the first tokens are the sinks of Xiao et al. 2024, "Efficient
Streaming Language Models with Attention Sinks", section 3.2: models trained to attend to them fail without them.
"""

from __future__ import annotations

import copy
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module, device_of
from ...core.arrays.boundary import check_flags, check_shape
from ...core.arrays.declared import declared
from ...core.arrays.masks import local_mask
from ...core.layers import KeyValueCache, Module, ScaledDotProduct
from .around import Around
from .local import Local


class Window(Around):
    """Each query sees the last `width` keys, its own included, and the first `always`. inner: a part that mixes."""

    @declared("width > 0; always >= 0")
    def __init__(self, width: int, inner: Module | None = None, always: int = 0) -> None:
        if isinstance(inner, Local):
            raise ValueError("Window: the part inside must not be restricted itself; give either Local or Window")
        self.width, self.always = width, always
        self.inner = ScaledDotProduct() if inner is None else inner

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv). A window looks back, so it is causal."""
        check_flags("Window", causal=causal)
        near = local_mask(q.shape[-2], self.width - 1, k.shape[-2], device_of(q).name)
        if self.always:
            near = near | (array_module(q).arange(k.shape[-2]) < self.always)
        return self.inner(q, k, v, near if mask is None else mask & near, True, rng)

    def new_cache(self) -> KeyValueCache:
        """A rolling cache; a whole one beside `always`, whose keys would move nearer in a rolling one."""
        return KeyValueCache() if self.always else RollingCache(self.width)

    def head(self, i: int) -> Window:
        """The part that mixes only head i."""
        return Window(self.width, self.inner.head(i), self.always)


class RollingCache(KeyValueCache):
    """The last `window` tokens and the first `sinks`: its memory is constant.

    Keys are kept before rotation, because the rotation uses their positions in the cache, and these change (Xiao et
    al., section 3.2).
    """

    @declared("window > 0; sinks >= 0")
    def __init__(self, window: int, sinks: int = 0) -> None:
        super().__init__()
        self.window, self.sinks = window, sinks

    turns_late = True

    def around(self, mix: Any) -> Any:
        """The part that mixes, inside the window. Raises ValueError for one with another window."""
        return _within(mix, self)

    @property
    def length(self) -> int:
        """The number of tokens read so far. Setting it raises ValueError: forgotten tokens cannot be restored."""
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        raise ValueError("RollingCache: tokens cannot be taken back; start a new cache")

    def extend(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Append the keys and values of new tokens. Returns the kept ones with the new ones, then forgets old ones."""
        xp = array_module(keys)
        both = [keys, values] if self._keys is None else []
        if not both:
            for old, new in zip(self.read(), (keys, values), strict=True):
                check_shape("RollingCache", "the new ones", new, (*old.shape[:-2], new.shape[-2], old.shape[-1]))
                both.append(xp.concatenate([old, new], axis=-2))
        places = xp.arange(both[0].shape[-2])
        kept = places[(places < self.sinks) | (places >= len(places) - self.window)]
        self._keys, self._values = (x[..., kept, :] for x in both)  # copies: a view would keep all
        self._length += keys.shape[-2]
        return both[0], both[1]

    def read(self) -> tuple[Array, Array]:
        """The kept keys and values."""
        return self.buffers()

    def of_kept(self, mask: Array, n: int) -> Array:
        """A mask of all keys so far, cut to the n keys that `extend` returned: the first and the last ones."""
        total = mask.shape[-1]
        if total in (1, n):
            return mask
        return array_module(mask).concatenate([mask[..., : self.sinks], mask[..., total - n + self.sinks :]], axis=-1)


def _within(mix: Any, cache: RollingCache) -> Any:
    """The part that mixes, inside the window of a cache."""
    if isinstance(mix, Local) or (isinstance(mix, Window) and mix.width != cache.window):
        other = f"with a window of {mix.width}" if isinstance(mix, Window) else "of restricted attention"
        raise ValueError(f"RollingCache: the window of {cache.window} does not fit a layer {other}")
    if isinstance(mix, Window):
        return Window(mix.width, mix.inner, cache.sinks)
    if isinstance(mix, Around):
        around = copy.copy(mix)
        around.inner = _within(mix.inner, cache)
        return around
    return Window(cache.window, mix, cache.sinks)
