"""Examinations: sixty questions with worked answers, new numbers for each seed, and questions on concepts."""

from __future__ import annotations

from . import blocks, foundations, heads, later  # noqa: F401  they fill QUESTIONS
from .concepts import CONCEPTS, LETTERS, Concept, concepts_paper, of_chapter
from .derivations import OpenQuestion, open_questions
from .exam_paper import chosen, paper, to_html
from .question import QUESTIONS, Asked, Question

__all__ = [
    "CONCEPTS",
    "LETTERS",
    "QUESTIONS",
    "Asked",
    "Concept",
    "OpenQuestion",
    "Question",
    "chosen",
    "concepts_paper",
    "of_chapter",
    "open_questions",
    "paper",
    "to_html",
]
