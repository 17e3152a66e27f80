"""Play steps automatically, with time to read, and stops at questions; edits of the inputs are in the address."""

import numpy as np

from minitransformer import ops

from .conftest import Files, Open, Recordings
from .reading import at, current, numbers, stops

READ = 12_000  # milliseconds: the longest time that play leaves for a step


def test_play_leaves_time_to_read_and_ends_at_the_end(open_page: Open, recordings: Recordings, files: Files) -> None:
    page = open_page(files["softmax"])
    page.clock.install()
    page.reload()
    steps = [step.index for step in stops(recordings["softmax"])]
    page.click("#play")
    assert page.get_attribute("#play", "aria-pressed") == "true" and "Stop" in page.inner_text("#play")
    page.clock.run_for(2900)
    assert current(page) == steps[0]  # nobody reads faster
    for there in steps[1:]:
        words = len(page.text_content("#sentence"))
        page.clock.run_for(min(READ, 3000 + 40 * words) - (2900 if there == steps[1] else 0))
        assert current(page) == there
    page.clock.run_for(READ)
    assert current(page) == steps[-1] and page.get_attribute("#play", "aria-pressed") == "false"


def test_play_has_a_pace_that_is_kept(open_page: Open, recordings: Recordings, files: Files) -> None:
    """Play had one speed, too fast for one and too slow for another."""
    page = open_page(files["softmax"])
    page.clock.install()
    page.reload()
    first, second = (step.index for step in stops(recordings["softmax"])[:2])
    time = min(READ, 3000 + 40 * len(page.text_content("#sentence")))
    for pace, times in (("slow", 2), ("fast", 0.4)):
        page.keyboard.press("Home")
        page.select_option("#pace", pace)
        page.click("#play")
        page.clock.run_for(times * time - 100)
        assert current(page) == first
        page.clock.run_for(200)
        assert current(page) == second
    page.reload()
    assert page.input_value("#pace") == "fast" and page.is_visible("#pace")


def test_play_stops_at_a_question_and_when_the_reader_steps(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["softmax"])
    page.clock.install()
    page.reload()
    page.keyboard.press("l")
    page.keyboard.press("ArrowRight")  # the reader takes over
    here = current(page)
    page.clock.run_for(3 * READ)
    assert current(page) == here and "Play" in page.inner_text("#play")
    page.keyboard.press("Home")
    page.keyboard.press("p")
    page.keyboard.press("Space")
    page.keyboard.press("l")
    for _ in range(len(stops(recordings["softmax"]))):
        page.clock.run_for(READ)
    assert page.is_visible("#reveal-row") and page.get_attribute("#play", "aria-pressed") == "false"
    assert current(page) != stops(recordings["softmax"])[-1].index


def test_an_address_carries_the_edits_with_the_step_and_the_mistake(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    recording = recordings["softmax"]
    step = at(recording, "softmax.y")
    page = open_page(files["softmax"], f"#step={step}")
    page.click("#edit")
    page.fill("#inputs [data-name='x'] [data-flat='0']", "-1.5")
    page.keyboard.press("Tab")
    page.wait_for_function("location.hash.includes('1.5')")
    address = "#" + page.url.partition("#")[2]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("text=Copy link to this edit")
    page.wait_for_selector("#copied:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert f"step={step}" in address
    other = open_page(files["softmax"], address)
    x = recording.find("softmax.x")[1].value.array.copy()
    x.flat[0] = -1.5
    assert current(other) == step and other.is_visible("#edited")
    np.testing.assert_allclose(numbers(other)["y"], ops.softmax(x)[0].ravel(), rtol=1e-12)
    other.click("#reset")
    other.wait_for_function("!location.hash.includes('1.5')")
    plain = open_page(files["softmax"], f"#step={step}")
    assert plain.is_hidden("#edited")


def test_an_address_with_edits_that_are_no_numbers_shows_the_recorded_ones(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    recording = recordings["softmax"]
    page = open_page(files["softmax"], f"#step={at(recording, 'softmax.y')}&edit=x.0:two,nope.1:3,x.99:1,x.1:--,<b>")
    np.testing.assert_allclose(numbers(page)["y"], recording.find("softmax.y")[1].value.array.ravel(), rtol=1e-12)
