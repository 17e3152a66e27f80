"""What each command takes. These files import neither NumPy nor a model, so that every --help is there at once.

The first line of a function is what the list of all commands says; the paragraphs below it stand in the command's own
help, above and below its options. What the command does is in the file of its name in the folder above.
"""

from collections.abc import Callable

from .. import Parser
from .checking import audit, check, derive
from .models import embed, evaluate, export, fill_mask, generate, info, prepare, translate
from .teaching import compare, demo, exam, grade, plot, sheet, site, step, view, worksheet
from .training import train

_IN_ORDER: tuple[Callable[[Parser], None], ...] = (
    *(demo, check, derive, step, sheet, prepare, train, translate, generate, embed, fill_mask, export, evaluate),
    *(info, view, plot, compare, worksheet, audit, exam, grade, site),
)
COMMANDS = {add.__name__.replace("_", "-"): add for add in _IN_ORDER}

__all__ = ["COMMANDS"]
