"""What the loop of decoding.py is given for a token, kept from one token to the next.

Most of it stays the same: a token changes the lengths of the caches. So the tree of parts is read once; a sub-layer is
read again when an attribute in it has become another object, when its cache needs more room, and for each token if its
scores have a bias or its cache forgets. The loop itself reads what the arrays contain, which may change.
"""

import itertools
import operator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from . import parts


class Plan:
    """The arguments for some layers and their caches: first, rows, lengths; and how many numbers the loop reads."""

    first: Any
    rows: Array
    lengths: Array
    numbers: int

    def __init__(self, shape: tuple[int, ...], n_layers: int, n_attentions: int) -> None:
        self.sizes = shape, n_layers, n_attentions
        self.states = np.empty((n_layers * (n_attentions + 1) + 1, shape[0], shape[2]), np.float32)
        self.sublayers: list[list[Any]] = [[] for _ in range(n_layers)]
        self._rooms: dict[Any, Any] = {}

    def read(self, loops: Any, x: Array, layers: Any, caches: Any, memory: Array | None, masks: Any) -> None:
        """Read what has changed. Raises parts.NoForm; no cache has then changed."""
        before = [*itertools.chain(*self.sublayers)]
        for i, (layer, own) in enumerate(zip(layers, caches, strict=True)):
            given: list[Any] = [(layer.self_attention, own[0], None, masks[0])]
            given += [(layer.cross_attention, own[1], memory, masks[1])] if len(own) == 2 else []
            kept = self.sublayers[i] or [None] * (len(own) + 1)
            self.sublayers[i] = [
                sub if sub and sub.holds(*each) else _SubLayer(loops, self._rooms, x, *each)
                for sub, each in zip(kept, [*given, (layer.feed_forward,)], strict=True)
            ]
        now = [*itertools.chain(*self.sublayers)]
        if len(before) < len(now) or any(map(operator.is_not, before, now)):
            *attentions, network = (sub.given for sub in self.sublayers[0])
            self.first, self.numbers = (tuple(attentions), network), sum(sub.numbers for sub in now)
            self.rows = np.array([[*itertools.chain(*(sub.row for sub in subs))] for subs in self.sublayers])
        self.lengths = np.array([[*map(parts.length_of, own, (None, memory))] for own in caches])


class _SubLayer:
    """What parts.py returns for a sub-layer, and the objects that it was read from."""

    def __init__(
        self, loops: Any, rooms: Any, x: Array, residual: Any, cache: Any = None, memory: Any = None, mask: Any = None
    ) -> None:
        self._is_fixed = type(cache) is not parts.RollingCache and mask is None
        given = (loops, rooms if self._is_fixed else {}, x, residual)
        if cache is None:
            self.given, self.numbers = parts.network(*given)
        else:
            self.given, self.numbers = parts.attention(*given, cache, memory, mask)
            self._is_fixed = self._is_fixed and not self.given[5].size  # the bias
        self.row = [*parts.numbers_of(self.given)]
        self._attributes: dict[int, dict[str, Any]] = {}
        self._find(residual)
        self._read = self._objects(residual, cache, memory)

    def _find(self, item: Any) -> None:
        """Note the attributes of an object, and of all in it."""
        attributes = item if isinstance(item, dict) else getattr(item, "__dict__", {})
        if not isinstance(item, type) and id(attributes) not in self._attributes:
            if attributes:
                self._attributes[id(attributes)] = attributes
            for each in item if isinstance(item, list | tuple) else attributes.values():
                self._find(each)

    def _objects(self, residual: Any, cache: Any, memory: Any) -> list[Any]:
        kept = () if cache is None else (cache.memory, *cache.buffers())
        return [residual, memory, *kept, *itertools.chain(*map(dict.values, self._attributes.values()))]

    def holds(self, residual: Any, cache: Any = None, memory: Any = None, mask: Any = None) -> bool:
        """Whether the loop may be given the same again."""
        if not self._is_fixed or mask is not None:
            return False
        if cache is not None and memory is None and cache.length == cache.buffers()[0].shape[-2]:
            return False
        now = self._objects(residual, cache, memory)
        return len(now) == len(self._read) and all(map(operator.is_, now, self._read))
