"""State space duality, an idea in one folder: ops, cases, mistakes, sentences, exercise, example and page."""

from .op import state_space, state_space_recurrent

__all__ = ["state_space", "state_space_recurrent"]
