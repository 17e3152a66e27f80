"""The stepper's page in a real browser, opened from a file, with every request but for that file refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer import ops
from minitransformer.stepper import Recording, step
from minitransformer.stepper.expansion import computed_at, expand
from minitransformer.stepper.page import to_html
from minitransformer.stepper.page_bugs import BUGS
from minitransformer.stepper.recording import Bound, Step
from minitransformer.stepper.terms import readable
from minitransformer.verify.wrong_variants import VARIANTS
from minitransformer.worked_example import SCALED, self_attention

from .conftest import Open, record

pytestmark = pytest.mark.browser

FIGURES = """
() => [...document.querySelectorAll("#result .matrix.result")].map((figure) => ({
  name: figure.dataset.name,
  numbers: [...figure.querySelectorAll(".cell")].map((cell) => cell.dataset.value),
  wrong: [...figure.querySelectorAll(".cell")].map((cell) => cell.classList.contains("wrong")),
}))
"""


def shown_steps(recording: Recording) -> list[Step]:
    """Steps that bind an array, or a number that is no size."""

    def counts(bound: Bound) -> bool:
        return bound.value.shape != () or bound.value.dtype.startswith("float")

    return [s for s in recording.steps if not s.quiet and any(map(counts, s.bound))]


def current(page: Page) -> int:
    return int(page.text_content("#counter").split()[0])


def at(recording: Recording, title: str) -> int:
    return recording.find(title)[0].index


def numbers(page: Page) -> dict[str, np.ndarray]:
    """What the page shows as bound by the current step."""
    return {found["name"]: np.array([float(n) for n in found["numbers"]]) for found in page.evaluate(FIGURES)}


def go(page: Page, number: int) -> None:
    """As a link does: by the fragment."""
    page.evaluate(
        """(number) => new Promise((done) => {
          if (location.hash === `#step=${number}`) return done();
          addEventListener("hashchange", () => done(), { once: true });
          location.hash = `#step=${number}`;
        })""",
        number,
    )
    assert current(page) == number


@pytest.mark.parametrize("name", ["worked", "encoder"])
def test_keys_lead_to_the_end_and_back_and_every_number_is_the_recorded_one(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path], name: str
) -> None:
    page = open_page(files[name])
    steps = shown_steps(recordings[name])
    assert page.text_content("#counter") == f"{steps[0].index} / {len(recordings[name].steps) - 1}"
    for number, recorded in enumerate(steps):
        if number:
            page.keyboard.press("ArrowRight")
        assert current(page) == recorded.index
        found = numbers(page)
        assert list(found) == [bound.name for bound in recorded.bound]
        for bound in recorded.bound:
            np.testing.assert_array_equal(found[bound.name], np.ravel(bound.value.array).astype(float))
    page.keyboard.press("ArrowRight")
    assert current(page) == steps[-1].index and page.is_disabled("#next")
    for recorded in reversed(steps[:-1]):
        page.keyboard.press("ArrowLeft")
        assert current(page) == recorded.index
    page.keyboard.press("End")
    assert current(page) == steps[-1].index
    page.keyboard.press("Home")
    assert current(page) == steps[0].index and page.is_disabled("#previous")
    page.wait_for_url(f"**#step={steps[0].index}")


def test_numbers_of_the_documents_and_every_gradient_can_be_read_off(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    recording = recordings["unscaled"]
    page = open_page(files["unscaled"])

    def table(title: str) -> np.ndarray:
        go(page, at(recording, title))
        figure = page.locator(f"#result .matrix.result[data-name='{title.partition('.')[2]}'] tbody tr")
        rows = [[cell.inner_text() for cell in row.locator(".cell").all()] for row in figure.all()]
        return np.array([[float(text.replace("−", "-")) for text in row] for row in rows])

    np.testing.assert_array_equal(table("attention.scores"), [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
    output = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    np.testing.assert_array_equal(table("self_attention.output"), output)
    for name in ("output", "weights", "scores", "q", "k", "v"):
        np.testing.assert_allclose(
            table(f"attention.d{name}"), recording.report[f"attention.{name}"].entries().numerical, atol=6e-5
        )
        checked = page.locator("#result .matrix.numerical")
        gap = page.locator(f"#result .group:has([data-name='d{name}']) .verdict").inner_text()
        assert checked.count() >= 1 and gap.startswith("✓ at most ")
    for name in ("x", "w_q", "w_k", "w_v"):
        np.testing.assert_allclose(
            table(f"self_attention.d{name}"), recording.report[name].entries().numerical, atol=6e-5
        )


@pytest.mark.parametrize("name", ["worked", "layer-norm", "attention"])
def test_a_clicked_cell_shows_its_expanded_sum_and_lights_what_it_came_from(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path], name: str
) -> None:
    recording = recordings[name]
    page = open_page(files[name])
    checked = 0
    for recorded in shown_steps(recording):
        for place, bound in enumerate(recorded.bound):
            where, computed = computed_at(recording, recorded, bound)
            if not bound.value.dtype.startswith("float") or computed.origin is not None:
                continue
            go(page, recorded.index)
            for flat, index in enumerate(np.ndindex(bound.value.shape)):
                try:
                    expansion = expand(recording, where, computed, index)
                except ValueError:
                    continue
                selector = f"[data-place='{recorded.index},{place}'] [data-flat='{flat}']"
                page.click(f"#result {selector}")
                result = readable(bound.value.array[index].item())
                ends = "" if expansion.pretty == result else f" = {result}"
                left = computed.name + (f"[{', '.join(map(str, index))}]" if index else "")
                assert page.text_content("#sum-text") == f"{left} = {expansion.pretty}{ends}"
                lit = page.eval_on_selector_all(
                    "#operands .source, #result .source",
                    "cells => cells.map(c => c.closest('[data-place]').dataset.place + ':' + c.dataset.flat)",
                )
                wanted = set()
                for (_, cell), serial in zip(expansion.cells, expansion.serials, strict=True):
                    source, name_there = recording.binding(serial)
                    if name_there.value.dtype in ("int", "bool") and name_there.value.shape == ():
                        continue
                    there = int(np.ravel_multi_index(cell, name_there.value.shape)) if cell else 0
                    wanted.add(f"{source.index},{source.bound.index(name_there)}:{there}")
                assert set(lit) == wanted
                checked += 1
    assert checked > 100


def test_links_lists_and_slider_jump(open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]) -> None:
    recording = recordings["worked"]
    scores = at(recording, "attention.scores")
    page = open_page(files["worked"], f"#step={scores}")
    assert page.text_content("#counter").startswith(f"{scores} /")
    assert page.locator(".line.lit code").inner_text().strip() == "scores = (q @ k.swapaxes(-1, -2)) * factor"
    assert page.locator("#path li").all_inner_texts() == ["self_attention", "attention"]
    page.click("#list")
    page.click(f"#links a[href='#step={at(recording, 'attention.dscores')}']")
    assert current(page) == at(recording, "attention.dscores") and page.text_content("#pass") == "backward"
    assert not page.is_visible("#steps")
    page.eval_on_selector("#slider", "s => { s.value = 3; s.dispatchEvent(new Event('input')); }")
    assert current(page) == shown_steps(recording)[3].index
    page.click("#next")
    page.click("#previous")
    assert current(page) == shown_steps(recording)[3].index
    quiet = next(s.index for s in recording.steps if s.quiet)
    page.check("#all")
    go(page, quiet)
    assert page.locator("#result .matrix").count() == len(recording.steps[quiet].bound)
    page.evaluate("location.hash = '#step=999999'")
    assert page.text_content("#counter").startswith(f"{quiet} /")


@pytest.mark.parametrize("name", ["worked", "unscaled", "layer-norm", "softmax"])
def test_a_mistake_turns_exactly_the_differing_numbers_red(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path], name: str
) -> None:
    recording = recordings[name]
    page = open_page(files[name])
    offered = page.locator("#bug option:not([value=''])").all_inner_texts()
    assert offered
    for bug in offered:
        with VARIANTS[bug].applied():
            wrong = recording.again()
        page.select_option("#bug", label=bug)
        assert VARIANTS[bug].mistake in page.text_content("#mistake")
        red = 0
        assert len(wrong.steps) == len(recording.steps)
        for right_step, wrong_step in zip(recording.steps, wrong.steps, strict=True):
            if right_step not in shown_steps(recording):
                continue
            go(page, right_step.index)
            for figure, right, other in zip(page.evaluate(FIGURES), right_step.bound, wrong_step.bound, strict=True):
                ours, theirs = np.ravel(right.value.array).astype(float), np.ravel(other.value.array).astype(float)
                differs = ~np.isclose(ours, theirs, rtol=1e-8, atol=1e-8)
                assert figure["wrong"] == differs.tolist()
                np.testing.assert_allclose([float(n) for n in figure["numbers"]], theirs, rtol=1e-8, atol=1e-8)
                red += int(differs.sum())
        assert red > 0
        changed = next(s for s, w in zip(recording.steps, wrong.steps, strict=True) if s.source != w.source)
        go(page, changed.index)
        assert page.locator(".line.wrong").count() >= 1
        page.select_option("#bug", "")
        assert page.locator(".cell.wrong, .line.wrong").count() == 0 and page.is_hidden("#mistake")


def test_usual_mistakes_are_all_offered_somewhere(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    offered: set[str] = set()
    for name in ("worked", "unscaled", "layer-norm", "softmax", "attention"):
        page = open_page(files[name])
        offered |= {text.split(" (")[0] for text in page.locator("#bug option").all_inner_texts()}
    assert offered == {"none", *BUGS}


def test_gap_to_the_finite_difference_opens_with_a_mistake(
    open_page: Open, recordings: dict[str, Recording], files: dict[str, Path]
) -> None:
    page = open_page(files["worked"], f"#step={at(recordings['worked'], 'softmax.dx')}")
    assert page.inner_text(".verdict").startswith("✓")
    page.select_option("#bug", label="softmax-no-sum")
    assert page.inner_text(".verdict").startswith("✗")
    y = recordings["worked"].find("softmax.y")[1].value.array
    dy = recordings["worked"].find("softmax.dy")[1].value.array
    numerical = recordings["worked"].report["softmax.x"].entries().numerical
    worst = (np.abs(y * dy - numerical) / (1.0 + np.abs(numerical))).max()
    assert page.inner_text(".verdict") == f"✗ up to {readable(float(worst))}"
    page.click("#result .result [data-flat='1']")
    assert page.text_content("#sum-text").startswith(
        f"dx[0, 1] = {readable(y[0, 1].item())}·{readable(dy[0, 1].item())}"
    )


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
    from minitransformer.layers import Encoder

    rng = np.random.default_rng(6)
    model = Encoder(12, 32, 4, 64, rng=rng).to(dtype="float64")
    text = to_html(step(model, rng.normal(size=(1, 64, 32))), tmp_path / "large.html")
    assert len(text.encode()) < 10e6
    page = open_page(tmp_path / "large.html")
    start = page.evaluate("performance.now()")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("performance.now()") - start < 1000.0
    assert math.isfinite(current(page))


def test_record_of_the_worked_example_holds_its_own_check() -> None:
    assert record(SCALED).report.ok
