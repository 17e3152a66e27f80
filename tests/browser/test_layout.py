"""What fits on a screen, what stays in sight, and where the focus is, in a real browser."""

import pytest
from playwright.sync_api import Page

from .conftest import Example, Files, Open, Recordings
from .reading import at, go, until

LAPTOP = {"width": 1366, "height": 768}


def at_every_step(look: str) -> str:
    """JavaScript that goes to every step, `before`, and returns what `look` has put into `found`."""
    return f"""
() => {{
  const [now, found] = [document.getElementById("now"), []];
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
  const shown = () => parseInt(document.getElementById("counter").textContent);
  press("Home");
  for (let before = -1; before !== shown(); press("ArrowRight")) {{
    before = shown();
    {look}
  }}
  return found;
}}
"""


CUT = at_every_step("""
const panel = document.getElementById("now").getBoundingClientRect().right;
const cut = [...document.querySelectorAll("#result .cell, #operands .cell")].filter((cell) => {
  const right = cell.getBoundingClientRect().right;
  return right > Math.min(panel, cell.closest(".matrix").getBoundingClientRect().right) + 0.5;
});
if (cut.length) found.push([before, cut.length]);
""")


OUT_OF_SIGHT = at_every_step("""
const [over, blank] = [now.scrollHeight - now.clientHeight, document.scrollingElement.scrollHeight - innerHeight];
if (over > 1 || blank > 0) found.push([before, over, blank]);
""")


@pytest.mark.parametrize("name", ["attention", "multi-head"])
def test_results_and_operands_are_in_sight_together(open_page: Open, example: Example, name: str) -> None:
    """On a laptop the backward pass scrolled: who saw Q no longer saw dK. Hidden captions made the page longer."""
    recording, path = example(name)
    size = {"width": 1366, "height": 741}  # of a laptop, less the row that the site has above
    page = open_page(path, viewport=size, reduced_motion="reduce")
    assert page.evaluate(OUT_OF_SIGHT) == []
    page.keyboard.press("t")
    assert page.evaluate(OUT_OF_SIGHT) == []
    if name == "multi-head":  # the last step has more results than fit; those of the parameters come when asked for
        results = page.locator("#result .result")
        assert results.count() > 3 and page.locator("#result .result:visible").count() == 1
        page.click("#result button:has-text('Also')")
        assert page.locator("#result .result:visible").count() == results.count()
        page.set_viewport_size({"width": 1366, "height": 660})
        go(page, at(recording, "attention.dq"))
        assert page.is_hidden("#result .pair")  # the value beside the gradient, which others have room for
        go(page, at(recording, "attention.dv"))
        page.set_viewport_size({"width": 1366, "height": 1600})
        page.wait_for_selector("#result .pair", state="visible")


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("attention", 1920),
        ("encoder-layer", 1366),
        pytest.param("attention", 1366, marks=pytest.mark.sweep),
        pytest.param("encoder-layer", 1920, marks=pytest.mark.sweep),
    ],
)
def test_large_text_cuts_no_number(open_page: Open, example: Example, name: str, width: int) -> None:
    """At 1920 pixels, columns of 3 of 14 steps of attention ended beyond the edge, and nothing said so."""
    size = {"width": width, "height": width * 9 // 16}
    page = open_page(example(name)[1], viewport=size, reduced_motion="reduce")
    page.keyboard.press("t")
    assert page.evaluate(CUT) == []
    if name == "attention":
        page.click("#edit")
        page.fill("#inputs input >> nth=0", "123.456")
        page.keyboard.press("Tab")
        assert page.evaluate(CUT) == []


def test_text_size_and_colours_are_kept_and_stand_in_the_address(open_page: Open, files: Files) -> None:
    page = open_page(files["attention"], color_scheme="light")
    page.keyboard.press("t")
    page.keyboard.press("d")
    assert page.url.endswith("#step=0&large&dark") and page.evaluate("localStorage['minitransformer:theme']") == "dark"
    linked = open_page(files["attention"], "#step=0&large&dark", color_scheme="light")
    later = page.context.new_page()
    later.goto(files["attention"].as_uri())
    until(later, "localStorage['minitransformer:theme'] === 'dark'")  # another process wrote it
    later.reload()
    for shown in (later, linked):
        until(shown, "document.documentElement.matches('.large[data-theme=dark]')")
        assert shown.get_attribute("#large", "aria-pressed") == shown.get_attribute("#theme", "aria-pressed") == "true"


def top(page: Page, selector: str) -> float:
    return page.locator(selector).bounding_box()["y"]


def test_the_current_line_is_in_sight_where_an_address_leads(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """What came after the first drawing made the listing lower, and left its line below the edge."""
    step = at(recordings["encoder"], "layer_norm#1.y")
    page = open_page(files["encoder"], f"#step={step}", viewport=LAPTOP)
    for height in (768, 560):
        page.set_viewport_size({"width": 1366, "height": height})
        page.evaluate("document.fonts.ready.then(() => null)")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
        until(
            page,
            """(() => {
              const place = (selector) => document.querySelector(selector).getBoundingClientRect();
              const [line, box] = ["#formulas .line.lit", "#formulas"].map(place);
              return line.top >= box.top && line.bottom <= Math.min(box.bottom, innerHeight);
            })()""",
        )


def test_the_focus_stays_where_it_was(open_page: Open, recordings: Recordings, files: Files) -> None:
    """At the last step the button was disabled, and the focus fell to the body, as it did after a click on a cell."""
    page = open_page(files["worked"])
    page.keyboard.press("End")
    page.click("#previous")
    page.click("#next")
    assert page.get_attribute("#next", "aria-disabled") == "true"
    assert page.evaluate("document.activeElement.id") == "next"
    page.click("#result .result [data-flat='1']")
    assert page.evaluate("document.activeElement.matches('.cell.asked')")


def test_a_telephone_has_the_numbers_after_the_sentence_and_one_row_of_controls(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """Header, map and controls took 380 of 844 pixels."""
    step = at(recordings["attention"], "attention.dv")
    page = open_page(files["attention"], f"#step={step}", viewport={"width": 390, "height": 844})
    heights = [page.locator(part).bounding_box()["height"] for part in ("header", "footer")]
    assert sum(heights) < 130 and page.is_hidden("#map") and page.is_hidden("#heat")
    tops = [top(page, part) for part in ("#sentence", "#result", "#operands", "#formulas")]
    assert tops == sorted(tops)
    page.click("#view summary")
    page.click("#heat")
    assert page.get_attribute("#heat", "aria-pressed") == "true"
