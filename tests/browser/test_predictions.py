"""What the stepper's page asks for a prediction, what it accepts, and what it never asks."""

import re
from pathlib import Path

import numpy as np
import pytest

from minitransformer.school.show.stepper import step
from minitransformer.school.show.stepper.page import to_html

from .conftest import Files, Open, Recordings
from .reading import at, current, go


def doubled(x: np.ndarray):
    product = x @ x.T
    a = 2.0 * x
    b = 4.0 * x
    c = 8.0 * x
    d = 16.0 * x
    return (a + b + c + d).sum() + product.sum(), lambda dy: dy * 30.0 * np.ones_like(x)


QUESTIONS = """
(answers) => {
  const recording = new Recording(data);
  codeView(true); // with the names of the code
  const written = (text) => named(recording, text).map((part) => part.textContent ?? part).join("");
  return recording.steps.map((step, s) => step.shown && questionAt(recording, s)).filter(Boolean).map((question) => ({
    ...question, text: written(question.text), truth: written(question.truth),
    marks: answers[question.kind]?.map((answer) => question.judge(answer)),
  }));
}
"""


def test_each_kind_of_question_has_one_rule(open_page: Open, tmp_path: Path) -> None:
    x = np.array([[0.06338, 0.06338, -0.0125], [-0.03317, -0.0125, 0.05]])
    to_html(step(doubled, x), tmp_path / "doubled.html")
    page = open_page(tmp_path / "doubled.html")
    words = ["+", "above", "Positive", "-", "−", "below", "negative", "zero", "maybe"]
    found = {q["kind"]: q for q in page.evaluate(QUESTIONS, {"sign": words, "largest": ["0, 0", "0 1", "1,2", "1, 3"]})}
    is_above = found["sign"]["truth"].partition(" = ")[2][0] != "−"
    assert found["sign"]["marks"] == [is_above] * 3 + [not is_above] * 4 + [False, None]
    assert found["largest"]["marks"] == [True, True, False, None]
    assert re.fullmatch(r"(\w)\[0, 0\] = \1\[0, 1\] = [\d.]+", found["largest"]["truth"])
    assert found["largest"]["text"].endswith(" is the largest (with its sign)?")
    assert found["shape"]["text"] == "What shape does product have?"
    near = "([x, answer]) => Math.abs(answer - x) <= halfUnit(x)"
    right = [(0.06338, 0.063), (0.06338, 0.06338), (0.03317, 0.033), (0.125, 0.12), (0.125, 0.13), (-12345, -12000)]
    wrong = [(0.06338, 0.06), (0.06338, 0.064), (0.03317, 0.034), (0.125, 0.14), (-12345, 12000), (0.01, 0)]
    assert [page.evaluate(near, pair) for pair in (*right, (0, 0), (1e-17, 0), *wrong)] == [True] * 8 + [False] * 6


def test_the_sentence_does_not_tell_the_number_to_predict(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["attention"], f"#step={at(recordings['attention'], 'attention.factor')}")
    told = page.text_content("#sentence")
    assert "= 1/√dk = 0.5774" in told
    page.check("#all")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#sentence") == told.replace("0.5774", "?")
    page.keyboard.press(" ")
    assert page.text_content("#sentence") == told


@pytest.mark.parametrize("name", ["worked", "attention"])
def test_nothing_is_asked_that_is_always_so_or_on_show(
    open_page: Open, recordings: Recordings, files: Files, name: str
) -> None:
    page, recording = open_page(files[name]), recordings[name]
    asked = {(q["text"].split("[")[0].split()[-1], q["kind"]) for q in page.evaluate(QUESTIONS, {})}
    assert not asked & {(name, "sign") for name in ("exponentials", "total", "y", "weights", "factor")}
    assert {"number"} <= {kind for word, kind in asked if word in ("dq", "dk", "dv")}
    page.keyboard.press("p")
    for title in ("attention.biased", "attention.weights", "attention.kept", "attention.dweights"):
        go(page, at(recording, title))
        assert page.is_visible("#reveal") and page.is_hidden("#question"), title
    shapes = page.evaluate(QUESTIONS, {})
    backward = {bound.name for s in recording.steps for bound in s.bound if recording.pair_of(s, bound)}
    assert not [q["text"] for q in shapes if q["kind"] == "shape" and q["text"].split()[3] in backward]


def test_a_wrong_place_is_repeated_and_escape_leaves_the_answer(open_page: Open, tmp_path: Path) -> None:
    x = np.array([[0.5, 1.0, -0.25], [-0.5, -2.0, 0.75]])
    recording = step(doubled, x)
    to_html(recording, tmp_path / "doubled.html")
    page = open_page(tmp_path / "doubled.html")
    page.keyboard.press("p")
    while "largest" not in (page.text_content("#question") or ""):
        page.keyboard.press("ArrowRight")
    name = page.text_content("#question").split()[3]
    room = "(e) => { const c = document.createElement('canvas').getContext('2d'); c.font = getComputedStyle(e).font;"
    room += " const s = getComputedStyle(e);"
    room += " return e.clientWidth - parseFloat(s.paddingLeft) * 2 - c.measureText(e.placeholder).width; }"
    assert page.get_attribute("#guess", "placeholder") == "such as 1, 0" and page.locator("#guess").evaluate(room) >= 0
    before = current(page)
    page.focus("#guess")
    page.keyboard.press("ArrowRight")
    assert current(page) == before
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert current(page) == before
    page.keyboard.press("p")
    page.keyboard.press("p")
    page.fill("#guess", "1, 1")
    page.click("#answer")
    scale = recording.steps[before].bound[0].value.array[0, 1]
    told = f"✗ Wrong: {name}[0, 1] = {scale:g}; you typed {name}[1, 1] = −{2 * scale:g}. "
    assert page.text_content("#mark").startswith(told)


def test_predictions_begin_where_something_can_be_predicted(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """The inputs were covered, and a number that one typed went nowhere."""
    page = open_page(files["attention"])
    page.keyboard.press("p")
    assert current(page) == at(recordings["attention"], "attention.scores") and page.is_visible("#guess")
    page.keyboard.type("-1.5")
    assert page.input_value("#guess") == "-1.5"
    page.keyboard.press("Enter")
    assert page.inner_text("#mark").startswith(("✗ Wrong", "Type", "✓ Right"))
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    assert page.is_hidden("#reveal-row") and page.locator("#result .result .cell", has_text="?").count() == 0
