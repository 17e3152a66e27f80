"""Every example from its first step to its last, at three widths, in large text, dark and printed: nothing is clipped.

The page walks by its own buttons inside one call to the browser, because asking it anew for each step takes far longer.
"""

import pytest
from playwright.sync_api import Page

from minitransformer.school.show.stepper import Recording
from minitransformer.school.show.stepper.examples import EXAMPLES

from .conftest import Example, Open
from .reading import stops, until

WIDTHS = (390, 1366, 1920)
LOOKS = ("plain", "large", "dark")
OFTEN = ("worked-example", "gru")  # the others in the sweep

# Elements in the way of which nothing may be: wider inside than outside, unless they are made to scroll or are inline.
CLIPPED = """
(within) => {
  const scrolls = ".listing, .numbers, dialog, input, select, .hidden, .skip, main .matrix, main .matrix *";
  const found = [];
  for (const element of document.querySelectorAll(`${within}, ${within} *`)) {
    if (element.scrollWidth <= element.clientWidth + 1 || element.clientWidth === 0) continue;
    if (getComputedStyle(element).display === "inline" || element.matches(scrolls)) continue;
    if (!element.checkVisibility()) continue;
    found.push(`${element.tagName}#${element.id}.${element.className} ${element.textContent.slice(0, 40)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push(`page ${document.documentElement.scrollWidth}`);
  return found;
}
"""

# Press a button until nothing moves, and check every step. Returns the steps and what is clipped.
WALK = f"""
(button) => {{
  const clipped = {CLIPPED};
  const here = () => Number(document.getElementById("counter").textContent.split(" ")[0]);
  document.getElementById("first").click();
  const [steps, found] = [[here()], []];
  for (;;) {{
    found.push(...clipped("body").map((what) => `${{steps.at(-1)}}: ${{what}}`));
    document.getElementById(button).click();
    if (here() === steps.at(-1)) return [steps, found];
    steps.push(here());
  }}
}}
"""

# Jump through some of the steps with the slider, and check these.
JUMP = f"""
(count) => {{
  const clipped = {CLIPPED};
  const slider = document.getElementById("slider");
  const found = [];
  const every = Math.max(1, Math.floor(slider.max / count));
  for (let i = 0; i <= slider.max; i += every) {{
    slider.value = i;
    slider.dispatchEvent(new Event("input"));
    found.push(...clipped("body").map((what) => `${{i}}: ${{what}}`));
  }}
  return found;
}}
"""


# Until the fonts are there and the page has been drawn with them.
DRAWN = "document.fonts.ready.then(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))))"


def look_at(page: Page, width: int, look: str) -> None:
    page.set_viewport_size({"width": width, "height": 768})
    page.emulate_media(media="screen", color_scheme="dark" if look == "dark" else "light")
    if (page.get_attribute("#large", "aria-pressed") == "true") != (look == "large"):
        page.keyboard.press("t")
    page.evaluate(DRAWN)  # a script that holds the page would measure the look before this one


def walk(page: Page, recording: Recording) -> None:
    """By step, by over, then printed. By over it takes 30 presses at most; 50 for an op of 40 lines, which has no call
    to go over."""
    steps, clipped = page.evaluate(WALK, "next")
    assert steps == [step.index for step in stops(recording)] and clipped == []
    over, clipped = page.evaluate(WALK, "over")
    most = 50 if recording.name in ("delta_chunk", "channel_chunk") else 30
    assert over[0] == steps[0] and len(over) - 1 <= most and set(over) <= set(steps) and clipped == []
    assert all(recording.calls[recording.steps[s].call].parent is None for s in over)
    page.emulate_media(media="print")
    until(page, f"document.querySelectorAll('#handout article').length === {len(steps)}")
    assert page.evaluate(CLIPPED, "#handout") == []
    page.set_viewport_size({"width": 718, "height": 1047})  # A4 without its margins
    assert page.evaluate(CLIPPED, "#handout") == []


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.sweep) for name in EXAMPLES]
)
def test_nothing_is_clipped(open_page: Open, example: Example, name: str) -> None:
    """Every step on a lecturer's screen, and some of the steps elsewhere."""
    recording, path = example(name)
    page = open_page(path)
    look_at(page, 1366, "plain")
    walk(page, recording)
    for width, look in ((390, "plain"), (390, "large"), (1366, "large"), (1920, "dark")):
        look_at(page, width, look)
        assert page.evaluate(JUMP, 8) == [], (width, look)
        page.evaluate("document.getElementById('view').open = true")  # on a telephone its buttons fold
        assert page.evaluate(CLIPPED, "header") == [], (width, look)


@pytest.mark.sweep
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_clipped_anywhere(open_page: Open, example: Example, name: str, width: int, look: str) -> None:
    """The whole product: every step of every example at every width in every look."""
    recording, path = example(name)
    page = open_page(path)
    look_at(page, width, look)
    walk(page, recording)
