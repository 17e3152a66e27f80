"""Wrong ops, invented by someone who had not seen the catalogue of known mistakes: edits of the source, `old => new`.

Some slips are a user's (a sign, an axis, a factor), others are nobody's, so that nothing known should explain them.
"""

import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from all_ops import OPS

TEXT = Path(__file__).with_name("invented_mistakes.txt").read_text(encoding="utf-8")


def invented() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """(op, edit, the wrong op) for each edit."""
    op = ""
    for line in filter(None, TEXT.splitlines()):
        if not line.startswith(" "):
            op = line
            continue
        old, _, new = line.strip().partition(" => ")
        yield op, line.strip(), _edited(op, old, new)


def _edited(name: str, old: str, new: str) -> Callable[..., Any]:
    op: Any = inspect.unwrap(OPS[name])
    module: Any = inspect.getmodule(op)
    source, text = inspect.getsource(module), inspect.getsource(op)
    if old not in text:
        raise ValueError(f"there is no {old!r} in {name}")
    head, _, tail = text.rpartition(old)
    made = types.ModuleType(module.__name__)
    made.__package__, made.__file__ = module.__package__, module.__file__
    wrong = source.replace(text, f"{head}{new}{tail}")
    exec(compile(wrong, f"an invented {name}", "exec", dont_inherit=True), made.__dict__)
    function: Callable[..., Any] = getattr(made, name)
    return function
