"""What `minitransformer check` checks: at least one case for every op, layer, model and collective.

The numbers are chosen so that a mistake cannot hide: all dimensions differ, weights have ordinary sizes, γ is not
constant, tokens repeat, a row of each mask is empty, dropout is on and frozen, and the upstream gradient is random.
"""

from . import collectives, layers, models, ops, ranks
from .case import CASES, Case, Setup

__all__ = ["CASES", "Case", "Setup", "collectives", "layers", "models", "ops", "ranks"]
