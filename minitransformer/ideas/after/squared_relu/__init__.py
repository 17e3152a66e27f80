"""The square of a ReLU as an activation, an idea in one folder."""

from .op import squared_relu

__all__ = ["squared_relu"]
