"""Families of published models, found by looking: a file here that assigns FAMILY, or FAMILIES, is a family's.

FAMILIES has those that read texts alone, as training and most commands do; EVERY has those that read pictures and sound
as well.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from .family import Family

_IS_A_FAMILY = re.compile(r"^FAMIL(Y|IES) = ", re.MULTILINE)


def _found() -> Iterator[tuple[str, Family]]:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if _IS_A_FAMILY.search(path.read_text(encoding="utf-8")):  # no other file can be imported from here
            module = import_module(f"{__package__}.{path.stem}")
            yield from ((module.__name__, each) for each in getattr(module, "FAMILIES", None) or [module.FAMILY])


HOMES: dict[str, str] = {}  # the module of each family
EVERY: dict[str, Family] = {}
for _home, _family in _found():
    HOMES[_family.model_type], EVERY[_family.model_type] = _home, _family
FAMILIES: dict[str, Family] = {name: family for name, family in EVERY.items() if family.reads == "texts"}
RECIPES: dict[str, type[Any]] = {}  # what families bring to those of the core, each under its first family's name
for _family in FAMILIES.values():
    _brings = hasattr(_family.recipe, "build") and _family.recipe.__module__.startswith(f"{__package__}.")
    if _brings and _family.recipe not in RECIPES.values():
        RECIPES[_family.model_type.replace("_", "-")] = _family.recipe

__all__ = ["EVERY", "FAMILIES", "HOMES", "RECIPES", "Family"]
