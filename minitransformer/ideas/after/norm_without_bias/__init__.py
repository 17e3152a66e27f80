"""A layer norm without β, and the place of a norm that is left out. ModernBERT has both."""

from .layer import LayerNormWithoutBias, NoNorm

__all__ = ["LayerNormWithoutBias", "NoNorm"]
