"""The public names of each room with their signatures and docstrings."""

import inspect
import re
from importlib import import_module
from typing import Any

from .frame import Site, template
from .modules import address_of, shown_modules
from .siblings import in_turn

ROOMS = "ops layers models ideas verify training generation inspect text".split()
ROOMS += "run.machines.parallel course fast ideas.published".split()
# A default argument such as <function silu at 0x7f84…>: the address differs from build to build.
_ADDRESSED = re.compile(r"<(?:function )?(?:<?\w+>?\.)*<?(\w+)>?(?: object)? at 0x[0-9a-f]+>")


def write_reference(site: Site) -> None:
    """Write a page for each room, and the list of all."""
    shown = set(shown_modules())
    addresses = [(f"reference/{name}.html", f"minitransformer.{name}") for name in ROOMS]
    rooms = {}
    for (address, title), name in zip(addresses, ROOMS, strict=True):
        room = import_module(title)
        about = inspect.getdoc(room) or ""
        rooms[name] = about.partition("\n\n")[0]
        entries = [_entry(public, getattr(room, public), shown) for public in sorted(room.__all__)]
        for entry in entries:
            site.index(f"{address}#{entry['name']}", f"{name}.{entry['name']}", entry["doc"].partition("\n\n")[0])
        body = template("room", title=title, about=about, entries=entries) + in_turn(addresses, address)
        site.page(address, title, body, text=rooms[name])
    site.page("reference/index.html", "Reference", template("reference", rooms=rooms))


def _entry(name: str, value: Any, shown: set[str]) -> dict[str, Any]:
    """What the page says of a public name. methods: of a class, by name: signature and docstring."""
    module = getattr(value, "__module__", "").removeprefix("minitransformer.")
    there = getattr(value, "__name__", name)  # a function may have a second name
    methods = vars(value).items() if inspect.isclass(value) else ()
    return {
        "name": name,
        "doc": (inspect.getdoc(value) or "") if callable(value) or inspect.ismodule(value) else "",
        "signature": f"{name}{_signature(value)}",
        "code": (there, address_of(module, there)) if module in shown else None,
        "methods": {
            n: (n + _signature(m), inspect.getdoc(m) or "")
            for n, m in methods
            if not n.startswith("_") and inspect.isfunction(m) and m.__doc__
        },
    }


def _signature(value: Any) -> str:
    try:
        signature = str(inspect.signature(value)) if callable(value) else ""
    except (ValueError, TypeError):  # a type of the standard library
        return ""
    return _ADDRESSED.sub(r"\1", signature).replace("'", "")
