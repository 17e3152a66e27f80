"""The view of formulas as papers write them, in a real browser."""

from pathlib import Path

import pytest

from minitransformer.school.show.stepper import Recording

from .conftest import Example, Open
from .reading import arrives, at


@pytest.fixture(scope="module")
def multi_head(example: Example) -> tuple[Recording, Path]:
    return example("multi-head")


def test_formulas_come_first_and_the_code_is_one_key_away(open_page: Open, multi_head: tuple[Recording, Path]) -> None:
    recording, path = multi_head
    page = open_page(path, f"#step={at(recording, 'attention.scores')}")
    assert page.is_visible("#formulas") and page.is_hidden("#listing")
    assert page.text_content("#formula") == "S=QKTdk"  # QKᵀ over the root of d_k
    assert page.locator("#formula mfrac > msqrt > msub").count() == 1
    assert page.locator("#result .matrix.result figcaption math").text_content() == "S"
    assert page.locator("#operands figcaption math").all_text_contents() == ["Q", "K", "factor"]
    page.keyboard.press("f")
    assert page.get_attribute("#code", "aria-pressed") == "true"
    assert page.is_hidden("#formulas") and page.locator("#listing .line code").count() > 10
    assert page.locator("#result .matrix.result figcaption code").text_content() == "scores"
    page.keyboard.press("f")
    page.locator("#formulas a").last.click()
    arrives(page, at(recording, "attention.dk"))


def test_on_a_wide_screen_the_code_stands_beside_the_formulas(
    open_page: Open, multi_head: tuple[Recording, Path]
) -> None:
    page = open_page(multi_head[1], viewport={"width": 1920, "height": 1080})
    assert page.is_visible("#formulas") and page.is_visible("#listing")
    page.keyboard.press("f")
    assert page.is_visible("#formulas") and page.is_hidden("#listing")


def test_the_view_is_remembered(open_page: Open, multi_head: tuple[Recording, Path]) -> None:
    page = open_page(multi_head[1])
    page.click("#code")
    page.reload()
    assert page.get_attribute("#code", "aria-pressed") == "true" and page.is_visible("#listing")
    page.keyboard.press("f")
    page.reload()
    assert page.get_attribute("#code", "aria-pressed") == "false" and page.is_hidden("#listing")


def test_sentences_are_shown_with_the_names_of_the_view(open_page: Open, multi_head: tuple[Recording, Path]) -> None:
    recording, path = multi_head
    page = open_page(path, f"#step={at(recording, 'attention.dv')}")
    told = page.text_content("#sentence")
    assert told.startswith("A value gets gradient from every query") and "`" not in told
    assert page.locator("#sentence math").all_text_contents() == ["dV", "dO", "A"]
    page.keyboard.press("f")
    assert page.locator("#sentence code").all_text_contents() == ["dv", "doutput", "kept"]


def test_formulas_are_in_the_font_of_the_page(open_page: Open, multi_head: tuple[Recording, Path]) -> None:
    """It is part of the page, so `open_page` sees no request for it, and every letter of a formula comes from it."""
    recording, path = multi_head
    page = open_page(path, f"#step={at(recording, 'attention.scores')}")
    assert page.evaluate("document.fonts.load('16px formulas').then((found) => found.length)") == 1
    assert page.evaluate("document.fonts.check('16px formulas')")
    assert page.evaluate("getComputedStyle(document.querySelector('#formula math')).fontFamily") == "formulas, math"
    page = page.context.new_page()
    page.set_content(path.read_text(encoding="utf-8"))  # the developer tools load a page again, and may load no file
    page.evaluate("document.fonts.load('16px formulas')")
    devtools = page.context.new_cdp_session(page)
    devtools.send("DOM.enable")
    devtools.send("CSS.enable")
    root = devtools.send("DOM.getDocument")["root"]["nodeId"]
    nodes = devtools.send("DOM.querySelectorAll", {"nodeId": root, "selector": "math *"})["nodeIds"]
    used = [devtools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"] for node in nodes]
    assert {(font["familyName"], font["isCustomFont"]) for fonts in used for font in fonts} == {("STIX Two Math", True)}
