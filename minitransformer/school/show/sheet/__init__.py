"""A recorded example as a workbook whose cells compute it: formulas.py writes a cell, workbook.py the sheets."""

from .workbook import workbook

__all__ = ["workbook"]
