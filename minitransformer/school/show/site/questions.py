"""Five questions for each chapter, with their key: to ask a class, which raises letters, to answer alone, to print."""

from ...course.examination import LETTERS, of_chapter
from ...course.worksheets.numbers import Draw
from .frame import Site, template
from .notebook import Chapter


def write_questions(site: Site, chapters: list[Chapter]) -> None:
    """Write the page of each chapter."""
    for chapter in chapters:
        draw = Draw(f"questions/{chapter.number}")  # the same letters each time: a class may speak of them
        concepts = of_chapter(chapter.number)
        asked = [(concept, dict(zip(concept.options(draw), LETTERS, strict=True))) for concept in concepts]
        body = template("questions", stem=chapter.stem, title=chapter.title, questions=asked)
        site.page(address_of(chapter), f"Questions: {chapter.title}", body, ("poll.js",), text=None)


def address_of(chapter: Chapter) -> str:
    """Where the questions of a chapter are."""
    return f"questions/{chapter.stem}.html"
