"""A language model with a cache whose angles follow the length of the text.

A cache keeps keys as the angles of their time turned them. When the angles change, those keys are stale, and so are all
keys and values above the first layer: they were computed from what attention saw through the old angles. So nothing of
the cache can be kept. This model remembers the tokens as well, and reads all of them again as soon as the angles
change: once with `longrope`, as the text grows longer than those of training; with `dynamic`, from there on, at every
token.
"""

from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module, to_numpy
from ...core.layers import Cache
from ...core.models import LanguageModel
from ..after.scaled_angles.angles import stage


class RememberingCache(Cache):
    """Keys and values of a stack, and the tokens that they are of. ids, positions: (B, length), or None.

    No layer has a rolling cache: that turns keys by their places in it, which hide the length of the text.
    """

    ids: Any = None
    positions: Any = None

    def remember(self, ids: Array, positions: Array | None) -> None:
        """Add new tokens with their positions, (B, T)."""
        xp, start = array_module(ids), self.length
        if positions is None:
            positions = xp.broadcast_to(xp.arange(start, start + ids.shape[1]), ids.shape)
        if self.ids is not None:
            ids = xp.concatenate([self.ids[:, :start], ids], axis=1)
            positions = xp.concatenate([self.positions[:, :start], positions], axis=1)
        self.ids, self.positions = ids, positions

    def forget(self) -> None:
        """Empty the caches of all layers; the tokens stay."""
        self.self_attention = Cache(len(self.self_attention)).self_attention

    def select(self, rows: Array, memory: Array | None = None) -> None:
        """Keep these rows of the batch; see Cache."""
        super().select(rows, memory)
        if self.ids is not None:
            self.ids, self.positions = self.ids[rows], self.positions[rows]


class RereadingLanguageModel(LanguageModel):
    """A LanguageModel that reads its text again when the angles change. Its config has `scaled_angles`.

    Logits with a cache are those that a call without one has for the last tokens of the text read so far.
    """

    def new_cache(self) -> Cache:
        """An empty cache for calls with new tokens."""
        return RememberingCache(len(self.stack.layers))

    def hidden(
        self,
        ids: Array,
        cache: Cache | None = None,
        rng: Rng | None = None,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """The vectors that the logits are made of; see LanguageModel. Raises TypeError for the cache of another."""
        if cache is None:
            return super().hidden(ids, None, rng, mask, positions)
        if not isinstance(cache, RememberingCache):
            raise TypeError(
                "RereadingLanguageModel: cache must be one that new_cache() made, since it remembers tokens"
            )
        before, new = cache.length, ids.shape[1]
        cache.remember(ids, positions)
        if before and self._stage(cache.positions[:, :before]) != self._stage(cache.positions):
            cache.forget()
            ids, positions = cache.ids, cache.positions
        hidden, no_backward = super().hidden(ids, cache, rng, mask, positions)
        return hidden[:, -new:], no_backward

    def _stage(self, positions: Any) -> list[Any]:
        """What the angles of each text depend on."""
        return stage(self.config.scaled_angles, to_numpy(positions).max(axis=-1) + 1).tolist()
