"""A table of tokens narrower than the layers, with a map into them and a map back, as in the OPT of 350 million."""

from .layer import ProjectedEmbedding, ThenProjected

__all__ = ["ProjectedEmbedding", "ThenProjected"]
