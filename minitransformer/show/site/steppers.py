"""The pages of the stepper's examples, and where in them each line of the code runs."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path

from ...text import english
from ...verify.gradients import Progress
from ..stepper.examples import EXAMPLES
from ..stepper.recording import Recording
from ..viewer.command import view_text
from .frame import Site
from .live import FIRST
from .modules import file_of, shown_modules
from .siblings import Link, Siblings

VIEWED = " ".join(english(FIRST))  # what the demo's model translates

_BACK = [("../index.html", "minitransformer"), ("index.html", "Steppers")]
_ABOUT = {"worked-example": "ops.attention"}  # it calls parts of what it is about


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
    seen, items = Seen(), []
    files = {file_of(module): module for module in shown_modules()}
    for name, example in progress(list(EXAMPLES.items())):
        recording = example.record(verify=True)
        address = f"steppers/{name}.html"
        module = _ABOUT.get(name) or next((files[c.file] for c in recording.calls if c.file in files), "")
        siblings.steppers.setdefault(module, []).append(name)
        recording.to_html(site.made(address), links=[*_BACK, *_turns(name), *_elsewhere(siblings, module)])
        seen.add(name, recording)
        site.index(address, f"{example.title} (stepper)", name)
        items.append(f'<li><a href="{name}.html">{html.escape(example.title)}</a></li>\n')
    viewer = ""
    if model is not None:
        view_text(model, VIEWED).to_html(site.made("steppers/attention-of-a-model.html"), _BACK)
        site.index("steppers/attention-of-a-model.html", "The attention of a trained model", VIEWED)
        viewer = (
            "<h2>A trained model</h2>\n<p>The attention of a small translator in every layer and head: "
            f'<a href="attention-of-a-model.html">{VIEWED}</a></p>\n'
        )
    body = (
        "<h1>Steppers</h1>\n<p>Each page steps through code line by line, forward and backward, with every number. "
        "The address of the page names the step, so a link leads to a line.</p>\n"
        f"<ul>{''.join(items)}</ul>\n{viewer}"
    )
    site.page("steppers/index.html", "Steppers", body)
    return seen


def _turns(name: str) -> list[Link]:
    """The steppers before and after one."""
    names = list(EXAMPLES)
    before, after = names[: names.index(name)][-1:], names[names.index(name) + 1 :][:1]
    return [*((f"{each}.html", f"← {each}") for each in before), *((f"{each}.html", f"{each} →") for each in after)]


def _elsewhere(siblings: Siblings, module: str) -> list[Link]:
    """The first chapter and exercise about a module, and its code."""
    found = siblings.links([module]).items()
    return [(f"../{links[0][0]}", f"{kind}: {links[0][1]}") for kind, links in found if links and kind != "Stepper"]
