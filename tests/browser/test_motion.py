"""Motion: copies of the numbers fly to the number that they make; and inputs that are dragged."""

import numpy as np
from playwright.sync_api import Page

from minitransformer.school.show.stepper import Recording

from .conftest import Files, Open, Recordings
from .reading import at, go, numbers, until

# Animations that stand still, so that a slow machine does not miss them.
PAUSED = """
() => {
  const { animate } = Element.prototype;
  Element.prototype.animate = function (...given) {
    const animation = animate.apply(this, given);
    animation.pause();
    return animation;
  };
}
"""

# The texts that fly, each with when it sets off.
FLYING = """
() => [...document.querySelectorAll(".flying")].map((copy) => [
  copy.getAnimations()[0].effect.getTiming().delay, copy.textContent
])
"""
WIDE = {"width": 1366, "height": 900}


def flying(page: Page) -> list[list[str]]:
    """What flies, one list for each term, in the order in which they set off."""
    page.wait_for_selector(".flying", state="attached")
    terms: dict[float, list[str]] = {}
    for delay, text in page.evaluate(FLYING):
        terms.setdefault(delay, []).append(text.replace("−", "-"))
    return [terms[delay] for delay in sorted(terms)]


def four(*values: float) -> list[str]:
    return [f"{value:.4f}" for value in values]


def array(recording: Recording, title: str) -> np.ndarray:
    return recording.find(title)[1].value.array


def test_a_row_meets_a_column_scores_become_weights_and_a_gradient_gathers_its_terms(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    recording = recordings["attention"]
    q, k, kept, doutput = (array(recording, f"attention.{name}") for name in ("q", "k", "kept", "doutput"))
    visible = array(recording, "attention.visible")
    page = open_page(files["attention"], viewport=WIDE)
    page.evaluate(PAUSED)

    go(page, at(recording, "attention.scores"))
    *products, factor = flying(page)
    assert products == [four(q[0, i], k[0, i]) for i in range(3)]
    assert factor == [page.inner_text("#operands [data-name='factor'] .cell")]
    np.testing.assert_array_equal(numbers(page)["scores"], array(recording, "attention.scores").ravel())  # at once

    page.click("#result .result [data-flat='5']")  # scores[1, 1]
    assert flying(page)[:3] == [four(q[1, i], k[1, i]) for i in range(3)]

    go(page, at(recording, "attention.weights"))
    until(page, "document.querySelectorAll('.flying').length === 8")
    assert flying(page) == [four(*row) for row in visible]

    go(page, at(recording, "attention.dv"))
    until(page, "document.querySelectorAll('.flying').length === 4")
    assert flying(page) == [[f"{kept[query, 0]:.4f}", f"{doutput[query, 0]:.2f}"] for query in range(2)]


def test_motion_ends_with_the_next_step_with_a_key_and_where_the_system_asks_for_less(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    scores = at(recordings["attention"], "attention.scores")
    page = open_page(files["attention"], viewport=WIDE)
    page.evaluate(PAUSED)
    go(page, scores)
    flying(page)
    page.keyboard.press("Home")  # the first line binds the arguments: nothing comes together
    settled = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(settled)
    assert page.locator(".flying").count() == 0
    until(page, f"location.hash !== '#step={scores}'")  # the page writes its address a little later
    go(page, scores)
    flying(page)
    page.keyboard.press("a")
    assert page.locator(".flying").count() == 0 and page.get_attribute("#motion", "aria-pressed") == "false"
    page.click("#result .result [data-flat='0']")
    page.evaluate(settled)
    assert page.locator(".flying").count() == 0
    calm = open_page(files["attention"], f"#step={scores}", viewport=WIDE, reduced_motion="reduce")
    assert calm.get_attribute("#motion", "aria-pressed") == "false"
    calm.evaluate(settled)
    assert calm.locator(".flying").count() == 0


# ---- Dragging, and where the inputs stand ----


def test_dragging_a_value_moves_the_results(open_page: Open, recordings: Recordings, files: Files) -> None:
    recording = recordings["worked"]
    page = open_page(files["worked"], f"#step={at(recording, 'attention.scores')}")
    page.click("#edit")
    x, w_q, w_k, scale = (array(recording, f"self_attention.{name}") for name in ("x", "w_q", "w_k", "scale"))
    box = page.locator("#inputs [data-name='x'] [data-flat='1']").bounding_box()
    centre = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*centre)
    page.mouse.down()
    page.mouse.move(centre[0] + 20, centre[1], steps=4)
    page.mouse.move(centre[0] + 40, centre[1], steps=4)
    page.mouse.up()
    moved = x.copy()
    moved.ravel()[1] += 0.8  # one tenth for five pixels
    wanted = (moved @ w_q) @ (moved @ w_k).T * scale
    np.testing.assert_allclose(numbers(page)["scores"], wanted.ravel(), rtol=1e-12)
    page.focus("#inputs [data-name='x'] [data-flat='1']")
    page.keyboard.press("ArrowDown")
    moved.ravel()[1] -= 0.1
    wanted = (moved @ w_q) @ (moved @ w_k).T * scale
    np.testing.assert_allclose(numbers(page)["scores"], wanted.ravel(), rtol=1e-12)
    page.mouse.move(centre[0], centre[1])  # nothing is held any more
    np.testing.assert_allclose(numbers(page)["scores"], wanted.ravel(), rtol=1e-12)
