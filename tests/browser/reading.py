"""What a page shows, read from its elements, and what a recording says it should."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import Page

from minitransformer.show.stepper import Recording
from minitransformer.show.stepper.steps import Step
from minitransformer.trace.calls import Binding

FIGURES = """
() => [...document.querySelectorAll("#result .matrix.result")].map((figure) => ({
  name: figure.dataset.name,
  numbers: [...figure.querySelectorAll(".cell")].map((cell) => cell.dataset.value),
  wrong: [...figure.querySelectorAll(".cell")].map((cell) => cell.classList.contains("wrong")),
}))
"""


def shown_steps(recording: Recording) -> list[Step]:
    """Steps that bind an array, or a number that is no size."""

    def counts(bound: Binding) -> bool:
        return bound.value.shape != () or bound.value.dtype.startswith("float")

    return [s for s in recording.steps if not s.quiet and any(map(counts, s.bound))]


def current(page: Page) -> int:
    return int(page.text_content("#counter").split()[0])


def at(recording: Recording, title: str) -> int:
    return recording.find(title)[0].index


def numbers(page: Page) -> dict[str, np.ndarray]:
    """What the page shows as bound by the current step."""
    return {found["name"]: np.array([float(n) for n in found["numbers"]]) for found in page.evaluate(FIGURES)}


def go(page: Page, number: int) -> None:
    """As a link does: by the fragment."""
    page.evaluate(
        """(number) => new Promise((done) => {
          if (location.hash === `#step=${number}`) return done();
          addEventListener("hashchange", () => done(), { once: true });
          location.hash = `#step=${number}`;
        })""",
        number,
    )
    assert current(page) == number
