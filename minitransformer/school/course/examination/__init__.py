"""Examinations: sixty questions with worked answers, new numbers for each seed, and a test of concepts."""

from __future__ import annotations

from . import blocks, foundations, heads, later  # noqa: F401  they fill QUESTIONS
from .concepts import CONCEPTS, Concept, concepts_paper
from .exam_paper import chosen, paper, to_html
from .question import QUESTIONS, Asked, Question

__all__ = ["CONCEPTS", "QUESTIONS", "Asked", "Concept", "Question", "chosen", "concepts_paper", "paper", "to_html"]
