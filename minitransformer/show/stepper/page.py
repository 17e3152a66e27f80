"""The page of a recording, with the mistakes that can be switched on in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...verify.gradients import Progress
from .. import font
from ..page import build
from .page_bugs import bugs_data
from .page_data import page_data
from .steps import Steps

_SCRIPTS = [
    f"page_{name}.js" for name in "arrays terms twin edit formula matrix line mistakes predict map motion state".split()
]


def to_html(
    recording: Steps,
    path: str | os.PathLike[str] | None = None,
    *,
    bugs: Iterable[str] | None = None,
    tokens: Sequence[str] = (),
    memory: Sequence[str] = (),
    progress: Progress = iter,
) -> str:
    """The page as a text, also written to `path` if given.

    bugs: names of course.mistakes.MISTAKES that can be switched on in the page. By default, the page has the mistakes
    in every function that was called, as many as fit, but none for a recording of more than 40,000 numbers. To find
    what a mistake changes, the recorded call runs once more for each. tokens: labels for the rows of arrays with one
    row per token. memory: those of the tokens that a cross-attention reads, if there are more or fewer. progress: as in
    verify.gradients, for the mistakes. Raises ValueError for an unknown bug, and if the recorded call gives other
    numbers when run again.
    """
    data = page_data(recording, tokens, memory)
    data["bugs"] = bugs_data(recording, bugs, data, progress)
    return build(__package__, recording.name, "step by step", data, _SCRIPTS, path, font.style())
