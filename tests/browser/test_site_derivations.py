"""An exercise on paper, on the site: each line is set as mathematics and marked by Python in the page."""

from playwright.sync_api import Page, expect

from .conftest import Open

CODE = "exercises/softmax_backward.html"
SOFTMAX = "exercises/derive_softmax.html"
WRONG = f"dx_j = sum_i dy_i ∂y_i/∂x_j{' + 0 y_j' * 20}\n     = sum_i dy_i y_i (δ_ij + y_j)"
RIGHT = "dx_j = sum_i dy_i y_i (δ_ij - y_j)\n\\mathrm{d}x = y \\odot (dy - y^\\top dy)"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_lines_are_marked_set_and_kept_and_the_symbols_type(visit: Open) -> None:
    page = visit(CODE, viewport={"width": 390, "height": 500}, is_mobile=True, has_touch=True)  # with its keyboard
    page.locator("p.note").first.get_by_role("link", name="Softmax", exact=True).tap()
    page.wait_for_url(f"**/{SOFTMAX}")
    expect(page.get_by_role("link", name="Softmax, backward")).to_have_attribute("href", f"../{CODE}")
    area = page.get_by_role("textbox", name="Your derivation")
    expect(page.locator("section .math.block math").first).to_be_visible()
    area.tap()
    page.keyboard.type(WRONG.replace("+ y_j)", ""))
    for name in ("minus", "sum"):  # with the symbols of the page
        page.get_by_role("button", name=name, exact=True).tap()
    expect(area).to_be_focused()
    area.fill(WRONG)
    press(page, "Check")
    status, lines = page.locator("#verdict"), page.locator("ol.derivation li")
    expect(status).to_contain_text("Line 2 is wrong", timeout=120_000)
    expect(lines).to_have_count(2)
    expect(lines.nth(0).get_by_role("group", name="Line 1, right")).to_contain_text("✓")
    expect(lines.nth(1).get_by_role("group", name="Line 2, wrong")).to_contain_text("✗")
    expect(lines.nth(1)).to_be_in_viewport()
    expect(lines.nth(1)).to_contain_text("Is the sign before y_j -, not +?")
    assert lines.nth(0).locator("math mfrac").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 390
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


def test_line_of_a_stepper_and_a_sheet_lead_to_the_exercise_and_back(visit: Open) -> None:
    page = visit("steppers/softmax.html")
    derive = page.get_by_role("link", name="Derive this line")
    expect(derive).to_have_count(0)  # of the forward pass
    page.get_by_role("button", name="Last step").click()
    derive.click()
    page.wait_for_url(f"**/{SOFTMAX}")
    page.get_by_role("link", name="A sheet to print").click()
    expect(page.locator(".ruled p").nth(9)).to_be_visible()
