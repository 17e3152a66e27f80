"""Step through a forward and a backward pass, line by line, with real numbers."""

from .recording import Recording, step

__all__ = ["Recording", "step"]
