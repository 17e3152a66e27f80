"""One self-contained page: it needs no network, no server and no Python, and opens from a file.

page.html is the frame of every page, page.css its style, elements.js and page.js its tools. A package with a page has
files of the same names for its own parts: the HTML, in three parts, the style sheet and the scripts. No data can become
markup: the scripts write every text as text, and the JSON contains no "<".
"""

import base64
import html
import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from ...core.arrays.files import write
from . import colours

_PART = "<!-- part -->\n"  # in a package's page.html, between its tools, its body and its list of keys


def build(
    room: str,
    title: str,
    kind: str,
    data: dict[str, Any],
    scripts: Sequence[str],
    path: str | os.PathLike[str] | None = None,
    style: str = "",
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as a text, also written to `path` if given.

    room: the package with the page's own files. scripts: those of its scripts that come before page.js. kind: what the
    title says after the name, such as "step by step". style: rules for the style sheet besides those in files. links:
    (address, text) of pages of the site that has this page.
    """
    tools, body, keys = text_of("page.html", room).split(_PART)
    ways = "".join(f'<a href="{html.escape(to, quote=True)}">{html.escape(text)}</a>' for to, text in links)
    code = [*map(text_of, ("elements.js", "page.js")), *(text_of(name, room) for name in (*scripts, "page.js"))]
    styles = (style, colours.STYLE, text_of("page.css"), text_of("page.css", room))
    parts = {
        "title": f"{html.escape(title)} · {kind}",
        "style": re.sub(r"^ +", "", "".join(styles), flags=re.M),
        "links": f'<nav class="ways" aria-label="Site">{ways}</nav>' if ways else "",
        "tools": tools,
        "body": body,
        "keys": keys,
        "data": as_script_data({"title": title} | data),
        "script": re.sub(r"^ *//.*\n", "", "\n".join(code), flags=re.M),  # without comments
    }
    page = filled(text_of("page.html"), parts)
    if path is not None:
        write(path, page)
    return page


def filled(template: str, parts: dict[str, str]) -> str:
    """The template with a part in the place of each {{name}}; inserted text is not searched again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)


def frame(page: str, title: str, height: int) -> str:
    """The page in an iframe, for a notebook: neither can disturb the style or the scripts of the other."""
    text, name = html.escape(page, quote=True), html.escape(title, quote=True)
    return f'<iframe title="{name}" srcdoc="{text}" width="100%" height="{height}" style="border: 0"></iframe>'


def as_script_data(data: object) -> str:
    """JSON that is safe inside <script type="application/json">: an HTML parser finds no tag in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def packed(array: np.ndarray, dtype: str = "<f4") -> str:
    """The numbers of an array for `floats` in page.js: little-endian, in base64."""
    return base64.b64encode(array.astype(dtype).tobytes()).decode()


def text_of(name: str, room: str = __package__) -> str:
    """A file of a package, by default of this one."""
    return resources.files(room).joinpath(name).read_text(encoding="utf-8")
