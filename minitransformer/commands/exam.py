"""`minitransformer exam`: examination papers with worked answers, and the test of concepts."""

from __future__ import annotations

import argparse
import re

from ..core.arrays.files import write
from ..school.course.examination import (
    QUESTIONS,
    OpenQuestion,
    Question,
    chosen,
    concepts_paper,
    open_questions,
    paper,
    to_html,
)
from . import UsageError
from .common import unknown
from .outputs import file_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Print an examination: questions of the twelve-week term, with new numbers for each seed. The same seed, "
        "weeks and "
        "count give the same paper on every machine. --answers prints the worked answers in their place."
    )
    command.epilog = f"The {len(QUESTIONS)} questions: " + ", ".join(QUESTIONS)
    command.epilog += (
        f". {len(open_questions())} derivations, open questions asked by name: {', '.join(open_questions())}"
    )
    command.add_argument("names", nargs="*", metavar="QUESTION", help="these questions; without names, some of --weeks")
    command.add_argument("--seed", type=int, default=0, help="seed of the numbers and of the choice (default: 0)")
    command.add_argument(
        "--weeks", default="1-12", metavar="A-B", help="weeks to choose from, such as 1-6 (default: 1-12)"
    )
    command.add_argument("--count", type=int, default=12, help="how many questions to choose (default: 12)")
    command.add_argument(
        "--concepts", action="store_true", help="print the test of concepts; --seed orders its options"
    )
    command.add_argument("--answers", action="store_true", help="print the paper with its worked answers")
    command.add_argument(
        "--html", type=file_to_write, metavar="FILE", help="write a page that prints on A4 instead of Markdown"
    )
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.concepts:
        if options.names:
            raise UsageError("--concepts prints all of its questions; drop the names")
        text = concepts_paper(options.seed, options.answers)
    else:
        known: dict[str, Question | OpenQuestion] = {**QUESTIONS, **open_questions()}
        for name in options.names:
            if name not in known:
                raise UsageError(unknown("question", name, list(known)))
        try:
            asked = [known[name] for name in options.names]
            asked = asked or [*chosen(_weeks(options.weeks), options.count, options.seed)]
        except ValueError as error:
            raise UsageError(str(error)) from error
        text = paper(asked, options.seed, options.answers)
    if options.html:
        write(options.html, to_html(text))
        print(f"wrote {options.html}")
    else:
        print(text, end="")
    return 0


def _weeks(text: str) -> range:
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last <= 12:
        raise ValueError(f"--weeks must be a week from 1 to 12, or two such as 1-6, got {text!r}")
    return range(first, last + 1)
