"""Step through a forward and a backward pass, line by line, with real numbers."""

from .expansion import Expansion, NotExpandable, expand
from .recording import Recording, step
from .saved import Saved, saved

__all__ = ["Expansion", "NotExpandable", "Recording", "Saved", "expand", "saved", "step"]
