"""The key-value cache: the keys and values of the tokens that a decoder has already read.

When a decoder writes one token after another, the keys and values of the earlier tokens never change. If they are kept,
each new token costs one row of attention instead of a new pass over the whole prefix. A cache only keeps them;
`attend` is what multi-head attention computes with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.backend import Array, array_module
from ..arrays.boundary import check_ids, check_integers, check_sizes


class KeyValueCache:
    """Keys and values of one attention layer, (..., H, length, d), in buffers that double when they are full.

    memory: the array from which cross-attention computed them; None for self-attention.
    """

    def __init__(self) -> None:
        self._length = 0
        self.memory: Array | None = None
        self._keys: Array | None = None
        self._values: Array | None = None

    @property
    def length(self) -> int:
        """The number of tokens in the cache. Setting a smaller number forgets the last ones.

        Raises ValueError for a number below 0 or above the room in the buffers, because compiled loops read and write
        there.
        """
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        check_integers("KeyValueCache", length=length)
        room = 0 if self._keys is None else self._keys.shape[-2]  # the values have as much
        if not 0 <= length <= room:
            raise ValueError(f"KeyValueCache: length must be from 0 to {room}, the room in its buffers, got {length}")
        self._length = int(length)

    turns_late = False  # whether it keeps keys as they were before their turn, since their places in it change

    def around(self, mix: Any) -> Any:
        """The part that mixes, as it is beside this cache. Raises ValueError for one that does not fit."""
        return mix

    def of_kept(self, mask: Array, n: int) -> Array:
        """A mask of all keys so far, cut to the n keys that `extend` returned."""
        return mask

    def extend(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Append the keys and values of new tokens, (..., H, T_new, d). Returns all of them, as views."""
        start, stop = self.length, self.length + keys.shape[-2]
        self._keys, self._values = _grown(self._keys, keys, start, stop), _grown(self._values, values, start, stop)
        self._keys[..., start:stop, :] = keys
        self._values[..., start:stop, :] = values
        self.length = stop
        return self.read()

    def make_room(self, new: Array) -> tuple[Array, Array]:
        """The whole buffers, with room for new keys and values. The caller writes these and adds them to `length`.

        new: any array of their shape, (..., H, T_new, d), and dtype.
        """
        start, stop = self.length, self.length + new.shape[-2]
        self._keys, self._values = _grown(self._keys, new, start, stop), _grown(self._values, new, start, stop)
        return self._keys, self._values

    def buffers(self) -> tuple[Array, Array]:
        """The whole buffers; read() returns their filled part."""
        if self._keys is None or self._values is None:
            raise ValueError("the key-value cache is empty")
        return self._keys, self._values

    def select(self, rows: Array, memory: Array | None = None) -> None:
        """Replace the batch by these of its rows, in this order; a row may occur more than once.

        rows: (N,) integers on the device of the cache. memory: for cross-attention, the memory of the new rows, which
        later calls pass in. Raises ValueError for a missing row and for an empty cache.
        """
        keys, _ = self.read()
        if keys.ndim < 4:
            raise ValueError(f"the key-value cache has no batch axis to select from: its keys have shape {keys.shape}")
        check_ids("KeyValueCache", "rows", rows, keys.shape[0], like=keys)
        self._keys, self._values = self._keys[rows], self._values[rows]  # type: ignore[index]  # read() checked this
        self.memory = memory

    def read(self) -> tuple[Array, Array]:
        """All keys and values so far, as views of (..., H, length, d)."""
        keys, values = self.buffers()
        return keys[..., : self.length, :], values[..., : self.length, :]


def _grown(buffer: Array | None, new: Array, used: int, needed: int) -> Array:
    if buffer is not None and buffer.shape[:-2] != new.shape[:-2]:
        raise ValueError(
            f"the key-value cache holds batch and heads {buffer.shape[:-2]}, but the new ones are {new.shape[:-2]}; "
            "start a new cache for another batch"
        )
    if buffer is not None and buffer.shape[-1] != new.shape[-1]:
        raise ValueError(
            f"the key-value cache holds vectors of width {buffer.shape[-1]}, but the new ones have width "
            f"{new.shape[-1]}; start a new cache for another layer"
        )
    if buffer is not None and needed <= buffer.shape[-2]:
        return buffer
    *leading, _, d = new.shape
    larger = array_module(new).empty((*leading, max(16, 2 * needed), d), dtype=new.dtype)
    if buffer is not None:
        larger[..., :used, :] = buffer[..., :used, :]
    return larger


def attend(
    attention: Any,
    cache: KeyValueCache,
    x: Array,
    memory: Array | None,
    mask: Array | None,
    causal: bool,
    positions: Array | None,
) -> Array:
    """The heads of a MultiHeadAttention for new tokens x, (..., H, T_new, d_v).

    The keys and values of new tokens join those in the cache; those of a memory are computed once.
    """
    if cache.memory is not None and cache.memory is not memory:
        raise ValueError("MultiHeadAttention: the cache holds another memory; start a new cache for a new source")
    mix = cache.around(attention.mix)  # first: where it does not fit, the cache stays as it was
    if memory is None or cache.length == 0:
        source, start = (x, cache.length) if memory is None else (memory, 0)
        turn = None if cache.turns_late else attention.turn_key
        new_k = attention.project(attention.key, source, attention.d_k, turn, start, positions)[0]
        k, v = cache.extend(new_k, attention.project(attention.value, source, attention.d_v)[0])
        cache.memory = memory
    else:
        k, v = cache.read()  # the memory does not change while its translation is written
    start = 0 if memory is not None else k.shape[-2] - x.shape[-2]
    if cache.turns_late:
        positions = None  # each token counts from the first one in the cache
        k = k if attention.turn_key is None else attention.turn_key(k)[0]
    q = attention.project(attention.query, x, attention.d_k, attention.turn_query, start, positions)[0]
    kept = None if mask is None else cache.of_kept(mask, k.shape[-2])
    return mix(q, k, v, kept, causal or cache.turns_late, None)[0]


class Cache:
    """The caches of a whole stack: for each layer one for self-attention, and possibly one for cross-attention.

    kind: a factory for the self-attention caches. `of` takes the caches of layers that differ.
    """

    def __init__(self, n_layers: int, kind: Callable[[], Any] = KeyValueCache) -> None:
        check_sizes("Cache", n_layers=n_layers)
        self.self_attention: list[Any] = [kind() for _ in range(n_layers)]
        self.cross_attention = [KeyValueCache() for _ in range(n_layers)]

    @classmethod
    def of(cls, caches: Sequence[Any]) -> Cache:
        """A cache of these, one for the self-attention of each layer."""
        cache = cls(len(caches))
        cache.self_attention = list(caches)
        return cache

    @property
    def length(self) -> int:
        """The number of tokens read so far: the position of the next one."""
        for layer in self.self_attention:
            if layer is not None:
                return layer.length
        raise ValueError("Cache: no layer of this stack keeps what it has read, so it cannot read token by token")

    def select(self, rows: Array, memory: Array | None = None) -> None:
        """Keep these rows of the batch, as when sentences end or beams continue other beams. rows: (N,) integers.

        memory: (N, T_k, D), the cross-attention memory of the new rows. Without it the cross-attention stays unchanged.
        That is right if there is none, or if rows only change places with rows that read the same memory.
        """
        for layer in self.self_attention:
            if layer is not None:
                layer.select(rows)
        if memory is not None:
            for layer in self.cross_attention:
                if layer.length:  # one without cross-attention keeps none
                    layer.select(rows, memory)


def no_backward(*_: Array) -> Array:
    """The pullback of a call with a cache: raises RuntimeError."""
    raise RuntimeError(
        "a call with a key-value cache is for inference and has no backward pass; call without the cache"
    )


def check_cache(where: str, cache: Cache | None, n_layers: int) -> None:
    """Require the cache of a stack of n_layers, or None."""
    if cache is not None and not isinstance(cache, Cache):
        raise TypeError(f"{where}: cache must be a Cache({n_layers}), got {type(cache).__name__}")
    if cache is not None and len(cache.self_attention) != n_layers:
        raise ValueError(f"{where}: the cache is for {len(cache.self_attention)} layers, but there are {n_layers}")


def check_layer_cache(where: str, cache: object, rng: object) -> None:
    """Require a key-value cache, and no dropout with it."""
    if not isinstance(cache, KeyValueCache):
        raise TypeError(f"{where}: cache must be a KeyValueCache, got {type(cache).__name__}")
    if rng is not None:
        raise ValueError(f"{where}: a cache is for inference, so there is no dropout: leave out rng")
