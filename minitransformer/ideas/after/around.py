"""A part around another part that mixes: it changes the inner part's inputs, and passes its gradients back."""

from typing import Any

from ...core.layers import Cost, KeyValueCache, Module


class Around(Module):
    """A part that mixes, with another inside. scale: that of the inner part."""

    inner: Any

    @property
    def scale(self) -> float | None:
        """The factor of the scores."""
        return self.inner.scale

    @property
    def alike(self) -> bool:
        """Whether every head is mixed in the same way."""
        return self.inner.alike

    def new_cache(self) -> KeyValueCache:
        """An empty cache for the layer: that of the part inside."""
        return getattr(self.inner, "new_cache", KeyValueCache)()

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """What the part inside costs: a mask and copies of heads are no products."""
        return self.inner.cost(batch, length, n_heads, d_k, d_v)
