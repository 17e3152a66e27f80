"""Worksheets: gradients to compute by hand on paper, with answer keys, and the marking of completed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .form import Form, read_form, to_form
from .html import to_html
from .kinds import KINDS, make
from .layout import Page, page
from .marking import Marks, StepMark, mark
from .sheet import Sheet
from .text import to_markdown

if TYPE_CHECKING:
    from .pdf import to_pdf

__all__ = [
    "KINDS",
    "Form",
    "Marks",
    "Page",
    "Sheet",
    "StepMark",
    "make",
    "mark",
    "page",
    "read_form",
    "to_form",
    "to_html",
    "to_markdown",
    "to_pdf",
]


def __getattr__(name: str) -> Any:
    """Import `to_pdf`, and with it matplotlib, on first use: only a PDF needs them."""
    if name != "to_pdf":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .pdf import to_pdf

    return to_pdf
