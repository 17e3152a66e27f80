"""The public names of each room with their signatures and docstrings."""

from __future__ import annotations

import html
import inspect
import re
from importlib import import_module
from typing import Any

from . import markdown
from .frame import Site
from .modules import address_of, shown_modules
from .siblings import in_turn

ROOMS = "ops layers models ideas verify training generation inspect text".split()
ROOMS += "run.machines.parallel course fast ideas.published".split()
# A default argument such as <function silu at 0x7f84…>: the address differs from build to build.
_ADDRESSED = re.compile(r"<(?:function )?(?:<?\w+>?\.)*<?(\w+)>?(?: object)? at 0x[0-9a-f]+>")


def write_reference(site: Site) -> None:
    """Write a page for each room, and the list of all."""
    items = []
    shown = set(shown_modules())
    addresses = [(f"reference/{name}.html", f"minitransformer.{name}") for name in ROOMS]
    for name in ROOMS:
        room = import_module(f"minitransformer.{name}")
        entries = [_entry(site, name, public, getattr(room, public), shown) for public in sorted(room.__all__)]
        about = inspect.getdoc(room) or ""
        body = f"<h1><code>minitransformer.{name}</code></h1>\n{markdown.docstring(about)}\n{''.join(entries)}"
        body += in_turn(addresses, f"reference/{name}.html")
        first = about.partition("\n\n")[0]
        site.page(f"reference/{name}.html", f"minitransformer.{name}", body, text=first)
        items.append(f'<dt><a href="{name}.html">minitransformer.{name}</a></dt><dd>{markdown.docstring(first)}</dd>\n')
    site.page("reference/index.html", "Reference", f"<h1>Reference</h1>\n<dl>{''.join(items)}</dl>")


def _entry(site: Site, room: str, name: str, value: Any, shown: set[str]) -> str:
    doc = (inspect.getdoc(value) or "") if callable(value) or inspect.ismodule(value) else ""
    site.index(f"reference/{room}.html#{name}", f"{room}.{name}", doc.partition("\n\n")[0])
    module = getattr(value, "__module__", "").removeprefix("minitransformer.")
    there = getattr(value, "__name__", name)  # a function may have a second name
    link = f' <a href="../{address_of(module, there)}">code of {there}</a>' if module in shown else ""
    signature = html.escape(f"{name}{_signature(value)}")
    parts = [f'<h2 id="{name}"><code>{name}</code></h2>\n<pre tabindex="0">{signature}</pre>{link}\n']
    parts.append(markdown.docstring(doc))
    if inspect.isclass(value):
        parts += [
            f'<h3>{name}.{n}</h3>\n<pre tabindex="0">{html.escape(n + _signature(m))}</pre>'
            f"{markdown.docstring(inspect.getdoc(m) or '')}\n"
            for n, m in vars(value).items()
            if not n.startswith("_") and inspect.isfunction(m) and m.__doc__
        ]
    return "".join(parts)


def _signature(value: Any) -> str:
    try:
        signature = str(inspect.signature(value)) if callable(value) else ""
    except (ValueError, TypeError):  # a type of the standard library
        return ""
    return _ADDRESSED.sub(r"\1", signature).replace("'", "")
