"""What a lecturer needs by tomorrow: where to begin, what to print, and names that say what one finds."""

import re

import pytest
from playwright.sync_api import Page, expect

from .conftest import Open
from .test_accessible import complaints

PRINTED = [
    "index.html", "chapters/06_attention_by_hand.html", "exercises/attention_backward.html", "exercises/index.html",
    "steppers/index.html", "steppers/softmax.html", "steppers/attention-of-a-model.html", "teachers/index.html",
    "slides/06_attention_by_hand.html", "sheets/attention-forward.html", "sheets/concepts-1.html",
    "questions/06_attention_by_hand.html",
    "code/core-ops-attention.html", "reference/ops.html", "search.html?q=softmax",
]  # fmt: skip


def test_the_teachers_page_begins_with_a_lesson_for_tomorrow(visit: Open) -> None:
    page = visit("teachers/index.html")
    lesson = page.locator("main > section").first
    expect(lesson.get_by_role("heading").first).to_have_text("I teach this tomorrow")
    assert lesson.locator("li > a:first-child").evaluate_all("links => links.map((a) => a.getAttribute('href'))") == [
        "../steppers/attention.html",
        "../slides/06_attention_by_hand.html",
        "../sheets/attention-forward.html",
        "../questions/06_attention_by_hand.html",
        lesson.get_by_role("link", name="first backward line").get_attribute("href"),
        "../slides/07_attention_backward.html",
        "../sheets/attention-backward.html",
        "../questions/07_attention_backward.html",
        "../exercises/attention_backward.html",
    ]
    assert all("min" in text for text in lesson.locator("li").all_inner_texts())
    assert lesson.bounding_box()["y"] < 200  # type: ignore[index]
    for name in ("Attention, line by line", "Slides", "A worksheet", "Five questions", "An exercise"):
        lesson.get_by_role("link", name=name).first.click()
        page.wait_for_url(lambda address: "teachers" not in address)
        page.go_back()
    lesson.get_by_role("link", name="first backward line").click()
    expect(page.locator("[aria-current=step]").first).to_contain_text("doutput")


def test_a_class_raises_letters_and_bars_show_the_hands(visit: Open) -> None:
    page = visit("questions/06_attention_by_hand.html")
    assert page.locator(".questions > li").count() == 5 and page.locator(".options li").count() == 20
    expect(page.get_by_text("is right.").first).to_be_hidden()
    page.get_by_role("button", name="Count the hands").click()
    for letter, hands in zip("ABCD", ("3", "0", "-2", "9"), strict=True):
        page.get_by_label(f"Hands for {letter}").first.fill(hands)
    assert page.locator(".hands .note").all_inner_texts()[:5] == [
        "25 % of 12",
        "0 % of 12",
        "0 % of 12",
        "75 % of 12",
        "",
    ]
    widths = page.locator(".hands .amount").evaluate_all("bars => bars.slice(0, 4).map((bar) => bar.offsetWidth)")
    assert widths[3] == pytest.approx(3 * widths[0], abs=1) and widths[0] > 0 == widths[1] == widths[2]
    page.get_by_text("Answer", exact=True).first.click()
    expect(page.locator(".key").first).to_contain_text("D is right. Whoever says A forgets that each query moves too.")
    page = visit("chapters/01_finite_differences.html")  # a prediction with a choice
    page.get_by_role("button", name="Show everything").click()
    form = page.locator("form.predict:has(.options)").first
    expect(form.locator(".options").first).to_be_hidden()
    form.get_by_role("button", name="Count the hands").click()
    form.get_by_label("Hands for B").first.press_sequentially("4")
    form.get_by_label("Hands for B").first.press("Enter")
    expect(form.locator(".hands .note").nth(1)).to_have_text("100 % of 4")
    expect(form.locator(".verdict")).to_be_empty()  # Enter sends nothing
    page = visit("slides/03_softmax.html#8", viewport={"width": 1280, "height": 720})
    chosen, said = page.locator("section[id='8']"), page.locator("section[id='2']")
    chosen.get_by_role("button", name="Count the hands").press("Space")  # which does not turn the page
    chosen.get_by_label("Hands for B").first.fill("9")
    expect(chosen.locator(".hands .note").nth(1)).to_have_text("100 % of 9")
    assert page.url.endswith("#8") and chosen.bounding_box()["height"] <= 721  # type: ignore[index]
    for key, turned in (("Enter", "ArrowRight"), ("Escape", "ArrowRight"), ("ArrowLeft", "PageDown")):
        page.evaluate("location.hash = '#8'")
        chosen.get_by_label("Hands for B").first.press(key)
        page.keyboard.press(turned)
        page.wait_for_function("location.hash === '#9'")
    said.get_by_role("button", name="Count the hands").click()
    said.get_by_label("What C stands for").fill("(1/7, 2/7, 4/7)")
    said.get_by_label("Hands for C").fill("2")
    expect(said.locator(".hands .note").nth(2)).to_have_text("100 % of 2")


def test_the_link_to_the_answers_unfolds_them_each_time(visit: Open) -> None:
    page = visit("teachers/index.html#answers")
    keys = page.get_by_text("minitransformer worksheet attention-forward --seed 3 --answers")
    expect(keys).to_be_visible()
    page.locator("#answers").click()
    expect(keys).not_to_be_visible()
    page.get_by_role("link", name="Where the answers are").click()  # the address stays as it is
    expect(keys).to_be_visible()


def test_the_steppers_say_where_to_begin(visit: Open) -> None:
    page = visit("steppers/index.html")
    first = page.locator("main > section").first
    assert first.locator("li").all_inner_texts()[0].startswith("Softmax")
    assert page.locator(".cards .here").all_inner_texts() == ["Start here", "Then this"]
    first.get_by_role("link").first.click()
    page.wait_for_url("**/steppers/softmax.html*")


def test_each_link_of_the_path_says_what_one_finds(visit: Open) -> None:
    links = visit("index.html").locator(".path a").all_inner_texts()
    assert len(links) == 5 and all(len(name.split()) > 2 for name in links)


def test_an_exercise_is_printed_with_room_and_without_an_editor(visit: Open) -> None:
    page = visit("exercises/attention_backward.html")
    page.evaluate("() => { window.print = () => (window.printed = true); }")
    page.get_by_role("button", name="Print").click()
    assert page.evaluate("window.printed")
    assert not page.locator(".room").is_visible()
    page.emulate_media(media="print")
    for hidden in ("textarea", "summary", "button", "header", ".siblings"):
        assert not page.locator(hidden).first.is_visible()
    assert page.locator(".statement math").count() > 9 and "d_v" not in page.locator(".statement").inner_text()
    expect(page.locator(".statement")).to_be_visible()
    room = page.locator(".room").bounding_box()
    assert room is not None and room["height"] > 400


# What is darker than paper, with the number of its pixels; and pictures whose colours are turned round.
DARK = """
() => [...document.querySelectorAll("html, body, body *")].filter((each) => {
  if (!each.checkVisibility() || each.offsetWidth < 60) return false;
  const { filter, backgroundColor } = getComputedStyle(each);
  const [red, green, blue, alpha] = backgroundColor.match(/[\\d.]+/g).map(Number);
  const dark = backgroundColor.startsWith("rgb") && (alpha ?? 1) > 0.5 && red + green + blue < 450;
  return dark || filter.includes("invert");
}).map((each) => each.outerHTML.slice(0, 80))
"""


def printed(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(100)


@pytest.mark.few(4, slow=0)
@pytest.mark.parametrize(
    ("path", "chosen"), [*((path, False) for path in PRINTED), *((path, True) for path in PRINTED[::5])]
)
def test_what_is_printed_in_the_dark_is_black_on_white(visit: Open, path: str, chosen: bool) -> None:
    """chosen: dark by the page's own button, not by the system."""
    page = visit(path, color_scheme="light" if chosen else "dark")
    if chosen:
        page.evaluate("() => document.querySelector('#theme')?.click()")
    printed(page)
    ink, paper = page.evaluate(
        "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert sum(map(int, re.findall(r"\d+", ink)[:3])) < 150
    assert paper in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert page.evaluate(DARK) == []
    assert [each for each in complaints(page) if each[0] == "color-contrast"] == []
