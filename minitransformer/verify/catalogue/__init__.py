"""What `minitransformer check` checks: at least one case for every op, layer, model and collective.

The arguments are chosen so that no mistake can hide. All dimensions differ. Weights have ordinary sizes, and γ is not
constant. Tokens repeat, and a row of each random mask is empty. Dropout is on, and the same each time. The upstream
gradient is random.
"""

from importlib import import_module
from pathlib import Path

from . import caches, collectives, layers, models, ops, ranks
from .case import CASES, Case, Setup

_PACKAGE = Path(__file__).parents[2]
for _file in sorted(_PACKAGE.glob("*/cases.py")):  # ideas that plug in bring their own cases
    import_module(f"{_PACKAGE.name}.{_file.parent.name}.cases")

__all__ = ["CASES", "Case", "Setup", "caches", "collectives", "layers", "models", "ops", "ranks"]
