"""What all pages share: the frame around their content, the files that they load, the index that the search reads."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ....core.arrays.files import write
from .. import colours, font
from ..page import filled, text_of
from . import markdown

PUBLIC_PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
# Megabytes that each package brings, in that distribution; Python itself comes with NumPy.
PUBLIC_SIZES = {"numpy": 17, "matplotlib": 10, "scipy": 20}
_PARTS = (
    ("chapters", "Book"),
    ("exercises", "Exercises"),
    ("code", "Code"),
    ("steppers", "Steppers"),
    ("reference", "Reference"),
    ("teachers", "Teachers"),
)
_BANNER = '<p class="banner">Instructor’s build: has solutions and answers; do not publish.</p>\n'
_NAMES = (
    "site python worker editor predictions progress chapter exercise derive poll code search slides worksheets families"
)
_SCRIPTS = [f"{name}.js" for name in _NAMES.split()]


@dataclass
class Site:
    """The folder that is being written, and what its pages have in common.

    pyodide: the address of Pyodide's files, as the worker sees it: absolute, or relative to the site. wheel: the name
    of the package's file. sizes: as PUBLIC_SIZES, and of the package itself.
    """

    folder: Path
    pyodide: str
    wheel: str
    instructor: bool = False
    sizes: Mapping[str, int] = field(default_factory=lambda: {**PUBLIC_SIZES, "minitransformer": 1})
    found: list[list[str]] = field(default_factory=list)  # for the search: address, title, text, other names, code

    def needs(self, *packages: str) -> str:
        """What a page with code says before its Python is loaded. packages: that its code imports beside NumPy."""
        size = sum(self.sizes[name] for name in ("minitransformer", "numpy", *packages))
        source = ", from the internet" if "://" in self.pyodide else ""
        return f"The first run loads Python, about {size} MB{source}."

    def page(self, path: str, title: str, body: str, scripts: Sequence[str] = (), text: str | None = "") -> None:
        """Write a page. path: within the site. body: HTML of the main part. text: what the search knows of it, None if
        that comes by `index_sections`.
        """
        root = "../" * path.count("/")
        here = path.partition("/")[0]
        links = "".join(
            f'<a href="{root}{part}/index.html"{" aria-current=true" if part == here else ""}>{name}</a>\n'
            for part, name in _PARTS
        )
        tags = "".join(f'<script src="{root}{name}" defer></script>\n' for name in ("site.js", *scripts))
        about = {"root": root, "pyodide": self.pyodide, "wheel": self.wheel, "sizes": self.sizes}
        settings = html.escape(json.dumps(about), quote=True)
        parts = {"root": root, "settings": settings, "policy": self._policy(), "title": html.escape(title)}
        parts |= {"tags": tags, "links": links, "banner": _BANNER if self.instructor else "", "body": body}
        write(self.made(path), template("page", **parts))
        if text is not None:
            self.index(path, title, text)

    def index(self, address: str, title: str, text: str, names: str = "", code: str = "") -> None:
        """Let the search find an address. names: what else its subject is called; code: what it shows."""
        self.found.append([address, title, *(" ".join(part.split()) for part in (text, names, code))])

    def index_sections(self, address: str, title: str, texts: Iterable[str], names: str = "", code: str = "") -> None:
        """Let the search find a page and each of its sections, made from texts of Markdown."""
        for name, heading, text in markdown.sections(texts):
            if name:
                self.index(f"{address}#{name}", f"{heading} ({title})", text)
            else:
                self.index(address, title, text, names, code)

    def made(self, path: str) -> Path:
        """The path of a file of the site; its folder exists."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def common_files(self) -> None:
        """Write the style, the scripts, the page of the search and, last of all, its index."""
        style = font.style() + colours.STYLE + text_of("page.css")
        write(self.made("site.css"), style + own_file("site.css"))
        for name in _SCRIPTS:
            write(self.made(name), (text_of("elements.js") if name == "site.js" else "") + own_file(name))
        self.page("search.html", "Search", own_file("search.html"), ("index.js", "search.js"))
        index = json.dumps(self.found, ensure_ascii=False, separators=(",", ":"))
        write(self.made("index.js"), f"const INDEX = {index};\n")

    def _policy(self) -> str:
        """What a page may load. Scripts within the page are those of a stepper that a cell shows."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.pyodide)) if "://" in self.pyodide else ""
        return html.escape(
            f"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
            f"img-src 'self' data: blob:; font-src 'self' data:; "
            f"connect-src 'self' {origin}; base-uri 'none'; form-action 'self'"
        )


def template(page: str, /, **parts: str) -> str:
    """An HTML file of this folder with a part in the place of each {{name}}."""
    return filled(own_file(f"{page}.html"), parts)


def own_file(name: str) -> str:
    """A file of this folder."""
    return text_of(name, __package__)
