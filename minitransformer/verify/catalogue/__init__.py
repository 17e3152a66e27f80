"""What `minitransformer check` checks: at least one case for every op, layer, model and collective.

The arguments are chosen so that no mistake can hide. All dimensions differ. Weights have ordinary sizes, and γ is not
constant. Tokens repeat, and a row of each random mask is empty. Dropout is on, and the same each time. The upstream
gradient is random.
"""

from . import collectives, layers, models, ops, ranks
from .case import CASES, Case, Setup

__all__ = ["CASES", "Case", "Setup", "collectives", "layers", "models", "ops", "ranks"]
