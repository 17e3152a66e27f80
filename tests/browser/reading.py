"""What a page shows, read from its elements, and what a recording says it should."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
from playwright.sync_api import Page

from minitransformer.check.trace.calls import Binding
from minitransformer.school.show.stepper import Recording
from minitransformer.school.show.stepper.steps import Step
from minitransformer.school.show.stepper.stops import stops_of

FIGURES = """
() => [...document.querySelectorAll("#result .matrix.result")].map((figure) => ({
  name: figure.dataset.name,
  place: figure.dataset.place.split(",").map(Number),
  numbers: [...figure.querySelectorAll(".cell")].map((cell) => cell.dataset.value),
  wrong: [...figure.querySelectorAll(".cell")].map((cell) => cell.classList.contains("wrong")),
}))
"""


def shown_steps(recording: Recording) -> list[Step]:
    """Steps that bind an array, or a number that is not a size; a mask of only True or only False does not count."""

    def counts(bound: Binding) -> bool:
        if bound.value.dtype == "bool":
            return len(set(bound.value.array.ravel().tolist())) == 2
        return bound.value.shape != () or bound.value.dtype.startswith("float")

    return [s for s in recording.steps if not s.quiet and any(map(counts, s.bound))]


def stops(recording: Recording) -> list[Step]:
    """The steps at which the page stops."""
    return [recording.steps[index] for index in stops_of(recording).found]


def switch(page: Page, mistake: str | None) -> None:
    """Choose a mistake as its button in the list does; None: back to the correct code."""
    button = "#right" if mistake is None else f"[data-bug='{mistake}']"
    page.eval_on_selector(f"#game {button}", "button => button.click()")


def offered(page: Page) -> list[str]:
    """The mistakes that the page offers."""
    return page.locator("#bugs [data-bug]").evaluate_all("all => all.map((button) => button.dataset.bug)")


def chosen(page: Page) -> str:
    """The mistake that is switched on, or ""."""
    return page.get_attribute("#mistake", "data-name") or ""


def current(page: Page) -> int:
    return int(page.text_content("#counter").split()[0])


def set_in_type(sentence: str) -> str:
    """A sentence as the page shows it: ∑ for sum, an index lowered, and longer names of the code as words."""
    sentence = re.sub(r"(?<!\w)((?:1/)?√?)([A-Za-zγβ]{1,3})_\{?([A-Za-z]{1,2})\}?(?!\w)", r"\1\2\3", sentence)
    return re.sub(r"\bsum(?=[ijkt]\b)", "∑", sentence).replace("_", " ")


def at(recording: Recording, title: str) -> int:
    return recording.find(title)[0].index


def numbers(page: Page) -> dict[str, np.ndarray]:
    """What the page shows as bound by the current step."""
    return {found["name"]: np.array([float(n) for n in found["numbers"]]) for found in page.evaluate(FIGURES)}


def arrives(page: Page, number: int) -> None:
    """Wait until the page shows this step: after a click on a link, the step comes with hashchange."""
    until(page, f"parseInt(document.getElementById('counter').textContent) === {number}")


def go(page: Page, number: int) -> None:
    """As a link does: by the fragment. The page writes its address 100 ms after a step, maybe over this: then again."""
    page.evaluate(
        """async (number) => {
          const there = `#step=${number}`;
          const arrived = () => parseInt(document.getElementById("counter").textContent) === number;
          for (let tries = 0; tries < 3 && !arrived(); tries++) {
            if (location.hash === there) await new Promise((done) => setTimeout(done, 100)); // timers keep their order
            if (location.hash === there) continue;
            const moved = new Promise((done) => addEventListener("hashchange", done, { once: true }));
            location.hash = there;
            await moved;
          }
        }""",
        number,
    )
    assert current(page) == number


# Press a key so many times: how long the page takes each time, in milliseconds.
KEYS = """
async ([key, count]) => {
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
    await new Promise((done) => requestAnimationFrame(done));
  }
  return times;
}
"""


def answers_in_time(times: Callable[[], list[float]], most: int = 12) -> None:
    """Each press within a tenth of a second, in one round of at most so many. What else the machine does slows another
    press in each round; a page that is slow at a press is so in all of them."""
    best, rounds = np.array(np.inf), 0
    while rounds < most and best.max() >= 100.0:
        best, rounds = np.minimum(best, times()), rounds + 1
    print(f"{rounds} rounds: slowest {best.max():.0f} ms, median {np.median(best):.0f} ms")
    assert best.max() < 100.0, (
        f"press {best.argmax()} of {best.size} took {best.max():.0f} ms or more in {rounds} rounds"
    )


def until(page: Page, condition: str) -> None:
    """Wait for a condition in JavaScript. The page's security policy forbids Playwright's own wait_for_function."""
    look = f"const look = () => (({condition}) ? done() : setTimeout(look, 20)); look();"
    give_up = f"setTimeout(() => fail(new Error({json.dumps(condition)})), 60000);"
    page.evaluate(f"() => new Promise((done, fail) => {{ {give_up} {look} }})")
