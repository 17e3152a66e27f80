"""Which pages are about the same: the chapter, the exercises, the stepper and the code of an op.

A module of the code is what they have in common. A stepper's is that of the function that its recording calls first. An
exercise's is that of the public name in its own: `masked_attention_backward` has `attention`. A chapter is about what
its exercises are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...course.derive import Derivation, tasks
from ...course.exercise import docstring
from ..stepper.examples import EXAMPLES
from .frame import template, titled
from .modules import address_of, public_names
from .notebook import Chapter, Place

Link = tuple[str, str]  # address within the site, text

_EXERCISES = {  # those whose names do not tell, and what they are about
    "matmul_backward": "core.ops.linear",
    "broadcast_backward": "core.ops.linear",
    "label_smoothing_backward": "core.ops.cross_entropy",
    "causal_mask": "core.ops.attention",
    "padding_mask": "core.ops.attention",
    "local_mask": "ideas.after.local",
    "masked_softmax_forward": "core.ops.attention",
    "kv_cache_step": "core.layers.cache",
    "rolling_cache_scores": "ideas.after.window",
    "pre_norm_backward": "core.layers.residual",
    "post_norm_backward": "core.layers.residual",
    "shared_heads_backward": "core.ops.heads",
    "normed_scores_backward": "ideas.after.qk_norm",
    "online_softmax_step": "ideas.after.flash_attention",
    "latent_scores": "ideas.after.latent_attention",
    "mixture_backward": "ideas.after.experts",
}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def module_of(exercise: str) -> str:
    """The module that an exercise is about, such as "core.ops.softmax", or ""."""
    if exercise in _EXERCISES:
        return _EXERCISES[exercise]
    names = {_WORDS.sub("_", name).lower(): module for module, name in reversed(public_names())}
    found = [name for name in names if re.search(rf"(?:^|_){name}(?:_|$)", exercise)]
    return names[max(found, key=len)] if found else ""


def on_paper(found: Sequence[Place]) -> list[tuple[Place, Derivation]]:
    """The pairs of an exercise in code and one on paper that are about the same.

    Both are of one chapter or about one module, and what the one is about has every word of the other's name.
    """
    papers = [(one, module_of(name), _stems(name.removeprefix("derive_"))) for name, one in tasks().items()]
    codes = [(place, module_of(place.exercise.name), _stems(_told(place))) for place in found]
    return [
        (place, one)
        for one, module, wanted in papers
        for place, other, told in codes
        if wanted <= told and (place.chapter.number == one.chapter or module == other != "")
    ]


def _told(place: Place) -> str:
    return f"{place.exercise.name} {docstring(place.exercise.reference)}"


def _stems(text: str) -> set[str]:
    """How its words begin: "rotary" and "rotation" are one word here."""
    return {word[:4] for word in re.findall("[a-z]+", text.lower())}


def linked(pages: Iterable[Link], lead: str) -> str:
    """Links of a page in a folder of the site, with words before them; "" if there are none."""
    links = ", ".join(f'<a href="../{to}">{titled(text)}</a>' for to, text in pages)
    return f"{lead} {links}" if links else ""


@dataclass
class Siblings:
    """The pages about each module. steppers: of each module, the names of examples; write_steppers adds them."""

    chapters: dict[str, list[Chapter]] = field(default_factory=dict)
    exercises: dict[str, list[Place]] = field(default_factory=dict)
    steppers: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Iterable[Place]) -> Siblings:
        """The chapters and exercises of each module."""
        found = cls()
        for place in places:
            if module := module_of(place.exercise.name):
                found.exercises.setdefault(module, []).append(place)
                chapters = found.chapters.setdefault(module, [])
                if place.chapter not in chapters:
                    chapters.append(place.chapter)
        return found

    def about(self, chapter: Chapter) -> list[str]:
        """The modules that the exercises of a chapter are about."""
        return [module for module, chapters in self.chapters.items() if chapter in chapters]

    def links(self, modules: Iterable[str], leave_out: str = "") -> dict[str, list[Link]]:
        """The pages about some modules, by their kind. leave_out: the address of the page that has the links."""
        modules = [module for module in dict.fromkeys(modules) if module]
        chapters = [chapter for module in modules for chapter in self.chapters.get(module, [])]
        exercises = [place for module in modules for place in self.exercises.get(module, [])]
        steppers = [name for module in modules for name in self.steppers.get(module, [])]
        found = {
            "Chapter": [(f"chapters/{each.stem}.html", each.title) for each in chapters],
            "Exercise": [(f"exercises/{each.exercise.name}.html", each.exercise.title) for each in exercises],
            "Stepper": [(f"steppers/{name}.html", EXAMPLES[name].title) for name in steppers],
            "Code": [(address_of(module), module) for module in modules],
        }
        return {
            kind: list(dict.fromkeys(link for link in links if link[0] != leave_out)) for kind, links in found.items()
        }


def listed(links: dict[str, list[Link]]) -> str:
    """Links of a page in a folder of the site as a list, a line for each kind."""
    return template("siblings", links=links)


def in_turn(pages: Sequence[Link], here: str) -> str:
    """Links to the page before and the page after one, in the order of the course."""
    at = [to for to, _ in pages].index(here)
    return template("turn", before=pages[max(at - 1, 0) : at], after=pages[at + 1 : at + 2])
