"""What the page says of a mistake: where it leads, what its banner claims, and what the right code and numbers were."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from minitransformer import layers
from minitransformer.school.show.stepper import step
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.terms import readable

from .conftest import Files, Open, Recordings
from .reading import at, current, go, offered, switch

pytestmark = pytest.mark.browser


def test_a_parameters_gradient_in_a_layer_has_its_finite_differences(open_page: Open, tmp_path: Path) -> None:
    """Swapped gradients of γ and β were said to have a largest gap of 0: none was shown there."""
    rng = np.random.default_rng(0)
    recording = step(layers.LayerNorm(3).to(dtype="float64"), rng.normal(size=(2, 3)), verify=True)
    to_html(recording, tmp_path / "norm.html", bugs=["layer-norm-layer-gamma-beta-swapped"])
    page = open_page(tmp_path / "norm.html")
    switch(page, offered(page)[0])
    assert current(page) == at(recording, "LayerNorm.dgamma")
    gap = re.search(r"Largest gap to the finite difference: (\d+\.?\d*)", page.inner_text("#mistake"))
    assert gap and float(gap[1]) > 0.01
    assert page.locator("#checks .large-gap").count() == 2  # of dgamma and dbeta


def test_a_mistake_that_changes_no_result_here_says_so(open_page: Open, recordings: Recordings, files: Files) -> None:
    """softmax-overflows needs large scores; it was said to make forward and backward wrong together."""
    page = open_page(files["attention"])
    switch(page, "softmax-overflows")
    told = page.inner_text("#mistake")
    assert "The output and all gradients are the same with these inputs." in told and "wrong together" not in told
    switch(page, "attention-not-scaled")
    assert "Forward and backward are wrong together" in page.inner_text("#mistake")


def test_a_mistake_leads_to_its_line_which_stands_below_the_right_one(open_page: Open, tmp_path: Path) -> None:
    """Sub-layers in the wrong order led to an ordinary line, where the first red number is; nothing led on."""
    layer = layers.EncoderLayer(4, 1, 6, rng=np.random.default_rng(0)).to(dtype="float64")
    recording = step(layer, np.random.default_rng(1).normal(size=(2, 4)))
    to_html(recording, tmp_path / "layer.html", bugs=["encoder-layer-wrong-order"])
    page = open_page(tmp_path / "layer.html")
    switch(page, offered(page)[0])
    line = at(recording, "EncoderLayer.dattended")
    assert current(page) == line and page.locator("#listing .line.lit.wrong").count() == 1
    struck = [text.strip() for text in page.locator(".line del").all_text_contents()]
    assert struck == ["dattended = feed_forward_backward(dy)", "dx = attention_backward(dattended)"]
    assert page.inner_text("#sentence").startswith("Without the mistake: Back through the feed-forward network")
    first = page.locator("#mistake a").inner_text()
    page.click("#mistake a")
    assert first == f"line {current(page)}" and current(page) < line
    assert page.locator("#result .cell.wrong").count() > 0


def test_a_red_number_tells_the_right_one(open_page: Open, recordings: Recordings, files: Files) -> None:
    page = open_page(files["attention"])
    switch(page, "attention-not-scaled")
    right = readable(float(recordings["attention"].find("attention.factor")[1].value.array))
    assert page.get_attribute("#result .cell.wrong", "title") == f"1, was {right}"
    page.click("#result .cell.wrong")
    assert page.text_content("#sum-text").endswith(f", was {right}")


def test_the_last_step_returns_all_gradients(open_page: Open, recordings: Recordings, files: Files) -> None:
    """The page of attention ended at dk; at a return it said that the line computes nothing."""
    page = open_page(files["attention"])
    page.keyboard.press("End")
    assert page.inner_text("#result-heading").lower() == "this line returns"
    names = page.locator("#result .matrix.result").evaluate_all("all => all.map((figure) => figure.dataset.name)")
    assert names == ["dq", "dk", "dv"] and page.locator("#checks .verdict").count() == 3
    returns = [s.index for s in recordings["attention"].steps if s.source == "return output, backward"]
    page.check("#all")
    go(page, returns[0])
    assert page.inner_text("#result-heading").lower() == "this line returns"


def test_no_prediction_is_asked_whose_answer_is_always_the_same(open_page: Open, files: Files) -> None:
    """Whether an exponential is above zero, the shape of a gradient beside its value, and what has a new name only."""
    page = open_page(files["attention"])
    asked = page.evaluate(
        """() => {
          const recording = new Recording(data);
          return data.steps.flatMap((step, s) => {
            const question = step.shown ? questionAt(recording, s) : null;
            return question ? [[step.bound[question.b].name, question.kind, question.text]] : [];
          });
        }"""
    )
    positive = {"exponentials", "total", "weights", "factor", "y"}
    assert {kind for name, kind, _ in asked if name in positive} <= {"number", "largest", "shape"}
    assert not [name for name, kind, _ in asked if kind == "shape" and name in ("dq", "dk", "dv", "dx", "dkept")]
    assert not {"biased", "visible", "weights", "kept", "dweights"} & {name for name, _, _ in asked}
    assert all(re.fullmatch(r"What shape does `\d+,\d+` have\?", text) for _, kind, text in asked if kind == "shape")
    assert len(asked) >= 8
