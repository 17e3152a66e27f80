"""The exercises of the site, without Python: what is kept, undone, handed in and shown of a student's work."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from minitransformer.course import EXERCISES
from minitransformer.school.show.site.notebook import read

from .conftest import Open
from .site_server import ROOT

ATTENTION = "exercises/attention_backward.html"
ATTENTION_KEPT = "minitransformer:exercise:attention_backward"
# Every check gives this verdict, at once.
GIVE = "verdict => { python.run = async (request, onOutput) => (onOutput(verdict), { done: true, problem: '' }); }"
SAID = ["attention_backward: 1 of 3 right: dv.", "The mistake in dq and dk: weights_il is missing <b>."]
NUMBERS = "\n".join(f"dq[0, {i}]: 0.0526647, expected 0.129002" for i in range(9))
WRONG = {"output_type": "verdict", "right": False, "said": SAID, "details": NUMBERS}
RIGHT = {"output_type": "verdict", "right": True, "said": ["attention_backward: right."], "details": ""}


def code(page: Page) -> Any:
    """The box of the answer, in a page that does not start Python when it is touched."""
    page.evaluate("python.begun = true")
    return page.locator(".editor textarea")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def checked(page: Page, answer: str, verdict: dict[str, Any]) -> Page:
    code(page).fill(answer)
    page.evaluate(GIVE, verdict)
    press(page, "Check")
    expect(page.locator("#verdict")).to_contain_text(verdict["said"][0])
    return page


def work(path: Path, **codes: str) -> Path:
    cells = [{"cell_type": "code", "metadata": {"exercise": name}, "source": text} for name, text in codes.items()]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    return path


def reload_with(page: Page, key: str, told: str | None) -> None:
    """Reload once what another tab has kept under this key is here."""
    page.wait_for_function("([key, told]) => localStorage.getItem(key) === told", arg=[key, told])
    page.reload()


def test_a_tick_belongs_to_the_code_that_was_checked_and_the_start_page_counts_it(visit: Open) -> None:
    page = checked(visit(ATTENTION), "right = 1", RIGHT)
    lists = visit("exercises/index.html", page.context)
    item = lists.locator("li[data-exercise=attention_backward]")
    expect(item).to_contain_text("7.1 Attention, backward ✓ right")
    front = visit("index.html", page.context)
    expect(front.locator("#progress")).to_have_text(
        f"1 of {len(EXERCISES)} exercises right. Continue with 8.1 The causal mask."
    )
    code(page).fill("other = 1")
    for each in (lists, front):
        reload_with(each, ATTENTION_KEPT, "other = 1")
    expect(item).to_contain_text("begun")
    expect(front.locator("#progress")).to_have_text(
        f"0 of {len(EXERCISES)} exercises right. Continue with 7.1 Attention, backward."
    )
    press(page, "Start again")
    reload_with(lists, ATTENTION_KEPT, None)
    expect(item.locator(".state")).to_have_text("")
    expect(lists.locator("#progress")).to_be_hidden()


def test_the_last_verdict_is_there_again_as_text_and_says_when_the_code_has_changed(visit: Open) -> None:
    page = checked(visit(ATTENTION), "wrong = 1", WRONG)
    stale = page.get_by_text("Your code has changed since this check.")
    page.reload()
    expect(page.locator("#verdict")).to_contain_text("weights_il is missing <b>.")
    expect(stale).to_be_hidden()
    code(page).fill("wrong = 2")
    expect(stale).to_be_visible()
    page.reload()
    expect(stale).to_be_visible()
    page.evaluate("kept.set('checked:attention_backward', '{')")
    page.reload()
    expect(page.locator("#verdict")).to_be_empty()


def test_what_starting_again_replaces_comes_back(visit: Open) -> None:
    page = visit(ATTENTION)
    code(page).fill("mine = 1")
    press(page, "Start again")
    expect(code(page)).to_have_value(re.compile("NotImplementedError"))
    expect(page.get_by_role("button", name="Undo")).to_be_focused()
    press(page, "Undo")
    expect(code(page)).to_have_value("mine = 1")
    press(page, "Undo")
    expect(code(page)).to_have_value(re.compile("NotImplementedError"))


def test_opening_saved_work_says_what_it_opens_and_what_it_replaces_comes_back(visit: Open, tmp_path: Path) -> None:
    page = visit(ATTENTION)
    code(page).fill("mine = 1")
    opened = work(tmp_path / "anna.ipynb", attention_backward="saved = 1", causal_mask="saved = 2")
    page.locator("input.open").set_input_files(opened)
    expect(page.locator("#told")).to_contain_text("2 exercises opened: attention_backward, causal_mask. Press Check")
    expect(code(page)).to_have_value("saved = 1")
    other = visit("exercises/index.html", page.context)
    expect(other.locator("li[data-exercise=causal_mask]")).to_contain_text("begun")
    press(page, "Undo")
    expect(code(page)).to_have_value("mine = 1")
    reload_with(other, "minitransformer:exercise:causal_mask", None)
    expect(other.locator("li[data-exercise=causal_mask] .state")).to_have_text("")
    other.locator("input.open").set_input_files(opened)
    expect(other.locator("li[data-exercise=causal_mask]")).to_contain_text("begun")
    page.locator("input.open").set_input_files(work(tmp_path / "none.ipynb"))
    expect(page.locator("#told")).to_contain_text("This file holds no work from this site.")


FILES = {
    " Anna Müller ": "Anna-Müller.ipynb",
    "anna@uni.example": "anna@uni.example.ipynb",
    "../../a:b|<c>": "a-b-c.ipynb",
    "//": "minitransformer-work.ipynb",
}


def test_the_saved_file_has_the_students_name_and_says_what_it_holds(visit: Open) -> None:
    page = visit(ATTENTION)
    code(page).fill("mine = 1")
    for name, file in FILES.items():
        page.get_by_label("Your user name or email").fill(name)
        page.reload()
        expect(page.get_by_label("Your user name or email")).to_have_value(name.strip())
        with page.expect_download() as download:
            press(page, "Save my work")
        assert download.value.suggested_filename == file
        told = page.locator("#told")
        expect(told).to_contain_text(f"Saved attention_backward as {file}:")
        expect(told).to_contain_text(
            "It holds the exercises with a check. Tasks in other cells and predictions are for"
        )
        expect(told).to_contain_text("write your name above" if name == "//" else "hand in this file")


def test_each_chapter_names_what_is_handed_in(site_folder: Path) -> None:
    for chapter in read(ROOT / "notebooks"):
        page = (site_folder / f"chapters/{chapter.stem}.html").read_text(encoding="utf-8")
        (note,) = re.findall(r'<h2[^>]*>Exercises[^\n]*</h2>\s*<p class="note">To hand in: (.*?)</p>', page, re.DOTALL)
        names = re.findall(r"<code>(\w+)</code>", note)
        cells = re.findall(r'<div[^>]* data-exercise="(\w+)"', page)
        assert names == cells != [] and "are for you alone" in note, chapter.stem
    assert "7.1 <code>attention_backward</code>" in (site_folder / "chapters/07_attention_backward.html").read_text()


def test_exercises_stand_below_their_chapters_and_lead_to_them_and_to_the_next(visit: Open) -> None:
    page = visit("exercises/index.html")
    groups = page.locator("#exercise-list section")
    heads = groups.locator("h2").all_inner_texts()
    chapters = [int(head.split()[0]) for head in heads if head[0].isdigit()]
    assert chapters == sorted(chapters) and "Softcapped scores" in heads
    assert heads[: len(chapters)] == [head for head in heads if head[0].isdigit()]  # each idea comes after the chapters
    assert groups.locator("li[data-exercise]").count() == len(EXERCISES)
    group = groups.filter(has=page.get_by_role("heading", name="8 Masks and dropout"))
    assert group.locator("li").evaluate_all("items => items.map((item) => item.dataset.exercise)") == [
        *("causal_mask", "masked_softmax_forward", "masked_attention_backward"),  # its cells
        *("padding_mask", "dropout_forward", "dropout_backward"),  # those that its text names
    ]
    page = visit(ATTENTION)
    expect(page.locator("article > p a").first).to_have_text("7 Attention backward")
    expect(page.get_by_role("link", name="8.1 The causal mask →")).to_have_attribute("rel", "next")


def test_the_mistake_comes_first_in_bold_and_whole_words(visit: Open) -> None:
    page = checked(visit(ATTENTION), "wrong = 1", WRONG)
    assert page.locator("#verdict strong").all_inner_texts() == [f"✗ {SAID[0]}", SAID[1]]
    sentence, numbers = page.locator("#verdict strong").last.bounding_box(), page.locator("#verdict pre").bounding_box()
    assert sentence and numbers and sentence["y"] < numbers["y"]


def test_on_a_phone_the_verdict_comes_into_view_and_the_focus_stays(visit: Open) -> None:
    page = visit(ATTENTION, viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    code(page).fill("wrong = 1\n" * 30)
    page.evaluate(GIVE, WRONG)
    button = page.get_by_role("button", name="Check", exact=True)
    button.focus()
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("#verdict")).not_to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#verdict strong").first).to_be_in_viewport()
    expect(button).to_be_focused()


# A worker that judges every answer right, and counts how often it was started.
WORKER = """
() => {
  window.started = 0;
  window.Worker = class {
    constructor() { started += 1; }
    postMessage({ exercise }) {
      const output = { output_type: "verdict", right: true, said: [`${exercise}: right.`], details: "" };
      if (exercise) this.onmessage({ data: { output } });
      this.onmessage({ data: { done: true } });
    }
    terminate() {}
  };
}
"""


def test_the_next_exercise_opens_in_the_same_page_and_keeps_python(visit: Open) -> None:
    page = visit(ATTENTION)
    page.evaluate(WORKER)
    code(page).fill("mine = 1")
    press(page, "Check")
    expect(page.locator("#verdict")).to_have_text("✓ attention_backward: right.")
    page.locator("a[rel=next]").scroll_into_view_if_needed()
    height = page.evaluate("scrollY")
    page.locator("a[rel=next]").click()
    page.wait_for_url("**/causal_mask.html")
    expect(page.get_by_role("heading", name="The causal mask", level=1)).to_be_visible()
    expect(page).to_have_title("The causal mask · minitransformer")
    assert page.evaluate("[scrollY, document.activeElement.id]") == [0, "main-text"]
    code(page).fill("other = 1")
    press(page, "Check")
    expect(page.locator("#verdict")).to_have_text("✓ causal_mask: right.")
    page.get_by_role("link", name="Exercises", exact=True).click()
    page.wait_for_url("**/exercises/index.html")
    for name in ("attention_backward", "causal_mask"):
        expect(page.locator(f"li[data-exercise={name}]")).to_contain_text("right")
    page.go_back()
    expect(page.locator(".editor textarea")).to_have_value("other = 1")
    page.go_back()
    expect(page.locator(".editor textarea")).to_have_value("mine = 1")
    page.wait_for_function("height => Math.abs(scrollY - height) < 2", arg=height)
    assert page.evaluate("started") == 1 and page.locator(".running").count() == 1
    for button, path in (("Start again", "Undo"), ("Undo", "Save my work")):  # what the new content offers works
        press(page, button)
        expect(page.get_by_role("button", name=path)).to_be_visible()


def test_without_python_an_exercise_is_a_page_like_any_other(visit: Open) -> None:
    page = visit(ATTENTION)
    page.evaluate("window.here = true")
    page.locator("a[rel=next]").click()
    page.wait_for_url("**/causal_mask.html")
    assert page.evaluate("window.here ?? null") is None


def test_after_a_stop_the_page_of_an_exercise_speaks_of_a_check(visit: Open) -> None:
    page = visit(ATTENTION)
    page.evaluate("python.worker = { terminate() {} }; python.stop()")
    expect(page.locator("#python")).to_have_text("Stopped. Python restarts with the next check.")
