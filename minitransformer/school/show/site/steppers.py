"""The pages of the stepper's examples, and where in them each line of the code runs."""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ....check import docstrings
from ....check.verify.gradients import Progress
from ....core.arrays.files import write
from ....core.text import english
from ...course.derive import tasks
from ..sheet import workbook
from ..stepper.examples import EXAMPLES
from ..stepper.recording import Recording
from ..stepper.sentences import sentence_of
from ..viewer.command import view_text
from .frame import Site, template
from .live import FIRST
from .modules import address_of, file_of, shown_modules
from .siblings import Link, Siblings

VIEWED = " ".join(english(FIRST))  # what the demo's model translates

_BACK = [("../index.html", "minitransformer"), ("index.html", "Steppers")]
_ABOUT = {"worked-example": "core.ops.attention"}  # it calls parts of what it is about


@dataclass
class Seen:
    """What the recordings show of the code. steps: for a file and a line, an address. shapes: for a function (its file
    and first line) and a name, the shape it has there.
    """

    steps: dict[tuple[str, int], str] = field(default_factory=dict)
    shapes: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)

    def add(self, name: str, recording: Recording) -> None:
        """Note the lines of a recording that no earlier one has shown."""
        for step in recording.steps:
            call = recording.calls[step.call]
            forward = recording.calls[call.forward_call]
            if not step.quiet:
                self.steps.setdefault((call.file, step.line), f"steppers/{name}.html#step={step.index}")
            shapes = self.shapes.setdefault((forward.file, forward.first_line), {})
            for bound in step.bound:
                shapes.setdefault(bound.name, str(bound.value.shape) if bound.value.shape else "one number")


def write_steppers(site: Site, siblings: Siblings, model: Path | None, progress: Progress = iter) -> Seen:
    """Write a page for each example, one for the attention of a model if there is one, and the list of all.

    siblings: gets the steppers of each module. progress: as in verify.gradients, for the examples, which take most of
    the time of a build.
    """
    seen = Seen()
    cards: dict[str, list[dict[str, Any]]] = {"The paper": [], "Before and after it": []}
    files = {file_of(module): module for module in shown_modules()}
    derived = {file_of(module): address_of(module) for module in docstrings.modules() if module in files.values()}
    for name, example in progress(list(EXAMPLES.items())):
        recording = example.record(verify=True)
        address = f"steppers/{name}.html"
        module = _ABOUT.get(name) or next((files[c.file] for c in recording.calls if c.file in files), "")
        siblings.steppers.setdefault(module, []).append(name)
        links = [*_BACK, *_turns(name), *_elsewhere(siblings, module), *_sheet(site, name, recording)]
        recording.to_html(site.made(address), links=links, derive=_derivations(recording, derived))
        seen.add(name, recording)
        site.index(address, f"{example.title} (stepper)", name)
        kind = list(cards)[any("/ideas/" in call.file for call in recording.calls)]
        cards[kind].append(
            {"name": name, "title": example.title, "told": _told(recording), "picture": _picture(recording)}
        )
    if model is not None:
        view_text(model, VIEWED).to_html(site.made("steppers/attention-of-a-model.html"), _BACK)
        site.index("steppers/attention-of-a-model.html", "The attention of a trained model", VIEWED)
    shown = {kind: made for kind, made in cards.items() if made}
    body = template("steppers", examples=EXAMPLES, cards=shown, viewed="" if model is None else VIEWED)
    site.page("steppers/index.html", "Steppers", body)
    return seen


def _derivations(recording: Recording, derived: dict[str, str]) -> dict[int, str]:
    """Where each call's backward pass is derived: in an exercise of its name, or in the docstring of its file."""
    forward = [call for call in recording.calls if not call.backward]
    found = {call.index: (f"derive_{call.name}", derived.get(call.file)) for call in forward}
    pages = {i: f"exercises/{name}.html" if name in tasks() else page for i, (name, page) in found.items()}
    return {i: f"../{page}" for i, page in pages.items() if page}


def _sheet(site: Site, name: str, recording: Recording) -> list[Link]:
    """The example as a workbook, written beside its page; nothing where it cannot be one."""
    try:
        content = workbook(recording, name)
    except ValueError:
        return []
    write(site.made(f"steppers/{name}.xlsx"), content)
    return [(f"{name}.xlsx", "Spreadsheet")]


def _told(recording: Recording) -> str:
    """The first sentence of a stepper, for its card."""
    told = sentence_of(recording, recording.steps[0]).rpartition(" begins: ")[2]
    first = re.sub(r"`(\w+)`", r"<i>\1</i>", html.escape(re.split(r"(?<=[.:;]) ", told)[0].rstrip(".:;")))
    return f"{first[:1].upper()}{first[1:]}."


def _picture(recording: Recording) -> str:
    """The arrays that go in, an arrow, and what comes out: squares, the stronger the farther from 0."""
    given = [b.value.array for b in recording.steps[0].bound if b.value.array is not None and b.value.array.ndim]
    parts, x = [], 0
    heights: list[int] = []
    for array in (*given[:4], recording.calls[0].results[0].value.array):
        numbers = np.atleast_1d(np.asarray(array, float)).reshape(-1, array.shape[-1] if array.ndim else 1)
        if len(heights) == len(given[:4]):
            parts.append(f'<path d="M{x} 20h12m-5 -4l5 4l-5 4"/>')
            x += 20
        largest = float(np.abs(numbers).max(initial=0.0)) or 1.0
        for (i, j), number in np.ndenumerate(numbers):
            below = ' class="below"' if number < 0 else ""
            share = 0.15 + 0.85 * abs(number) / largest
            parts.append(f'<rect{below} x="{x + 10 * j}" y="{10 * i}" width="9" height="9" opacity="{share:.2f}"/>')
        x += 10 * numbers.shape[1] + 8
        heights.append(10 * len(numbers))
    size = f"{max(x - 8, 120)} {max(*heights, 40)}"
    return f'<svg viewBox="0 0 {size}" aria-hidden="true">{"".join(parts)}</svg>'


def _turns(name: str) -> list[Link]:
    """The steppers before and after one."""
    names = list(EXAMPLES)
    before, after = names[: names.index(name)][-1:], names[names.index(name) + 1 :][:1]
    return [*((f"{each}.html", f"← {each}") for each in before), *((f"{each}.html", f"{each} →") for each in after)]


def _elsewhere(siblings: Siblings, module: str) -> list[Link]:
    """The first chapter and exercise about a module, and its code."""
    found = siblings.links([module]).items()
    return [(f"../{links[0][0]}", f"{kind}: {links[0][1]}") for kind, links in found if links and kind != "Stepper"]
