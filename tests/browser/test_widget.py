"""The stepper's page in a notebook's widget: what the frame shows, and that its state goes to the model and back."""

from importlib import resources

import numpy as np
import pytest
from playwright.sync_api import Browser, Frame, Page

from minitransformer.school.show.stepper import Recording

from .reading import FIGURES, at, switch, until

# What a notebook does: import the module, and give it a model and an element. `models` keeps one model for all cells.
HOST = """
async ([code, page]) => {
  const traits = { page, title: "softmax", height: 600, state: {} };
  const listeners = new Set();
  window.model = {
    saved: 0,
    get: (name) => traits[name],
    set: (name, value) => {
      traits[name] = value;
      listeners.forEach((listener) => listener());
    },
    save_changes: () => (window.model.saved += 1),
    on: (_, listener) => listeners.add(listener),
    off: (_, listener) => listeners.delete(listener),
  };
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  window.widget = (await import(url)).default;
}
"""
SHOW = """
() => new Promise((done) => {
  const el = document.createElement("div");
  document.body.append(el);
  const clean = window.widget.render({ model: window.model, el });
  const frame = el.querySelector("iframe");
  frame.addEventListener("load", () => setTimeout(done, 50));
  window.remove = () => {
    clean();
    el.remove();
  };
})
"""
STATE = "() => window.model.get('state')"


@pytest.fixture
def host(browser: Browser, recordings: dict[str, Recording]) -> Page:
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto("about:blank")
    code = resources.files("minitransformer.school.show.stepper").joinpath("widget.js").read_text(encoding="utf-8")
    page.evaluate(HOST, [code, recordings["softmax"].to_html(bugs=["softmax-no-sum"])])
    yield page
    context.close()
    assert problems == []


def shown(host: Page) -> Frame:
    host.evaluate(SHOW)
    return host.frames[-1]


def result(frame: Frame) -> np.ndarray:
    return np.array([float(x) for x in frame.evaluate(FIGURES)[0]["numbers"]])


def test_the_state_follows_the_page_and_is_restored_in_another_cell(
    host: Page, recordings: dict[str, Recording]
) -> None:
    frame = shown(host)
    frame.click("#edit")
    frame.fill("#inputs [data-name='x'] [data-flat='1']", "0.25")
    frame.press("#inputs [data-name='x'] [data-flat='1']", "Tab")
    switch(frame, "softmax-no-sum")
    dx = at(recordings["softmax"], "softmax.dx")
    until(host, f"window.model.get('state').step === {dx}")
    frame.click("#heat")
    until(host, "window.model.get('state').pressed.includes('heat')")
    state = host.evaluate(STATE)
    assert state["mistake"] == "softmax-no-sum" and state["inputs"][1] == "0.25"
    assert host.evaluate("window.model.saved") >= 2
    before = result(frame)

    host.evaluate("window.remove()")
    again = shown(host)
    until(
        host,
        f"document.querySelector('iframe').contentDocument.getElementById('counter').textContent.startsWith('{dx} ')",
    )
    np.testing.assert_array_equal(result(again), before)
    assert again.input_value("#inputs [data-name='x'] [data-flat='1']") == "0.25"
    assert again.get_attribute("#heat", "aria-pressed") == "true" and again.is_visible("#mistake")
    assert host.evaluate(STATE) == state


def test_python_sets_a_part_of_the_state(host: Page, recordings: dict[str, Recording]) -> None:
    frame = shown(host)
    y = at(recordings["softmax"], "softmax.y")
    quiet = next(s.index for s in recordings["softmax"].steps if s.quiet)
    for step in (y, quiet):
        host.evaluate(f"window.model.set('state', {{step: {step}}})")
        until(host, f"window.model.get('state').pressed && window.model.get('state').step === {step}")
        assert frame.text_content("#counter").startswith(f"{step} /")
    host.evaluate("window.model.set('state', {mistake: 'softmax-no-sum'})")
    until(host, "window.model.get('state').pressed && window.model.get('state').mistake === 'softmax-no-sum'")
    host.evaluate("window.model.set('state', {mistake: '', step: 0})")
    until(host, "window.model.get('state').pressed && window.model.get('state').mistake === ''")
    assert frame.is_hidden("#mistake")
