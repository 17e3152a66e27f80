"""Chapters of the site without Python: whose output is shown, what is covered, how predictions are compared."""

import pytest
from playwright.sync_api import Page, expect

from .conftest import Open

CHAPTER = "chapters/04_softmax_backward.html"
BACKWARD = "chapters/07_attention_backward.html"
# Python that says which cell it was given, and whether that was right.
STAND_IN = """
() => {
  ran = [];
  python.run = async ({ number }, onOutput) => {
    if (number) ran.push(number);
    onOutput({ output_type: "execute_result", data: { "text/plain": `attention_backward: right, cell ${number}` } });
    return { done: true };
  };
}
"""


# A worker whose Python cannot be loaded, once the test says so.
NO_PYTHON = """
() => {
  window.Worker = class {
    postMessage() { window.fail = () => this.onmessage({ data: { done: false, problem: "no network" } }); }
    terminate() {}
  };
}
"""


def shown(visit: Open, path: str) -> Page:
    page = visit(path)
    page.get_by_role("button", name="Show everything").click()
    page.evaluate(STAND_IN)
    return page


def test_outputs_of_other_code_are_marked_and_own_outputs_come_back(visit: Open) -> None:
    """A reload once showed "Your function is not written yet" under a function that was right."""
    page = shown(visit, CHAPTER)
    cells = page.locator(".cell:has(.output:not(:empty))")
    first, second, last = cells.nth(0), cells.nth(1), cells.last
    stored = second.locator(".output").inner_text()
    second.locator("textarea").fill("mine = 1")
    expect(first.locator(".old")).to_be_hidden()
    for cell in (second, last):
        expect(cell.locator(".old")).to_have_text("Not run since the code changed.")
    second.get_by_role("button", name="Run").click()
    expect(second.locator(".output")).to_contain_text("right, cell")
    expect(second.locator(".old")).to_be_hidden()
    expect(last.locator(".old")).to_be_visible()
    page.reload()
    expect(second.locator(".output")).to_contain_text("right, cell")
    expect(second.locator(".old")).to_be_hidden()
    expect(last.locator(".old")).to_be_visible()
    second.locator("textarea").fill("mine = 2")
    expect(second.locator(".old")).to_be_visible()
    second.get_by_role("button", name="Reset").click()
    assert second.locator(".output").inner_text() == stored
    expect(page.locator(".old:visible")).to_have_count(0)


def test_without_the_internet_a_cell_says_that_it_needs_it_once(visit: Open) -> None:
    page = visit(CHAPTER)
    page.evaluate(NO_PYTHON)
    page.evaluate("settings.pyodide = 'https://elsewhere.example/'")
    page.get_by_role("button", name="Run cell 1", exact=True).click()
    expect(page.locator("#python")).to_contain_text("Python is loaded from the internet, once")
    page.evaluate("fail()")
    expect(page.locator(".cell .error").first).to_contain_text(
        "Running code needs the internet once: connect, and try again."
    )


def test_a_cell_above_that_has_changed_runs_again(visit: Open) -> None:
    page = shown(visit, CHAPTER)
    for change in (False, True, False):
        if change:
            page.locator(".cell textarea").nth(1).fill("changed = 1")
        page.get_by_role("button", name="Run cell 3", exact=True).click()
        expect(page.locator(".cell").nth(2)).to_have_attribute("data-state", "done")
    assert page.evaluate("ran") == [1, 2, 3, 2, 3, 3]


def test_running_all_cells_stops_at_an_open_question_and_uncovers_nothing(visit: Open) -> None:
    page = visit(CHAPTER)
    page.evaluate(STAND_IN)
    hidden = "parts => parts.map((part) => part.hidden)"
    before = page.locator("section.part").evaluate_all(hidden)
    page.get_by_role("button", name="Run all cells").click()
    n = page.locator("section.part").first.locator(".cell").count()
    expect(page.locator("#python")).to_contain_text(f"Ran up to cell {n}. A question covers the rest")
    expect(page.locator(".cell[data-state]")).to_have_count(n)
    assert page.locator("section.part").evaluate_all(hidden) == before


COMPARED: list[tuple[dict[str, str], str]] = [
    (
        {"dq": "(3, 2)", "dk": "(2,3)", "dv": "3 x 4", "dscores": "(3,)", "dweights": "square"},
        "dweights: “square” cannot be read as a list of numbers: compare it with what follows. dv: 3 x 4 is right. "
        "dscores: (3,) is not right: 1 instead of 2 entries. dq: (3, 2) is right. dk: (2,3) is not right.",
    ),
    ({"the first row": "7, −6, 4"}, "the first row: 7, −6, 4 is right."),
    ({"the first row": "4, -6, 7"}, "the first row: 4, -6, 7 is not right."),
    ({"each row sums to": "1"}, "each row sums to: 1 is not right."),
    ({"each row sums to": "0.0"}, "each row sums to: 0.0 is right."),
    (
        {"each row sums to": "yes, zero"},
        "each row sums to: “yes, zero” cannot be read as a number: compare it with what follows.",
    ),
    (
        {"signs of the first row of dscores": "positive, −, +"},
        "signs of the first row of dscores: positive, −, + is right.",
    ),
    (
        {"1": "dk", "2": "dk", "3": "dq, dk and dscores"},
        "1: dk is right. 2: dk is not right. 3: dq, dk and dscores is right.",
    ),
    ({"the sum of dq is zero": "yes"}, "the sum of dq is zero: yes is not right."),
    ({"the ratio for mistake 4": "0.7071"}, "the ratio for mistake 4: 0.7071 is right."),
    ({"the ratio for mistake 4": "0.7"}, "the ratio for mistake 4: 0.7 is right, but give more decimal places."),
    ({"the ratio for mistake 4": "0.70"}, "the ratio for mistake 4: 0.70 is not right."),
    ({"the ratio for mistake 4": "1"}, "the ratio for mistake 4: 1 is not right."),
]


def test_a_prediction_is_compared_name_by_name(visit: Open) -> None:
    page = shown(visit, BACKWARD)
    for fields, told in COMPARED:
        compare(page, fields, told)


def compare(page: Page, fields: dict[str, str], told: str) -> None:
    form = page.locator("form.predict", has=page.locator(f"[data-name='{next(iter(fields))}']"))
    for name, answer in fields.items():
        field = form.locator(f"[data-name='{name}']")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(answer)
        else:
            field.fill(answer)
    form.get_by_role("button", name="Compare").click()
    expect(form.locator(".verdict")).to_have_text(told)


def test_words_are_left_to_the_reader_and_a_label_asks_for_what_it_takes(visit: Open) -> None:
    page = shown(visit, BACKWARD)
    sums = page.locator("form.predict", has=page.locator("[data-name='each row sums to']"))
    sums.locator("textarea").fill("token 2, since (3, 2) and 0 occur")
    sums.get_by_role("button", name="Compare").click()
    expect(sums.locator(".verdict")).to_have_text("Compare your answer with what follows.")
    expect(sums.locator(".fields label")).to_have_text("each row sums to a number")
    choice = page.locator("form.predict", has=page.locator("[data-name='the sum of dq is zero']"))
    assert choice.locator("option").all_inner_texts() == ["", "yes", "no"]
    expect(page.locator("form.predict", has_text="a shape as")).to_have_count(0)
    page.reload()
    expect(sums.locator("textarea")).to_have_value("token 2, since (3, 2) and 0 occur")


def test_the_formulas_after_a_check_are_covered_until_it_says_right(visit: Open) -> None:
    page = shown(visit, BACKWARD)
    after = page.locator("details.after")
    expect(after.locator("math").first).to_be_hidden()
    page.locator(".cell", has_text='course.check("attention_backward"').get_by_role("button", name="Run").click()
    expect(after.locator("math").first).to_be_visible()


def test_the_page_says_which_cell_of_how_many_runs_and_numbers_its_cells(visit: Open) -> None:
    page = visit(CHAPTER)
    n = page.locator(".cell").count()
    page.evaluate("() => { python.worker = { terminate() {} }; python.ask = () => new Promise(() => {}); }")
    page.get_by_role("button", name="Run cell 1", exact=True).click()
    expect(page.locator("#python")).to_have_text(f"Python is running cell 1 of {n} …")
    places = page.locator(".cell .buttons .note").all_inner_texts()
    assert places[:2] == ["cell 1", "cell 2"]


@pytest.mark.parametrize("path", [CHAPTER, BACKWARD, "chapters/14_kv_cache.html"])
def test_a_phone_has_a_small_header_and_each_formula_that_is_cut_can_be_reached(visit: Open, path: str) -> None:
    page = visit(path, viewport={"width": 390, "height": 800})
    assert page.locator("header.bar").evaluate("header => header.offsetHeight") < 90
    page.get_by_role("button", name="Show everything").click()
    cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.tabIndex)"
    assert set(page.locator(".math.block").evaluate_all(cut)) == {0}


# A worker whose Python cannot be loaded; each time that it is tried, one more.
BROKEN = """
() => {
  tried = 0;
  Worker = class {
    postMessage() {
      tried += 1;
      setTimeout(() => this.onmessage({ data: { done: false, problem: "no network" } }), 50);
    }
    terminate() {}
  };
}
"""


def test_a_cell_says_why_python_could_not_be_loaded_keeps_its_output_and_offers_again(visit: Open) -> None:
    page = visit(CHAPTER)
    page.get_by_role("button", name="Show everything").click()
    page.evaluate(BROKEN)
    cell = page.locator(".cell:has(.output img)").first
    # The cell waits for the Python that was started when the reader came near.
    page.evaluate("() => { python.ahead([]); document.querySelector(\"[aria-label='Run cell 1']\").click(); }")
    told = page.locator(".cell .error[role=alert]")
    for times in (1, 2):
        expect(told).to_have_count(1)
        expect(told).to_contain_text(
            "Python could not be loaded from pyodide/: no network. Everything on the page except running code"
        )
        expect(cell.locator(".output img").first).to_be_visible()
        expect(page.locator("#stop")).to_be_hidden()
        assert page.evaluate("tried") == times
        told.get_by_role("button", name="Try again").click()
        page.wait_for_function("times => tried > times", arg=times)


def test_a_long_cell_shows_for_how_long_it_runs_and_then_has_run(visit: Open) -> None:
    page = visit(CHAPTER)
    end = "new Promise((resolve) => (finish = () => resolve({ done: true })))"
    page.evaluate(f"() => {{ python.worker = {{}}; python.ask = () => {end}; }}")
    page.get_by_role("button", name="Run cell 1", exact=True).click()
    expect(page.locator(".cell .time").first).to_have_text("running for 1 s")
    expect(page.locator("#elapsed")).to_have_text("2 s")
    page.evaluate("finish()")
    expect(page.locator(".cell .time").first).to_contain_text("ran for 2.")
    expect(page.locator("#elapsed")).to_have_text("")


def test_imports_are_folded_and_open_when_they_fail(visit: Open) -> None:
    page = visit(CHAPTER)
    first = page.locator(".cell").first
    expect(first.locator("summary")).to_contain_text("Imports matplotlib, numpy")
    expect(first.locator("textarea")).to_be_hidden()
    page.evaluate("() => { python.run = async () => ({ done: false, seconds: 0 }); }")
    first.get_by_role("button", name="Run").click()
    expect(first.locator("textarea")).to_be_visible()
