"""The tasks that can be trained: those of the core, with what the rooms around bring to them."""

from ..later import translators
from ..tasks import TASKS as PLAIN
from ..tasks import Task
from . import stored_text

TASKS: dict[str, Task] = PLAIN | {"translate": translators.TASK, "lm": stored_text.TASK}
