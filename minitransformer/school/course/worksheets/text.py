"""A worksheet as Markdown, which is also readable on a terminal."""

from .layout import texts
from .sheet import Given, Sheet, Step

BLANK = "____"


def to_markdown(sheet: Sheet, key: bool = False) -> str:
    """The sheet, with blanks or with the answers."""
    title = sheet.task.title + (": answers" if key else "")
    name = sheet.student or ("" if key else "_" * 30)
    parts = [f"# {title}", f"{sheet.label}", *([f"Name: {escaped(name) if sheet.student else name}"] if name else [])]
    parts += ["\n".join(f"- {note}" for note in sheet.task.notes), "## Given"]
    parts += [_matrix(sheet, given, True) for given in sheet.task.given]
    for heading, steps in (("## Forward", sheet.forward_steps), ("## Backward", sheet.backward_steps)):
        if steps:
            parts += [heading, *(_matrix(sheet, step, key) for step in steps)]
    return "\n\n".join(parts) + "\n"


def _matrix(sheet: Sheet, item: Given | Step, filled: bool) -> str:
    cells = texts(sheet, item.name)
    if not filled:
        cells = tuple((BLANK,) * len(row) for row in cells)
    width = max(len(text) for row in cells for text in row)
    lines = ["    " + "  ".join(text.rjust(width) for text in row) for row in cells]
    if item.unit:
        lines[0] += f"    · {item.unit}"
    heading = item.formula if isinstance(item, Step) else ", ".join(filter(None, [item.name, item.note]))
    return f"**{heading}**\n\n" + "\n".join(lines)


def escaped(name: str) -> str:
    """A name as plain text, without markup."""
    return "".join("\\" + letter if letter in "\\`*_{}[]()#+-.!|<>~&" else letter for letter in name)
