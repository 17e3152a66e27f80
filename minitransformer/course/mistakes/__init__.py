"""Wrong variants of the project's own code: mistakes people make, each of which a check must reject.

A checker is worth what it rejects. Each variant is a snippet of right code with its wrong replacement and a sentence
that says what is wrong; there are at least two for every backward pass. They test the checker, and they can be taught
with: as bugs to find, and as names for a student's mistake.
"""

from . import attention, blocks, later, linear, models, normalization, tokens, values_attention, values_other
from .variant import WrongVariant

_TABLES = (attention, linear, normalization, tokens, blocks, models, later, values_attention, values_other)
VARIANTS: dict[str, WrongVariant] = {variant.name: variant for table in _TABLES for variant in table.VARIANTS}

__all__ = ["VARIANTS", "WrongVariant"]
