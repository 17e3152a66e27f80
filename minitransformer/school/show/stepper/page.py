"""The page of a recording, with the mistakes that can be switched on in it."""

import os
from collections.abc import Iterable, Mapping, Sequence

from ....check.verify.gradients import Progress
from .. import font
from ..page import build
from .naming import in_words
from .page_bugs import bugs_data
from .page_data import page_data
from .page_edits import followed
from .steps import Steps

_SCRIPTS = [
    f"page_{name}.js"
    for name in "arrays terms edit formula matrix fit line mistakes predict map motion lists state".split()
]


def to_html(
    recording: Steps,
    path: str | os.PathLike[str] | None = None,
    *,
    bugs: Iterable[str] | None = None,
    tokens: Sequence[str] = (),
    memory: Sequence[str] = (),
    told: str = "",
    start: int | None = None,
    progress: Progress = iter,
    links: Sequence[tuple[str, str]] = (),
    derive: Mapping[int, str] | None = None,
) -> str:
    """The page as a text, also written to `path` if given.

    bugs: names of verify.mistakes.MISTAKES that can be switched on in the page. By default, the page has the mistakes
    in every function that was called, as many as fit, but none for a recording of more than 40,000 numbers. To find
    what a mistake changes, the recorded call runs once more for each. tokens: labels for the rows of arrays with one
    row per token, else those of the recording. memory: those of the tokens that a cross-attention reads, if there are
    more or fewer. told: a sentence about what the rows are, above all steps. start: the index of the step to begin at.
    progress: as in verify.gradients, for the mistakes. links: (address, text) of pages of the site that has this page.
    derive: by the index of a call, the address where its backward pass is derived, to which each of its lines links.
    Raises ValueError for an unknown bug, and if the recorded call gives other numbers when run again.
    """
    data = page_data(recording, tokens or recording.tokens, memory)
    data |= {"told": told, "start": start, "about": recording.about}
    data |= {"derive": derive} if derive else {}
    data["followed"] = followed(recording, data)
    data["bugs"] = bugs_data(recording, bugs, data, progress)
    name = recording.calls[0].name
    title = in_words(name if name.endswith(f".{recording.name}") else recording.name)
    return build(__package__, title, "step by step", data, _SCRIPTS, path, font.style(), links)
