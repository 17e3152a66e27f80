"""A part around another part that mixes: it changes the inner part's inputs, and passes its gradients back."""

from __future__ import annotations

from typing import Any, TypeVar

from ..layers import Module

A = TypeVar("A", bound="Around")


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
