"""Worksheets: gradients to compute by hand on paper, with answer keys, and the marking of completed forms."""

from .form import read_form as read_form
from .form import to_form as to_form
from .html import to_html as to_html
from .kinds import make as make
from .layout import page as page
from .marking import Marks as Marks
from .marking import mark as mark
from .sheet import KINDS as KINDS
from .sheet import Sheet as Sheet
from .text import to_markdown as to_markdown
