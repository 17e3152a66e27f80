"""Suspects: mistakes under labels that do not reveal what is wrong, so that a student can search for the mistake.

A label is a hash of the mistake's name, so students cannot read a table of labels. `label("softmax-no-sum")` gives it
to the teacher; `label("innocent")` is the label of the right code.
"""

import contextlib
import difflib
import hashlib
import textwrap

from ...check.verify.mistakes import MISTAKES, Mistake

INNOCENT = "innocent"


def label(name: str) -> str:
    """The label of the mistake of that name, or of INNOCENT: six hexadecimal digits."""
    return hashlib.sha256(name.encode()).hexdigest()[:6]


class Suspect:
    """The package's code, possibly with a mistake: `with suspect.applied(): ...` runs it, `reveal()` explains it."""

    def __init__(self, label: str, variant: Mistake | None) -> None:
        self._label = label
        self._variant = variant

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """Put the mistake in place for a while; see `Mistake.applied`."""
        return self._variant.applied() if self._variant else contextlib.nullcontext()

    def reveal(self) -> str:
        """Where the mistake is, what it is, and the code: right (-) and wrong (+)."""
        if self._variant is None:
            return "nothing is wrong here"
        variant = self._variant
        shown = [f"in {variant.target}: {variant.sentence}"]
        for edit in variant.edits:
            old, new = (textwrap.dedent(text).splitlines() for text in edit)
            shown += [f"   {line}" for line in difflib.ndiff(old, new) if line.startswith(("- ", "+ "))]
        return "\n".join(shown)

    def __repr__(self) -> str:
        return f"suspect({self._label!r})"


def suspect(label: str) -> Suspect:
    """The suspect of that label. Raises ValueError for an unknown label."""
    if label not in _SUSPECTS:
        raise ValueError(f"unknown suspect {label!r}; expected one of the labels in the notebook")
    return Suspect(label, _SUSPECTS[label])


_SUSPECTS: dict[str, Mistake | None] = {label(INNOCENT): None}
_SUSPECTS |= {label(name): variant for name, variant in MISTAKES.items()}
