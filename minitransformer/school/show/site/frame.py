"""What all pages share: the frame around their content, the files that they load, the index that the search reads."""

import functools
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ....core.arrays.files import write
from ....core.text.tokenizer import load_library
from .. import colours, font
from ..page import text_of
from . import markdown

PUBLIC_PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
# Megabytes that each package brings, in that distribution; Python itself comes with NumPy.
PUBLIC_SIZES = {"numpy": 17, "matplotlib": 10, "scipy": 20}


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
        settings = json.dumps({"root": root, "pyodide": self.pyodide, "wheel": self.wheel, "sizes": self.sizes})
        # Scripts within the page are those of a stepper that a cell shows.
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.pyodide)) if "://" in self.pyodide else ""
        parts = {"here": path.partition("/")[0], "settings": settings, "origin": origin, "instructor": self.instructor}
        parts["scripts"] = ["site.js", *scripts]
        write(self.made(path), template("page", root=root, title=title, body=body, **parts))
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
        for name in sorted(file.name for file in resources.files(__package__).iterdir() if file.name.endswith(".js")):
            write(self.made(name), (text_of("elements.js") if name == "site.js" else "") + own_file(name))
        self.page("search.html", "Search", own_file("search.html"), ("index.js", "search.js"))
        index = json.dumps(self.found, ensure_ascii=False, separators=(",", ":"))
        write(self.made("index.js"), f"const INDEX = {index};\n")


@functools.cache
def _templates() -> Any:
    """The HTML files of this folder. What they are given becomes text, unless they say that it is HTML: `safe`."""
    jinja2, markupsafe = (load_library("the site", "site", name) for name in ("jinja2", "markupsafe"))
    how = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(loader=jinja2.FunctionLoader(own_file), **how)
    for as_html in (titled, typeset, markdown.docstring, markdown.render):
        made.filters[as_html.__name__] = lambda text, as_html=as_html: markupsafe.Markup(as_html(text))
    made.filters["plain"] = markdown.plain
    return made


def template(page: str, /, **parts: Any) -> str:
    """An HTML file of this folder, filled with parts."""
    return str(_templates().get_template(f"{page}.html").render(parts))


def titled(title: str) -> str:
    """A title as HTML; d_k in it has an index."""
    return re.sub(r"\b([a-z])_([a-z])\b", r"<i>\1</i><sub>\2</sub>", html.escape(title))


def typeset(text: str) -> str:
    """A text as HTML, in which d_k has a subscript."""
    return re.sub(r"\b([A-Za-z])_(\w+)", r"<var>\1</var><sub>\2</sub>", html.escape(text, quote=False))


def own_file(name: str) -> str:
    """A file of this folder."""
    return text_of(name, __package__)
