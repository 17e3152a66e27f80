"""axe-core finds nothing on any page of the site or the stepper, in both schemes: WCAG 2.2 A and AA, and its advice."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from minitransformer.school.show.stepper.examples import EXAMPLES

from .conftest import Example, Open
from .reading import stops

CHAPTER = "chapters/04_softmax_backward.html"
SITE = [
    "index.html", "search.html?q=softmax", "chapters/index.html", CHAPTER, "chapters/06_attention_by_hand.html",
    "exercises/index.html", "exercises/softmax_backward.html",
    "exercises/derive_softmax.html", "code/index.html", "code/core-ops-attention.html",
    "steppers/index.html", "reference/index.html", "reference/ops.html", "teachers/index.html", "families.html",
    "teachers/weeks.html", "questions/06_attention_by_hand.html",
    "teachers/worksheets.html", "slides/04_softmax_backward.html", "steppers/attention-of-a-model.html",
]  # fmt: skip
SCHEMES = ("light", "dark")
# Two rules that axe leaves out unless asked.
RULES = {"rules": {name: {"enabled": True} for name in ("label-content-name-mismatch", "target-size")}}


def complaints(page: Page) -> list[tuple[str, str]]:
    """What axe-core finds, however minor: the rule, and the first element that violates it."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found]


@pytest.mark.few(6, slow=0)
@pytest.mark.parametrize("path", SITE)
def test_a_page_of_the_site_is_accessible(visit: Open, path: str) -> None:
    page = visit(path, reduced_motion="reduce")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert complaints(page) == [], scheme  # a page hears of the new scheme in the next frame


@pytest.mark.parametrize(("scheme", "width"), [("light", 1366), ("dark", 390)])
def test_what_the_search_finds_is_accessible(visit: Open, scheme: str, width: int) -> None:
    page = visit("index.html", color_scheme=scheme, viewport={"width": width, "height": 768}, reduced_motion="reduce")
    page.wait_for_selector("#heads button")
    page.locator("header input").fill("softmax")
    page.wait_for_selector("header .found a")
    assert complaints(page) == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.sweep)])
def test_a_chapter_is_accessible_whole_while_python_runs_and_where_it_failed(visit: Open, scheme: str) -> None:
    page = visit(CHAPTER, color_scheme=scheme)
    page.get_by_role("button", name="Show everything").click()
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => (each.open = true))")
    ask = "new Promise((resolve) => (python.current = { resolve }))"
    page.evaluate(f"() => {{ python.worker = {{ terminate() {{}} }}; python.ask = () => {ask}; }}")
    page.get_by_role("button", name="Run cell 1", exact=True).click()
    page.wait_for_function("() => byId('elapsed').textContent")
    assert complaints(page) == []
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Try again").wait_for()
    assert complaints(page) == []


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.sweep)])
def test_the_viewer_is_accessible_with_gradients_and_while_a_cell_is_read(visit: Open, scheme: str) -> None:
    page = visit("steppers/attention-of-a-model.html", color_scheme=scheme)
    page.keyboard.press("g")
    page.locator("#matrix td button").first.focus()
    assert complaints(page) == []


TEN = "worked-example attention multi-head layer-norm ffn encoder-layer decoder-layer cross-entropy lstm gpt".split()
OF_A_STEPPER = {"reduced_motion": "reduce", "bypass_csp": True}


@pytest.mark.parametrize(
    ("name", "every", "scheme"),
    [
        ("attention", 4, "dark"),
        *(pytest.param(name, 1, scheme, marks=pytest.mark.sweep) for name in TEN for scheme in ("light", "dark")),
    ],
)
def test_no_step_breaks_a_rule(open_page: Open, example: Example, name: str, every: int, scheme: str) -> None:
    """With the colours of the heat map, on which digits of gradients had a contrast of 2.4."""
    recording, path = example(name)
    page = open_page(path, color_scheme=scheme, **OF_A_STEPPER)
    page.keyboard.press("h")
    for i in range(len(stops(recording))):
        if i % every == 0:
            assert complaints(page) == [], i
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.sweep)])
def test_the_list_of_mistakes_and_a_mistake_break_no_rule(open_page: Open, tmp_path: Path, scheme: str) -> None:
    EXAMPLES["attention"].record(verify=True).to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", color_scheme=scheme, **OF_A_STEPPER)
    for clicked in ("#mistakes", "#surprise", "#give-up"):
        page.click(clicked)
        assert complaints(page) == [], clicked
    page.keyboard.press("f")
    assert complaints(page) == []
