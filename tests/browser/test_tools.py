"""The stepper's page in a real browser: editing, predicting, printing, looks, keys, strange names, speed and size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer import layers, ops
from minitransformer.stepper import Recording, step
from minitransformer.stepper.expansion import expand
from minitransformer.stepper.page import to_html
from minitransformer.worked_example import SCALED, self_attention

from .conftest import Open
from .reading import FIGURES, at, current, go, numbers, shown_steps

pytestmark = pytest.mark.browser


def test_edited_inputs_are_recomputed_as_python_computes_them(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    page = open_page(files["worked"])
    page.click("#edit")
    page.fill("#inputs [data-name='x'] [data-flat='5']", "-1.5")
    page.fill("#inputs [data-name='w_k'] [data-flat='2']", "0.25")
    page.fill("#inputs [data-name='doutput'] [data-flat='0']", "3")
    page.keyboard.press("Tab")
    x, w_k, doutput = SCALED.x.copy(), SCALED.w_k.copy(), SCALED.doutput.copy()
    x.ravel()[5], w_k.ravel()[2], doutput.ravel()[0] = -1.5, 0.25, 3.0
    fresh = step(self_attention, x, SCALED.w_q, w_k, SCALED.w_v, scale=SCALED.scale, upstream=doutput)
    for recorded in shown_steps(fresh):
        go(page, recorded.index)
        for bound in recorded.bound:
            if bound.value.dtype.startswith("float"):
                np.testing.assert_allclose(
                    numbers(page)[bound.name], np.ravel(bound.value.array), rtol=1e-12, atol=1e-12
                )
    go(page, at(fresh, "attention.scores"))
    page.click("#result .result [data-flat='4']")
    expansion = expand(fresh, *fresh.find("attention.scores"), (1, 1))
    assert expansion.pretty in page.text_content("#sum-text")
    page.fill("#inputs [data-name='x'] [data-flat='5']", "two")
    page.keyboard.press("Tab")
    assert page.get_attribute("#inputs [data-name='x'] [data-flat='5']", "aria-invalid") == "true"
    page.click("#reset")
    np.testing.assert_array_equal(
        numbers(page)["scores"], np.ravel(recordings["worked"].find("attention.scores")[1].value.array)
    )
    assert page.is_hidden("#edited")


TWIN = """
([name, inputs, upstream]) => Object.fromEntries([...runTwin(name, inputs, upstream)].map(([k, v]) => [k, [...v]]))
"""


@pytest.mark.parametrize("seed", range(10))
def test_twin_equals_python_on_random_inputs(open_page: Open, files: dict[str, Path], seed: int) -> None:
    page = open_page(files["worked"])
    rng = np.random.default_rng(seed)
    t, s, d, e = rng.integers(1, 6, size=4)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape)

    scale = float(rng.uniform(0.2, 2.0))
    weights = {"w_q": draw(d, e), "w_k": draw(d, e), "w_v": draw(d, s)}
    cases = [
        (ops.softmax, {"x": draw(t, d), "temperature": scale}),
        (ops.attention, {"q": draw(t, d), "k": draw(s, d), "v": draw(s, e)}),
        (ops.attention, {"q": draw(t, d), "k": draw(s, d), "v": draw(s, e), "scale": scale}),
        (self_attention, {"x": draw(t, d), **weights, "scale": scale}),
        (ops.layer_norm, {"x": draw(t, d), "gamma": draw(d), "beta": draw(d), "eps": 1e-3}),
    ]
    for f, inputs in cases:
        arrays = [value for value in inputs.values() if not isinstance(value, float)]
        options = {key: value for key, value in inputs.items() if isinstance(value, float)}
        upstream = draw(*f(*arrays, **options)[0].shape)
        recording = step(f, *arrays, upstream=upstream, **options)
        given = {key: value if isinstance(value, float) else value.tolist() for key, value in inputs.items()}
        found = page.evaluate(TWIN, [f.__name__, given, upstream.tolist()])
        for recorded in shown_steps(recording):
            for bound in recorded.bound:
                if bound.value.dtype.startswith("float"):
                    np.testing.assert_allclose(
                        found[bound.title], np.ravel(bound.value.array), rtol=1e-12, atol=1e-12, err_msg=bound.title
                    )


def test_what_the_twin_does_not_know_cannot_be_edited(open_page: Open, files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("worked", "unscaled", "softmax", "attention", "layer-norm"):
        assert open_page(files[name]).is_visible("#edit")
    q = np.random.default_rng(5).normal(size=(3, 2))
    to_html(step(ops.attention, q, q, q, causal=True), tmp_path / "causal.html")
    assert open_page(tmp_path / "causal.html").is_hidden("#edit")
    assert open_page(files["encoder"]).is_hidden("#edit")


def test_predict_covers_each_new_matrix_until_asked(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    page = open_page(files["worked"], f"#step={at(recordings['worked'], 'linear#1.product')}")
    page.keyboard.press("p")
    assert page.get_attribute("#predict", "aria-pressed") == "true"

    def covered() -> bool:
        texts = set(page.locator("#result .result .cell").all_inner_texts())
        return texts == {"?"} and page.evaluate(FIGURES)[0]["numbers"][0] is None

    assert covered()
    page.keyboard.press("Space")
    assert not covered()
    page.keyboard.press("ArrowRight")
    assert covered()
    page.click("#result .result [data-flat='1']")
    assert not covered() and page.is_hidden("#sum")
    page.keyboard.press("ArrowRight")
    page.click("#reveal")
    assert not covered()
    page.keyboard.press("ArrowLeft")
    assert not covered()  # it has been seen
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    assert not covered()


def test_print_gives_a_hand_out_of_all_steps(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    page = open_page(files["worked"], color_scheme="dark")
    page.emulate_media(media="print")
    page.wait_for_selector("#handout article")
    titles = page.locator("#handout h3").all_inner_texts()
    assert [int(title.split(" ")[0]) for title in titles] == [s.index for s in shown_steps(recordings["worked"])]
    assert page.is_hidden("main") and page.is_hidden("footer") and page.is_visible("#handout")
    assert page.evaluate("getComputedStyle(document.querySelector('#handout .cell')).color") == "rgb(0, 0, 0)"
    assert page.pdf()[:5] == b"%PDF-"


def test_dark_light_large_and_heat(open_page: Open, files: dict[str, Path]) -> None:
    def background(page: Page) -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = open_page(files["worked"], color_scheme="light"), open_page(files["worked"], color_scheme="dark")
    first, second = background(light), background(dark)
    assert first != second
    assert [page.get_attribute("#theme", "aria-pressed") for page in (light, dark)] == ["false", "true"]
    light.keyboard.press("d")
    dark.keyboard.press("d")
    assert (background(light), background(dark)) == (second, first)
    size = "parseFloat(getComputedStyle(document.querySelector('.cell')).fontSize)"
    small = light.evaluate(size)
    light.keyboard.press("t")
    assert light.evaluate(size) >= 1.3 * small
    colours = (
        "new Set([...document.querySelectorAll('#result .cell')].map(c => getComputedStyle(c).backgroundColor)).size"
    )
    assert light.evaluate(colours) == 1
    light.keyboard.press("h")
    light.wait_for_timeout(300)  # the colours fade in
    assert light.evaluate(colours) > 1


def test_keyboard_and_screen_reader(open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]) -> None:
    scores = at(recordings["worked"], "attention.scores")
    page = open_page(files["worked"], f"#step={scores}")
    focused = "(({ activeElement: e }) => e.id || e.ariaLabel || e.className)(document)"
    order = []
    for _ in range(40):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
        assert page.evaluate(
            "document.activeElement === document.body || document.activeElement.matches(':focus-visible')"
        )
        if order[-1] == "all":
            break
    wanted = ["skip", "bug", "edit", "predict", "heat", "large", "theme", "print", "help", "listing"]
    cells = ["scores 0, 0: 1.1547", "q 0, 0: 1", "k 0, 0: 0", "factor: 0.5774"]
    assert order[:14] == wanted + cells
    assert order[-7:] == ["first", "previous", "next", "last", "slider", "list", "all"]
    page.locator("#result .cell").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "scores 1, 1: 9.2376" and current(page) == scores
    page.keyboard.press("Enter")
    assert page.text_content("#sum-text").startswith("scores[1, 1] = (2·4 + 2·4 + 2·0)·0.5774")
    assert page.text_content("#live").startswith("scores[1, 1] = ")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert current(page) > scores
    assert page.get_attribute("#live", "aria-live") == "polite"
    assert page.text_content("#live").startswith(f"Step {current(page)}, forward, attention: visible = ")
    for table in page.locator(".numbers table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("thead th[scope=col]").count() >= 1 and table.locator("tbody th[scope=row]").count() >= 1
    unnamed = "all => all.filter(e => !e.ariaLabel && !e.textContent.trim() && !e.labels?.length).map(e => e.outerHTML)"
    assert page.eval_on_selector_all("button, input, select", unnamed) == []
    assert page.evaluate("document.querySelectorAll('[onclick], [onload], [onerror]').length") == 0


def test_names_and_tokens_appear_as_text(open_page: Open, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=\"document.title='got in'\">"

    def f(x: np.ndarray):
        y, softmax_backward = ops.softmax(x)
        return y, lambda dy: softmax_backward(dy)

    f.__name__ = evil
    tokens = [evil, "<b>a</b>", "&amp;"]
    to_html(step(f, np.eye(3)[:, :2]), tmp_path / "evil.html", tokens=tokens)
    page = open_page(tmp_path / "evil.html")
    assert page.text_content("#title") == evil
    page.keyboard.press("ArrowRight")
    assert page.locator("#result tbody th").all_inner_texts()[:3] == tokens
    assert page.locator("img").count() == 0 and "got in" not in page.title().replace(evil, "")


@pytest.mark.parametrize("name", ["worked", "encoder"])
def test_a_key_press_answers_within_a_tenth_of_a_second(open_page: Open, files: dict[str, Path], name: str) -> None:
    page = open_page(files[name])
    times = page.evaluate(
        """async () => {
          const times = [];
          for (let i = 0; i < 60; i++) {
            const start = performance.now();
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
            document.body.getBoundingClientRect();
            times.push(performance.now() - start);
            await new Promise((done) => requestAnimationFrame(done));
          }
          return times;
        }"""
    )
    assert current(page) > 60
    print(f"{name}: median {np.median(times):.1f} ms, worst {max(times):.1f} ms")
    assert max(times) < 100.0


def test_twelve_layers_give_a_page_of_moderate_size(open_page: Open, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    model = layers.Encoder(12, 32, 4, 64, rng=rng).to(dtype="float64")
    text = to_html(step(model, rng.normal(size=(1, 64, 32))), tmp_path / "large.html")
    assert len(text.encode()) < 10e6
    page = open_page(tmp_path / "large.html")
    start = page.evaluate("performance.now()")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("performance.now()") - start < 1000.0
    assert current(page) == 0


def test_page_works_inside_a_notebook_frame(open_page: Open, recordings: dict[str, Recording], tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(recordings["worked"]._repr_html_(), encoding="utf-8")
    page = open_page(tmp_path / "notebook.html")
    frame = page.frame_locator("iframe")
    before = frame.locator("#counter").inner_text()
    frame.locator("#next").click()
    assert frame.locator("#counter").inner_text() != before
    frame.locator("#result .result .cell").first.click()
    assert frame.locator("#sum").is_visible()
    page.wait_for_timeout(300)  # the address, which a frame cannot write, is tried after the step
    assert frame.locator("#counter").count() == 1
