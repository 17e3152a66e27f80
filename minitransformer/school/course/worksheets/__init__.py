"""Worksheets: gradients to compute by hand on paper, with answer keys, and the marking of completed forms."""

from __future__ import annotations

from .form import Form, read_form, to_form
from .html import to_html
from .kinds import make
from .layout import Page, page
from .marking import Marks, StepMark, mark
from .sheet import KINDS, Sheet
from .text import to_markdown

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
]
