"""An exercise on paper, on the site: each line is set as mathematics and marked by Python in the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .conftest import Open

pytestmark = pytest.mark.browser
SOFTMAX = "exercises/derive_softmax.html"
WRONG = "dx_j = sum_i dy_i ∂y_i/∂x_j\n     = sum_i dy_i y_i (δ_ij + y_j)"
RIGHT = "dx_j = sum_i dy_i y_i (δ_ij - y_j)\n\\mathrm{d}x = y \\odot (dy - y^\\top dy)"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_lines_are_marked_set_and_kept_and_the_symbols_type(visit: Open) -> None:
    page = visit(SOFTMAX)
    area = page.get_by_role("textbox", name="Your derivation")
    expect(page.locator("section .math.block math").first).to_be_visible()
    area.fill(WRONG)
    press(page, "Check")
    status, lines = page.locator("#verdict"), page.locator("ol.derivation li")
    expect(status).to_contain_text("Line 2 is wrong", timeout=120_000)
    expect(lines).to_have_count(2)
    expect(lines.nth(0).get_by_role("group", name="Line 1, right")).to_contain_text("✓")
    expect(lines.nth(1).get_by_role("group", name="Line 2, wrong")).to_contain_text("✗")
    expect(lines.nth(1)).to_contain_text("Is the sign before y_j -, not +?")
    assert lines.nth(0).locator("math mfrac").count() == 1
    area.fill(RIGHT)  # a pause is enough now
    expect(status).to_have_text("✓ Right.")
    press(page, "partial derivative")
    expect(area).to_have_value(RIGHT + "∂")
    expect(status).to_contain_text("Cannot be read: line 2")
    area.fill(RIGHT)
    expect(status).to_contain_text("✓")
    page.reload()
    expect(status).to_contain_text("✓")
    expect(area).to_have_value(RIGHT)
    listed = visit("exercises/index.html", page.context)
    expect(listed.locator("li[data-exercise=derive_softmax] .state")).to_have_text("✓ right")
