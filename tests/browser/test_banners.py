"""What the page says of a mistake: where it leads, what its banner claims, and what the right code and numbers were."""

import re
from pathlib import Path

import numpy as np

from minitransformer import layers
from minitransformer.school.show.stepper import step
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.terms import readable

from .conftest import Files, Open, Recordings
from .reading import at, current, offered, switch


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
