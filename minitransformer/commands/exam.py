"""`minitransformer exam`: examination papers with worked answers, and the test of concepts."""

import re
from typing import Any

from ..core.arrays.files import write
from ..school.course import examination
from . import Options, UsageError
from .common import known_as, listed, make


def main(options: Options) -> int:
    known: dict[str, Any] = {**examination.QUESTIONS, **examination.open_questions()}
    if options.list:
        return listed(known)
    if options.concepts:
        if options.names:
            raise UsageError("--concepts prints all of its questions; drop the names")
        text = examination.concepts_paper(options.seed, options.answers)
    else:
        asked = [known[known_as("question", name, list(known))] for name in options.names]
        choice = {"count": options.count, "seed": options.seed}
        asked = asked or make(examination.chosen, {"weeks": _weeks(options.weeks), **choice})
        text = examination.paper(asked, options.seed, options.answers)
    if options.html:
        write(options.html, examination.to_html(text))
        print(f"wrote {options.html}")
    else:
        print(text, end="")
    return 0


def _weeks(text: str) -> range:
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last <= 12:
        raise UsageError(f"--weeks must be a week from 1 to 12, or two such as 1-6, got {text!r}")
    return range(first, last + 1)
