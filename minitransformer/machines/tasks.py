"""The tasks that can be trained: those of the core, with the extensions of other rooms."""

from ..later import translators
from ..tasks import TASKS as PLAIN
from ..tasks import Task
from . import stored_text

TASKS: dict[str, Task] = PLAIN | {"translate": translators.TASK, "lm": stored_text.TASK}
