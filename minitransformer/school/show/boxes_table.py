"""The table of docs/families.md, below families.txt: the parts of each family, box by box."""

from collections.abc import Iterable

from .boxes import BOXES, Entry, Part, alike, families, home
from .page import text_of


def markdown() -> str:
    """The page: a table whose links lead to the files of the parts."""
    found = families()
    held = [e for sides in found.values() for side in sides for each in side.boxes.values() for e in each]
    parts = {part for entry in held for part in entry.parts}
    columns = ["Family", *(label for _, label in BOXES)]
    lines = [_row(columns), _row("---" for _ in columns)]
    for names, sides in alike(found):
        told = ", ".join(f"[{name}](../{_file(home(name))})" for name in names)
        for side in sides:
            title = f"{told}: {side.name}" if len(sides) > 1 else told
            cells = ("<br>".join(_told(entry, parts) for entry in side.boxes.get(box, ())) for box, _ in BOXES)
            lines.append(_row([title, *cells]))
    targets = sorted({f"[`{_label(part, parts)}`]: ../{_file(part.module)}" for part in parts})
    return "\n".join([text_of("families.txt"), *lines, "", *targets]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _told(entry: Entry, parts: set[Part]) -> str:
    links = ", ".join(f"[`{_label(part, parts)}`]" for part in entry.parts)
    formula = "<br>".join(f"`{line}`" for line in entry.formula.split("; ") if line)
    text = "<br>".join(filter(None, (links, formula))) or "nothing"
    return f"{entry.layers}: {text}" if entry.layers else text


def _label(part: Part, parts: set[Part]) -> str:
    """The name of a part, with its module where two parts have one name."""
    is_one = sum(part.name == each.name for each in parts) == 1
    return part.name if is_one else f"{part.module}.{part.name}"


def _file(module: str) -> str:
    return f"minitransformer/{module.replace('.', '/')}.py"
