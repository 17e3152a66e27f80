"""One self-contained page of a recording: it needs no network, no server and no Python, and opens from a file.

The page is page.html with its style sheet and scripts put inside, and the recording as JSON. Nothing in it is taken for
markup: the scripts write every text as text, and the JSON holds no "<".
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from importlib import resources

from ...arrays.files import write
from .page_bugs import bugs_data
from .page_data import page_data
from .recording import Recording

_SCRIPTS = ("arrays", "terms", "twin", "edit", "matrix", "line")


def to_html(
    recording: Recording,
    path: str | os.PathLike[str] | None = None,
    *,
    bugs: Iterable[str] | None = None,
    tokens: Sequence[str] = (),
) -> str:
    """The page as a text, which is also written to `path` where one is given.

    bugs: names of verify.wrong_variants.VARIANTS that can be switched on in the page; unless given, the usual ones, and
    none for a recording of more than 40,000 numbers. To find what a mistake changes, the recorded call runs once more
    for each. tokens: labels for the rows of arrays with one row for each of them. Raises ValueError for an unknown bug,
    and where the recorded call, run again, gives other numbers.
    """
    data = page_data(recording, tokens)
    data["bugs"] = bugs_data(recording, bugs, data)
    parts = {
        "{{title}}": html.escape(recording.name),
        "{{style}}": _read("page.css"),
        "{{data}}": as_script_data(data),
        "{{script}}": "\n".join(map(_read, [*(f"page_{name}.js" for name in _SCRIPTS), "page.js"])),
    }
    pieces = [_read("page.html")]
    for mark, text in parts.items():  # in the order in which they stand there; what is put in is not searched again
        before, _, after = pieces.pop().partition(mark)
        pieces += [before, text, after]
    text = "".join(pieces)
    if path is not None:
        write(path, text)
    return text


def as_script_data(data: object) -> str:
    """JSON that can stand inside <script type="application/json">: the parser of HTML finds no tag in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
