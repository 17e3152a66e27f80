"""What fits on a screen, what stays in sight, and where the focus is, in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer import layers
from minitransformer.school.show.stepper import step
from minitransformer.school.show.stepper.page import to_html

from .conftest import Example, Files, Open, Recordings
from .reading import at, go, until

pytestmark = pytest.mark.browser

LAPTOP = {"width": 1366, "height": 768}


IN_SIGHT = """
() => {
  const places = (selector) => [...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect());
  const bottom = (selector) => Math.max(...places(selector).map((place) => place.bottom));
  const bar = document.querySelector(".transport").getBoundingClientRect().top;
  const space = bar - document.querySelector("main").getBoundingClientRect().top;
  return {
    formulas: document.querySelectorAll("#formulas a").length,
    below: [bottom("#formulas a"), bottom("#result .matrix"), bottom("#map .box")].filter((y) => y > bar),
    cut: [...document.querySelectorAll("#result .matrix")].filter((e) => e.scrollWidth > e.clientWidth).length,
    filled: [bottom("#result .matrix"), bottom("#map .box")].map((y) => 1 - (bar - y) / space),
    right: Math.max(...places("#result .matrix").map((place) => place.right)) / innerWidth,
  };
}
"""


@pytest.mark.parametrize(("width", "height", "large"), [(1366, 768, False), (1920, 1080, False), (1920, 1080, True)])
def test_the_first_screen_shows_all_and_uses_its_space(
    open_page: Open, files: Files, width: int, height: int, large: bool
) -> None:
    """Large text cut the formulas to two of eight, and on a laptop half of the screen was empty."""
    page = open_page(files["attention"], viewport={"width": width, "height": height})
    if large:
        page.keyboard.press("t")
        assert page.is_hidden("#listing")
    seen = page.evaluate(IN_SIGHT)
    assert seen["formulas"] == 8 and seen["below"] == [] and seen["cut"] == 0
    assert min(seen["filled"]) > 0.5 and seen["right"] > 0.8


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


SIZES = at_every_step("""
const zoom = (cell) => cell.closest(".matrices").style.zoom * (cell.closest(".slices").style.zoom || 1);
const sizeOf = (cell) => parseFloat(getComputedStyle(cell).fontSize) * zoom(cell);
const cells = [...document.querySelectorAll("#result .matrix:not(.pair) .cell, #operands .cell")];
found.push([document.querySelector("#formula").textContent, ...cells.map(sizeOf)]);
""")


@pytest.mark.parametrize("name", ["attention", pytest.param("multi-head", marks=pytest.mark.sweep)])
def test_large_text_makes_no_number_smaller(open_page: Open, example: Example, name: str) -> None:
    """The numbers of 7 of 14 steps of attention were: 23.2 pixels became 22."""
    page = open_page(example(name)[1], viewport=LAPTOP, reduced_motion="reduce")
    before = page.evaluate(SIZES)
    page.keyboard.press("t")
    after = page.evaluate(SIZES)
    assert len(before) == len(after) > 10
    smaller = {
        a[0] for a, b in zip(before, after, strict=True) if any(y < x - 0.1 for x, y in zip(a[1:], b[1:], strict=True))
    }
    assert smaller == set() and max(x for at in after for x in at[1:]) > 22
    larger = sum(min(b[1:]) > min(a[1:]) + 0.5 for a, b in zip(before, after, strict=True) if a[1:])
    assert larger >= 0.75 * sum(bool(a[1:]) for a in before)  # not only the prose


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


def test_heads_stand_side_by_side(open_page: Open, tmp_path: Path) -> None:
    """Four heads stood in one column, most out of sight; a matrix too wide for any place says that it scrolls."""
    layer = layers.MultiHeadAttention(64, 4, rng=np.random.default_rng(2)).to(dtype="float64")
    x, memory = np.random.default_rng(3).normal(size=(2, 4, 64))
    recording = step(layer, x, memory[:2])
    to_html(recording, tmp_path / "heads.html", bugs=())
    place = f"#step={at(recording, 'attention.weights')}"
    page = open_page(tmp_path / "heads.html", place, viewport={"width": 1920, "height": 1080}, reduced_motion="reduce")
    for _ in range(2):
        tops = page.locator("#result table").evaluate_all("all => all.map((e) => e.getBoundingClientRect().top)")
        assert tops[0] == tops[1] and len(tops) == 4 and len(set(tops)) <= 2
        page.keyboard.press("t")
    page.keyboard.press("End")
    assert page.locator(".numbers .scrolls").count() == 0
    figure = page.locator(".numbers figure:has(.folded)").first
    shown = figure.locator(".cell:visible").count()
    assert "… stands for" in figure.locator(".folded").inner_text() and shown < figure.locator(".cell").count()
    figure.get_by_role("button", name="Show all").click()
    assert page.locator(".numbers .scrolls").count() == 1 and page.locator(".scrolls td[hidden]").count() == 0


def test_a_marked_number_is_never_folded(open_page: Open, tmp_path: Path) -> None:
    layer = layers.Linear(64, 3, rng=np.random.default_rng(2)).to(dtype="float64")
    recording = step(layer, np.random.default_rng(3).normal(size=(4, 64)))
    to_html(recording, tmp_path / "row.html", bugs=())
    page = open_page(tmp_path / "row.html", viewport=LAPTOP, reduced_motion="reduce")
    page.keyboard.press("End")
    figure = page.locator("figure[data-name='dx'].result")
    assert figure.locator("[data-flat='40']").is_hidden()
    figure.locator("[data-flat='40']").evaluate("cell => cell.click()")
    assert figure.locator("[data-flat='40']").is_visible() and figure.locator("[data-flat='39']").is_hidden()


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


def test_result_first_then_the_sum_the_operands_and_the_check(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["attention"], f"#step={at(recordings['attention'], 'attention.dv')}", viewport=LAPTOP)
    assert page.locator("#result .matrix").evaluate_all("all => all.map((f) => f.dataset.name)") == ["dv", "v"]
    page.click("#result .result [data-flat='7']")
    tops = [top(page, part) for part in ("#result", "#sum", "#operands", "#checks")]
    assert tops == sorted(tops)
    assert page.locator("#checks details").count() == 1 and page.locator("#checks details[open]").count() == 0
    page.locator("#checks summary").click()
    assert page.is_visible("#checks .numerical")


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


SIDE = at_every_step("""
const edge = document.querySelector(".transport").getBoundingClientRect().top;
const hint = document.getElementById("more-below");
const bottom = (id) => document.getElementById(id).getBoundingClientRect().bottom;
const list = document.getElementById("formulas");
const cut = Math.max(bottom("sentence"), bottom("formulas")) > edge + 1
  || list.scrollHeight > list.clientHeight + list.scrollTop + 4;
const rounded = now.classList.contains("rounded");
found.push({ before, cut, hint: !hint.hidden, list: list.clientHeight, rounded, less: now.classList.contains("less") });
""")


def test_large_text_uses_its_room_and_says_what_is_below(open_page: Open, example: Example) -> None:
    """A sentence ended under the bar, the formulas had no height, and numbers had two decimals beside a void."""
    page = open_page(example("multi-head")[1], viewport=LAPTOP, reduced_motion="reduce")
    page.keyboard.press("t")
    seen = page.evaluate(SIDE)
    assert len(seen) > 20 and [at for at in seen if at["cut"] != at["hint"] or at["list"] < 100] == []
    assert [at["before"] for at in seen if at["rounded"] and not at["less"]] == []
    assert page.is_visible("#more-below")
    for _ in range(20):
        page.eval_on_selector("#more-below", "hint => hint.hidden || hint.click()")
        page.wait_for_timeout(30)
    assert page.is_hidden("#more-below")
