"""What `minitransformer check` checks: at least one case for every op, layer, model and collective (an op that
several processes call together).

The arguments are chosen so that no mistake can hide. All dimensions differ. Weights have ordinary sizes, and γ is not
constant. Tokens repeat, and a row of each random mask is empty. Dropout is on, and the same each time. The upstream
gradient is random.
"""

from ....core.arrays import rooms
from . import caches, layers, models, ops, ranks_of_arrays
from .case import CASES, Case, Setup, known_ops

rooms.load("cases.py")  # ideas that plug in bring their own cases
ranks_of_arrays.of_every_op()

__all__ = ["CASES", "Case", "Setup", "caches", "known_ops", "layers", "models", "ops", "ranks_of_arrays"]
