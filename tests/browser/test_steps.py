"""The stepper's page in a real browser: steps, numbers, where they come from, and mistakes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from formula_reading import computed_at

from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.school.show.stepper.expansion import expand
from minitransformer.school.show.stepper.stops import stops_of
from minitransformer.school.show.stepper.terms import pretty, readable

from .conftest import Example, Files, Open, Recordings
from .reading import arrives, at, chosen, current, go, numbers, offered, set_in_type, shown_steps, stops, switch, until


@pytest.mark.parametrize("name", ["worked", pytest.param("encoder", marks=pytest.mark.sweep)])
def test_keys_lead_to_the_end_and_back_and_every_number_is_the_recorded_one(
    open_page: Open, recordings: Recordings, files: Files, name: str
) -> None:
    page = open_page(files[name])
    steps = stops(recordings[name])
    assert page.text_content("#counter") == f"{steps[0].index} / {len(recordings[name].steps) - 1}"
    for number, recorded in enumerate(steps):
        if number:
            page.keyboard.press("ArrowRight")
        assert current(page) == recorded.index
        found = numbers(page)
        seen = recordings[name].visible(recorded)
        results = recorded.bound or [seen[each] for each in re.findall(r"\w+", recorded.source)[1:]]  # return dx, dw_q
        results = [b for b in results if recorded is not steps[0] or b.value.shape or b.value.array]  # without switches
        also = stops_of(recordings[name]).found[recorded.index].also
        assert list(found) == list(dict.fromkeys(bound.name for bound in (*results, *also)))
        for bound in results:
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
    open_page: Open, recordings: Recordings, files: Files
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
        checked = page.locator("#checks .matrix.numerical")
        gap = page.locator(f"#checks details:has([data-name='d{name}']) .verdict").inner_text()
        assert checked.count() >= 1 and gap.startswith("✓ at most ")
    for name in ("x", "w_q", "w_k", "w_v"):
        np.testing.assert_allclose(
            table(f"self_attention.d{name}"), recording.report[name].entries().numerical, atol=6e-5
        )


CLICKS = """
(selectors) => selectors.map((selector) => {
  document.querySelector(selector).click();
  const lit = [...document.querySelectorAll("#operands .source, #result .source")];
  return {
    sum: document.querySelector("#sum-text").textContent,
    lit: lit.map((cell) => cell.closest("[data-place]").dataset.place + ":" + cell.dataset.flat),
  };
})
"""


@pytest.mark.parametrize("name", [pytest.param("worked", marks=pytest.mark.sweep), "layer-norm", "attention"])
def test_a_clicked_cell_shows_its_expanded_sum_and_lights_what_it_came_from(
    open_page: Open, recordings: Recordings, files: Files, name: str
) -> None:
    recording = recordings[name]
    page = open_page(files[name])
    page.keyboard.press("f")  # with the names of the code
    checked = 0
    for recorded in shown_steps(recording):
        wanted: dict[str, tuple[str, set[str]]] = {}
        for place, bound in enumerate(recorded.bound):
            where, computed = computed_at(recording, recorded, bound)
            if not bound.value.dtype.startswith("float") or computed.origin is not None:
                continue
            for flat, index in enumerate(np.ndindex(bound.value.shape)):
                try:
                    expansion = expand(recording, where, computed, index)
                except ValueError:
                    continue
                result = readable(bound.value.array[index].item())
                ends = "" if pretty(expansion.term) == result else f" = {result}"
                left = bound.name + (f"[{', '.join(map(str, index))}]" if index else "")
                lit = set()
                for number in expansion.numbers:
                    source, name_there = recording.binding(number.serial)
                    if name_there.value.dtype in ("int", "bool") and name_there.value.shape == ():
                        continue
                    there = int(np.ravel_multi_index(number.index, name_there.value.shape)) if number.index else 0
                    lit.add(f"{source.index},{source.bound.index(name_there)}:{there}")
                selector = f"#result [data-place='{recorded.index},{place}'] [data-flat='{flat}']"
                wanted[selector] = (f"{left} = {pretty(expansion.term)}{ends}", lit)
        go(page, recorded.index)
        if len(wanted) > 1:  # a second click on the same cell would undo the first
            page.click(list(wanted)[-1])  # one as a reader does, with the mouse
        for found, (text, lit) in zip(page.evaluate(CLICKS, list(wanted)), wanted.values(), strict=True):
            assert found["sum"] == text
            assert set(found["lit"]) == lit
            checked += 1
    assert checked > 100


def test_links_lists_and_slider_jump(open_page: Open, recordings: Recordings, files: Files) -> None:
    recording = recordings["worked"]
    scores = at(recording, "attention.scores")
    page = open_page(files["worked"], f"#step={scores}")
    assert page.text_content("#counter").startswith(f"{scores} /")
    assert page.locator(".line.lit code").text_content().strip() == "scores = (q @ k.swapaxes(-1, -2)) * factor"
    assert page.locator("#path li").all_inner_texts() == ["Self-attention", "Scaled Dot-Product Attention"]
    page.click("#list")
    page.click(f"#links a[href='#step={at(recording, 'attention.dv')}']")
    arrives(page, at(recording, "attention.dv"))
    assert page.text_content("#pass") == "backward"
    assert not page.is_visible("#steps")
    page.eval_on_selector("#slider", "s => { s.value = 3; s.dispatchEvent(new Event('input')); }")
    assert current(page) == stops(recording)[3].index
    page.click("#next")
    page.click("#previous")
    assert current(page) == stops(recording)[3].index
    quiet = next(s.index for s in recording.steps if s.quiet)
    page.check("#all")
    go(page, quiet)
    assert page.locator("#result .matrix").count() == len(recording.steps[quiet].bound)
    page.evaluate(
        """() => new Promise((done) => {
          addEventListener("hashchange", () => done(), { once: true }); // after the page's own listener
          location.hash = "#step=999999";
        })"""
    )
    assert page.text_content("#counter").startswith(f"{quiet} /")


def test_the_mistakes_stand_by_their_lines_and_the_inert_ones_are_left_out(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["attention"])
    page.click("#mistakes")
    assert "correct pass first" in page.inner_text("#first-right")
    groups = page.locator("#bugs li").all()
    assert [group.locator("[data-bug]").count() for group in groups].count(0) == 0 and len(groups) >= 5
    scores = next(group for group in groups if group.locator("[data-bug='attention-not-scaled']").count())
    assert scores.locator(".told").text_content().startswith("factor=")
    names = offered(page)
    assert "attention-mask-inverted" not in names  # there is no mask
    assert "attention-dk-not-transposed" not in names  # it raises an error
    assert names[0] == "attention-not-scaled" and page.locator("#bugs h3").all_inner_texts() == [
        "Classics",
        "Other lines",
    ]


def test_what_goes_wrong_is_told_of_a_chosen_mistake_alone(open_page: Open, files: Files) -> None:
    """The list of mistakes announced what each one does, before anybody had looked for it."""
    page = open_page(files["attention"])
    page.click("#mistakes")
    sentences = [set_in_type(MISTAKES[name].sentence) for name in offered(page)]
    assert [told for told in sentences if told in page.inner_text("#game")] == []
    page.click("[data-bug='softmax-no-sum']")
    page.click("#mistakes")
    told = [told for told in sentences if told in page.inner_text("#game")]
    assert told == [set_in_type(MISTAKES["softmax-no-sum"].sentence)]
    assert page.inner_text("#tally") == f"1 of {len(sentences)} mistakes seen"


def test_a_surprise_is_found_by_its_line(open_page: Open, recordings: Recordings, files: Files) -> None:
    page = open_page(files["attention"])
    names = page.evaluate("playable().map((bug) => bug.name)")
    page.evaluate("(share) => (Math.random = () => share)", (names.index("attention-not-scaled") + 0.5) / len(names))
    page.keyboard.press("ArrowRight")
    here = current(page)
    page.click("#mistakes")
    page.click("#surprise")
    bug = chosen(page)
    assert current(page) == here and page.locator("#map .red").count() == 0  # neither jumps nor points
    page.keyboard.press("End")
    told = set_in_type(MISTAKES[bug].sentence)
    assert bug and told not in page.inner_text("body") and page.locator(".line.wrong, del").count() == 0
    assert page.locator("#result .cell.wrong").count() > 0 and "mistake" not in page.url
    page.click("#found")  # what it did is shown, not where it is
    assert "Not here: this line is right" in page.inner_text("#mistake")
    go(
        page,
        page.evaluate(
            "wrongLines(data.bugs.find((bug) => bug.name === document.getElementById('mistake').dataset.name))[0]"
        ),
    )
    page.click("#found")
    assert page.inner_text("#mistake").startswith("✓ Found.") and told in page.inner_text("#mistake")
    assert page.locator("#listing .line.wrong").count() >= 1
    page.click("#correct")
    assert page.is_hidden("#mistake") and page.locator(".cell.wrong").count() == 0
    page.click("#mistakes")
    page.click("#surprise")
    page.click("#give-up")
    assert set_in_type(MISTAKES[chosen(page)].sentence) in page.inner_text("#mistake")


NEVER_FOUND = """
() => {
  const recording = new Recording(data);
  const shown = recording.steps.flatMap((step, s) => (step.stop ? [s] : []));
  return playable().filter((bug) => {
    recording.switchBug(bug, true);
    return !shown.some((s) => isCulprit(recording, s, shown));
  }).map((bug) => bug.name);
}
"""


@pytest.mark.parametrize("name", ["attention", "worked", "encoder"])
def test_every_surprise_can_be_found_at_a_step_that_is_shown(open_page: Open, files: Files, name: str) -> None:
    """The line with the factor 1/√d_k is none, and the step that reads it was called right."""
    assert open_page(files[name]).evaluate(NEVER_FOUND) == []


def test_an_answer_that_is_wrong_is_about_this_line_and_true(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["attention"])
    names = page.evaluate("playable().map((bug) => bug.name)")
    page.evaluate("(share) => (Math.random = () => share)", (names.index("softmax-overflows") + 0.5) / len(names))
    page.click("#mistakes")
    page.click("#surprise")
    page.keyboard.press("Home")
    page.click("#found")
    assert "Not here: nothing is red yet" in page.inner_text("#mistake")
    page.keyboard.press("End")
    assert "Not here" not in page.inner_text("#mistake")
    page.click("#found")
    assert "Not here: red numbers began before this line" in page.inner_text("#mistake")


def test_dropouts_pullback_reads_nothing_when_nothing_is_dropped(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """Its line is `return x, lambda dy: dy`, and x was shown as what dy is computed from."""
    recording = recordings["attention"]
    (given,) = (s.index for s in recording.steps if recording.calls[s.call].code.co_name == "<lambda>" and s.bound)
    page = open_page(files["attention"], f"#step={given}")
    assert current(page) == given and page.text_content("#pass") == "backward"
    assert page.locator("#result figure").count() == 1 and page.locator("#operands figure").count() == 0


def test_the_address_names_the_step_and_the_mistake(open_page: Open, recordings: Recordings, files: Files) -> None:
    page = open_page(files["attention"])
    switch(page, "attention-dk-not-scaled")
    page.click("#next")
    step = page.text_content("#counter")
    address = f"#step={step.split(' ')[0]}&mistake=attention-dk-not-scaled"
    until(page, f"location.hash === '{address}'")  # the page writes it a little later
    again = open_page(files["attention"], address)
    assert again.text_content("#counter") == step and chosen(again) == "attention-dk-not-scaled"
    assert "dk lacks the factor" in again.inner_text("#mistake")
    again.evaluate("location.hash = '#step=3'")  # a link to a step alone leaves the mistake on
    until(again, "location.hash === '#step=3&mistake=attention-dk-not-scaled'")
    switch(again, None)
    until(again, "location.hash === '#step=3'")
    for unknown in (
        "#step=3&mistake=<b>",
        "#step=3&mistake=attention-mask-inverted",
        "#step=99999",
        "#step=x&mistake=",
    ):
        other = open_page(files["attention"], unknown)
        assert other.is_hidden("#mistake") and chosen(other) == ""


def test_gap_to_the_finite_difference_opens_with_a_mistake(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    page = open_page(files["worked"], f"#step={at(recordings['worked'], 'softmax.dx')}")
    assert page.inner_text(".verdict").startswith("✓") and page.locator("#checks details[open]").count() == 0
    switch(page, "softmax-no-sum")
    assert page.locator("#checks details[open].large-gap").count() == 1
    assert page.inner_text(".verdict").startswith("✗")
    y = recordings["worked"].find("softmax.y")[1].value.array
    dy = recordings["worked"].find("softmax.dy")[1].value.array
    numerical = recordings["worked"].report["softmax.x"].entries().numerical
    worst = (np.abs(y * dy - numerical) / (1.0 + np.abs(numerical))).max()
    assert page.inner_text(".verdict") == f"✗ up to {readable(float(worst))}"
    page.click("#result .result [data-flat='1']")
    assert page.text_content("#sum-text").startswith(
        f"dX[0, 1] = {readable(y[0, 1].item())}·{readable(dy[0, 1].item())}"
    )


EVALUATED = """
() => {
  const recording = new Recording(data);
  let [count, unknown, largest] = [0, 0, 0];
  recording.steps.forEach(({ bound }, s) =>
    bound.forEach(({ from }, b) =>
      from?.terms?.forEach((term, flat) => {
        const cells = originOf(recording, [s, b], flat).cells;
        const numbers = cells.map(([place, cell]) => recording.value(...place).data[cell]);
        const [x, wanted] = [evaluated(data.terms[term], numbers), recording.value(s, b).data[flat]];
        count += 1;
        if (Number.isNaN(x) && !Number.isNaN(wanted)) unknown += 1;
        else if (!Object.is(x, wanted)) largest = Math.max(largest, Math.abs(x - wanted) / (1 + Math.abs(wanted)));
      }),
    ),
  );
  return [count, unknown, largest];
}
"""


@pytest.mark.parametrize(("name", "least"), [("flash-attention", 100), ("linear-attention", 100), ("gpt", 800)])
def test_every_sum_of_the_page_comes_to_the_recorded_number(
    open_page: Open, example: Example, name: str, least: int
) -> None:
    """Constants had four digits, and one such as 10⁻⁵ was read as no number."""
    count, unknown, largest = open_page(example(name)[1]).evaluate(EVALUATED)
    assert count >= least and unknown == 0
    assert largest <= 1e-12
