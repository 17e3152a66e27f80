"""Examinations: sixty questions with worked answers, new numbers for each seed, and questions on concepts."""

from . import blocks, foundations, heads, later  # noqa: F401  they fill QUESTIONS
from .concepts import CONCEPTS as CONCEPTS
from .concepts import LETTERS as LETTERS
from .concepts import Concept as Concept
from .concepts import concepts_paper as concepts_paper
from .concepts import of_chapter as of_chapter
from .exam_paper import chosen as chosen
from .exam_paper import paper as paper
from .exam_paper import to_html as to_html
from .question import QUESTIONS as QUESTIONS
from .question import OpenQuestion as OpenQuestion
from .question import Question as Question
from .question import open_questions as open_questions
