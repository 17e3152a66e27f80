"""What the loop of decoding.py is given for a token, kept from one token to the next.

Most of it stays the same: a token changes the lengths of the caches. So the layers are read once, and again when an
attribute in them has become another object. What depends on a cache is read again when the cache needs more room, and
for each token if the scores have a bias or the cache forgets. The loop itself reads what the arrays contain, which may
change.
"""

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from . import parts


class Plan:
    """The loop's arguments for some layers and their caches: states, first, rows, lengths. Raises parts.NoForm."""

    first: Any
    rows: Array
    lengths: Array

    def __init__(self, loops: Any, x: Array, layers: Any, memory: Array | None) -> None:
        rooms: dict[Any, Any] = {}
        self.attentions, self._networks = [], []
        self.numbers = 0  # how many the loop reads, of the weights
        for layer in layers:
            residuals = [layer.self_attention] + ([] if memory is None else [layer.cross_attention])
            self.attentions.append([_Attention(loops, rooms, x, each, i == 0) for i, each in enumerate(residuals)])
            network, numbers = parts.network(loops, rooms, x, layer.feed_forward)
            self._networks.append((network, [*parts.numbers_of(network)]))
            self.numbers += numbers + sum(each.numbers for each in self.attentions[-1])
        n_states = len(layers) * (1 + len(self.attentions[0])) + 1
        self.states = np.empty((n_states, x.shape[0], x.shape[2]), np.float32)
        self._attributes: dict[int, dict[str, Any]] = {}
        self._find(layers)
        self._about, self._objects = (x.shape, memory is None), [*self._now(layers)]

    def _find(self, item: Any) -> None:
        """Note the attributes of an object, and of all in it."""
        attributes = item if isinstance(item, dict) else getattr(item, "__dict__", {})
        if not isinstance(item, type) and id(attributes) not in self._attributes:
            if attributes:
                self._attributes[id(attributes)] = attributes
            for each in item if isinstance(item, list | tuple) else attributes.values():
                self._find(each)

    def _now(self, layers: Any) -> Iterator[Any]:
        return itertools.chain(layers, *map(dict.values, self._attributes.values()))

    def holds(self, x: Array, layers: Any, memory: Array | None) -> bool:
        """Whether it is about this call: nothing in the layers has become another object."""
        if self._about != (x.shape, memory is None):
            return False
        n_now = len(layers) + sum(map(len, self._attributes.values()))
        return n_now == len(self._objects) and all(map(operator.is_, self._now(layers), self._objects))

    def read(self, caches: Any, memory: Array | None, masks: Any) -> None:
        """Read what has changed in the caches."""
        changed, lengths = False, []
        for attentions, own in zip(self.attentions, caches, strict=True):
            for attention, cache, *given in zip(attentions, own, (None, memory), masks, strict=False):
                changed = attention.read(cache, *given) or changed
                lengths.append(parts.length_of(cache, given[0]))
        self.lengths = np.array(lengths).reshape(len(caches), -1)
        if changed:
            layers = zip(self.attentions, self._networks, strict=True)
            self.rows = np.array([[*itertools.chain(*(each.row for each in some), row)] for some, (_, row) in layers])
            self.first = tuple((each.fixed, each.state) for each in self.attentions[0]), self._networks[0][0]


class _Attention:
    """What parts.py returns for an attention and for its cache."""

    row: list[int]

    def __init__(self, loops: Any, rooms: Any, x: Array, residual: Any, is_new: bool) -> None:
        part, self.fixed, self.numbers = parts.attention(loops, rooms, x, residual, is_new)
        self._given, self._row = (loops, rooms, len(x), part), [*parts.numbers_of(self.fixed)]
        self.state: Any = None
        self._lasting: tuple[Any, ...] = ()  # what its state was read from, if that may last

    def read(self, cache: Any, memory: Array | None, mask: Any) -> bool:
        """Read the cache, unless the loop may be given the same again. Returns whether it did."""
        now = cache.memory, memory, *cache.buffers()
        has_room = memory is not None or cache.length < now[2].shape[-2]
        if mask is None and has_room and self._lasting and all(map(operator.is_, now, self._lasting)):
            return False
        self.state = parts.state(*self._given, cache, memory, mask)
        fixed = type(cache) is not parts.RollingCache and mask is None and not self.state[2].size  # the bias
        self._lasting = (cache.memory, memory, *cache.buffers()) if fixed else ()
        self.row = [*self._row, *parts.numbers_of(self.state)]
        return True
