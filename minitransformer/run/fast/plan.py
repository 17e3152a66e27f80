"""What the loop of decoding.py is given for a token, kept from one token to the next.

Most of it stays the same: a token changes the lengths of the caches. So the tree of parts is read once; a sub-layer is
read again when an attribute in it has become another object, when its cache needs more room, and for each token if its
scores have a bias or its cache forgets. The loop itself reads what the arrays contain, which may change.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from . import parts


class Plan:
    """The arguments for some layers and their caches; `read` keeps them right."""

    def __init__(self, shape: tuple[int, ...], n_layers: int, n_attentions: int) -> None:
        self.sizes = shape, n_layers, n_attentions
        self.sublayers: list[list[_SubLayer | None]] = [[None] * (n_attentions + 1) for _ in range(n_layers)]
        self.states = np.empty((n_layers * (n_attentions + 1) + 1, shape[0], shape[2]), np.float32)
        self._rooms: dict[Any, Any] = {}

    def read(self, loops: Any, x: Array, layers: Any, caches: Any, memory: Array | None, masks: Any) -> None:
        """Read what has changed. Raises parts.NoForm; no cache has then changed."""
        changed = False
        for layer, own, subs in zip(layers, caches, self.sublayers, strict=True):
            given: list[Any] = [(layer.self_attention, own[0], None, masks[0])]
            given += [(layer.cross_attention, own[1], memory, masks[1])] if len(own) == 2 else []
            for i, each in enumerate([*given, (layer.feed_forward,)]):
                sub = subs[i]
                if sub is None or not sub.holds(*each):
                    subs[i], changed = _SubLayer(loops, self._rooms, x, *each), True
        if changed:
            first = [each.given for each in self.sublayers[0]]  # type: ignore[union-attr]
            self.first = tuple(first[:-1]), first[-1]
            self.rows = np.array([[n for each in subs for n in each.row] for subs in self.sublayers])  # type: ignore[union-attr]
            self.numbers = sum(each.numbers for subs in self.sublayers for each in subs)  # type: ignore[union-attr]
        self.lengths = np.array([[parts.length_of(*pair) for pair in zip(own, (None, memory))] for own in caches])


class _SubLayer:
    """What parts.py returns for a sub-layer, and the objects that it was read from."""

    def __init__(
        self, loops: Any, rooms: Any, x: Array, residual: Any, cache: Any = None, memory: Any = None, mask: Any = None
    ) -> None:
        self.is_fixed = type(cache) is not parts.RollingCache
        rooms = rooms if self.is_fixed else {}
        if cache is None:
            self.given, self.numbers = parts.network(loops, rooms, x, residual)
        else:
            self.given, self.numbers = parts.attention(loops, rooms, x, residual, cache, memory, mask)
            self.is_fixed = self.is_fixed and not self.given[5].size
        self.row = [*parts.numbers_of(self.given)]
        self._attributes: dict[int, dict[str, Any]] = {}
        self._find(residual)
        self._seen = self._objects(residual, cache, memory)

    def _find(self, item: Any) -> None:
        """Note the attributes of an object and of all in it."""
        attributes = item if isinstance(item, dict) else getattr(item, "__dict__", {})
        if isinstance(item, type) or id(attributes) in self._attributes:
            return
        if attributes:
            self._attributes[id(attributes)] = attributes
        for each in item if isinstance(item, list | tuple) else attributes.values():
            self._find(each)

    def _objects(self, residual: Any, cache: Any, memory: Any) -> list[Any]:
        kept = () if cache is None else (cache.memory, *cache.buffers())
        return [residual, memory, *kept, *itertools.chain.from_iterable(map(dict.values, self._attributes.values()))]

    def holds(self, residual: Any, cache: Any = None, memory: Any = None, mask: Any = None) -> bool:
        """Whether the loop may be given the same again."""
        if not self.is_fixed or mask is not None:
            return False
        if cache is not None and memory is None and cache.length == cache.buffers()[0].shape[-2]:
            return False
        now = self._objects(residual, cache, memory)
        return len(now) == len(self._seen) and all(map(operator.is_, now, self._seen))
