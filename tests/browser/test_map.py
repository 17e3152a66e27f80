"""The map of the calls, the tree of the steps, and stepping over and out, in a real browser."""

from pathlib import Path

import pytest

from minitransformer.school.show.stepper import Recording
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.steps import Step

from .conftest import Example, Open
from .reading import arrives, at, current, go, stops, switch


@pytest.fixture(scope="module")
def decoder_layer(example: Example) -> tuple[Recording, Path]:
    return example("decoder-layer")


def runs_in(recording: Recording, step: Step, call: int) -> bool:
    return call in {outer.index for outer in recording.path(step)}


def test_over_and_out_leave_out_what_is_called(open_page: Open, decoder_layer: tuple[Recording, Path]) -> None:
    recording, path = decoder_layer
    page = open_page(path)
    steps = stops(recording)
    assert 40 < len(steps) <= 60
    page.keyboard.press("o")
    seen = [0, current(page)]
    while seen[-1] != steps[-1].index:
        page.keyboard.press("o")
        seen.append(current(page))
    inside = [s.index for s in steps if recording.calls[s.call].parent is None]
    assert set(inside) <= set(seen) and len(seen) < len(steps)

    go(page, at(recording, "attention#2.weights"))
    for _ in range(4):
        here = recording.steps[current(page)]
        page.keyboard.press("u")
        assert current(page) == next(
            s.index for s in steps if s.index > here.index and not runs_in(recording, s, here.call)
        )


OPEN = "() => [...document.querySelectorAll('#map .figure.open > button')].map((button) => button.textContent)"


def test_the_map_shows_where_a_line_runs_and_goes_there(open_page: Open, decoder_layer: tuple[Recording, Path]) -> None:
    recording, path = decoder_layer
    page = open_page(path, f"#step={at(recording, 'attention#2.scores')}")
    whole = ["Decoder Layer", "Multi-Head Attention", "Scaled Dot-Product Attention"]
    assert page.evaluate(OPEN) == whole
    assert page.locator("#map [aria-current]").all_inner_texts() == ["MatMul", "Scale"]  # one line
    assert "backward" not in page.get_attribute("#map", "class").split()
    page.click("#map button:text-is('Softmax')")
    assert page.locator("#map [aria-current]").inner_text() == "Softmax"
    assert recording.calls[recording.steps[current(page)].call].label == "attention#2"
    go(page, at(recording, "attention#1.dscores"))  # in the pullback
    assert page.evaluate(OPEN) == whole
    assert "backward" in page.get_attribute("#map", "class").split()
    page.click("#map .figure button:text-is('Linear')")
    call = recording.calls[recording.steps[current(page)].call]
    assert call.backward and call.label == "MultiHeadAttention#1"
    assert page.evaluate("document.activeElement.closest('#map') !== null")
    page.keyboard.press("m")
    assert page.is_hidden("#map")


AT_WORK = """
() => {
  const found = [];
  for (let last = -1; last !== document.getElementById("shown").textContent; document.getElementById("next").click()) {
    last = document.getElementById("shown").textContent;
    const lit = [...document.querySelectorAll("#map [aria-current]")];
    const whole = lit.some((button) => button.matches(".levels > li:first-child > .figure > button"));
    found.push([document.getElementById("formula").textContent, lit.map((button) => button.textContent), whole]);
  }
  return found;
}
"""


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "worked-example",
        *(pytest.param(n, marks=pytest.mark.sweep) for n in ("multi-head", "encoder-layer")),
    ],
)
def test_the_box_at_work_is_lit_at_every_step(open_page: Open, example: Example, name: str) -> None:
    """In the backward pass of attention the title was lit, and of three linear maps at work one."""
    found = open_page(example(name)[1], reduced_motion="reduce").evaluate(AT_WORK)
    whole = [formula for formula, _, is_whole in found if is_whole]
    assert all("(" in formula.split("=")[0] or formula.startswith("return") for formula in whole) and len(whole) < 4
    assert all(lit for _, lit, _ in found)
    lit = {formula: lit for formula, lit, _ in found}
    if name == "attention":
        assert lit["dA=dOVT"] == lit["dV=ATdO"] == ["MatMul"]
        assert lit["dQ=dSKdk"] == lit["dK=dSTQdk"] == ["MatMul", "Scale"]
    if name in ("worked-example", "multi-head"):
        *_, (_, last, _) = [each for each in found if each[0].startswith("dX=")]
        assert last == ["Linear Q", "Linear K", "Linear V"]
    if name == "encoder-layer":
        assert lit["dX=dtotal+dthrough"] == ["+"]


def test_a_mistake_marks_its_own_box(open_page: Open, tmp_path: Path) -> None:
    """A wrong factor marked the softmax, which only reads the wrong scores."""
    recording = EXAMPLES["attention"].record()
    recording.to_html(tmp_path / "page.html", bugs=["attention-dq-not-scaled"])
    page = open_page(tmp_path / "page.html")
    switch(page, "attention-dq-not-scaled")
    assert "Scale" in page.locator("#map .red").all_text_contents()


def test_the_steps_are_a_tree_of_calls(open_page: Open, decoder_layer: tuple[Recording, Path]) -> None:
    recording, path = decoder_layer
    here = at(recording, "attention#1.output")
    page = open_page(path, f"#step={here}")
    page.click("#list")
    links = page.locator("#links a").evaluate_all("all => all.map((link) => Number(link.hash.slice(6)))")
    assert links == [step.index for step in stops(recording)]
    assert page.locator("#links details > summary").all_text_contents()[:2] == ["Decoder Layer", "Add & Norm"]
    assert page.locator("#links [aria-current]").get_attribute("href") == f"#step={here}"
    link = page.locator("#links li.backward a").first
    there = int(link.get_attribute("href").removeprefix("#step="))
    link.click()
    arrives(page, there)
    assert recording.calls[recording.steps[there].call].backward
