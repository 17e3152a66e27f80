"""The stepper's page in a real browser: edited inputs, by the terms of each line."""

import inspect
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer import ops
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.school.course.worked_example import SCALED, self_attention
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.expansion import expand
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.school.show.stepper.page_edits import followed
from minitransformer.school.show.stepper.pairing import partners
from minitransformer.school.show.stepper.terms import pretty, readable

from .conftest import Files, Open, Recordings
from .reading import FIGURES, at, chosen, go, numbers, shown_steps, switch
from .test_random_edits import REFUSED, _inputs


def test_edited_inputs_are_recomputed_as_python_computes_them(
    open_page: Open, recordings: Recordings, files: Files
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
    assert pretty(expansion.term) in page.text_content("#sum-text")
    page.fill("#inputs [data-name='x'] [data-flat='5']", "two")
    page.keyboard.press("Tab")
    assert page.get_attribute("#inputs [data-name='x'] [data-flat='5']", "aria-invalid") == "true"
    page.click("#reset")
    np.testing.assert_array_equal(
        numbers(page)["scores"], np.ravel(recordings["worked"].find("attention.scores")[1].value.array)
    )
    assert page.is_hidden("#edited")


def test_what_an_edit_cannot_reach_is_refused_by_name(open_page: Open, files: Files) -> None:
    """Dropout changed to 0.5 left `kept` as it was, under a banner that said that every number was recomputed."""
    page = open_page(files["attention"])
    page.click("#edit")
    assert page.is_hidden("#inputs [data-name='dropout']") and page.is_visible("#inputs [data-name='q']")
    assert page.text_content("#fixed") == "dropout: as recorded."
    page.click("#edit")
    for name in ("worked", "softmax", "layer-norm"):
        other = open_page(files[name])
        other.click("#edit")
        assert other.locator("#inputs input:disabled").count() == 0 and other.is_hidden("#fixed")


EDITS = {
    "self_attention": {"x": 5, "w_k": 2, "doutput": 0},
    "attention": {"k": 7},
    "softmax": {"x": 4},
    "layer_norm": {"gamma": 1},
}


def edited(page: Page, recording: Recording, **options: object) -> Recording:
    """Edit some numbers in the page, and record the same call with these in Python."""
    arrays = {b.name: b.value.array.copy() for b in recording.steps[0].bound if b.value.is_float_array}
    entry = next(s for s in recording.steps if recording.calls[s.call].backward)
    arrays |= {b.name: b.value.array.copy() for b in entry.bound}
    page.click("#edit")
    for number, (name, flat) in enumerate(EDITS[recording.name].items()):
        arrays[name].ravel()[flat] = 0.75 - number
        page.fill(f"#inputs [data-name='{name}'] [data-flat='{flat}']", str(0.75 - number))
    page.keyboard.press("Tab")
    *inputs, upstream = arrays.values()
    f = {"self_attention": self_attention}.get(recording.name) or getattr(ops, recording.name)
    scale = {"scale": SCALED.scale} if recording.name == "self_attention" else {}
    return step(f, *inputs, upstream=upstream, verify=True, **scale)


def checks(page: Page) -> dict[str, np.ndarray]:
    """The finite differences that are shown at the current step, by the name of the gradient."""
    found = page.locator("#checks .matrix.numerical").evaluate_all(
        "all => all.map((f) => [f.dataset.name, [...f.querySelectorAll('.cell')].map((c) => Number(c.dataset.value))])"
    )
    return {name: np.array(numbers) for name, numbers in found}


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.sweep) for n in ("worked", "layer-norm")), "attention", "softmax"]
)
def test_finite_differences_of_edited_inputs_are_those_of_python(
    open_page: Open, recordings: Recordings, files: Files, name: str
) -> None:
    page = open_page(files[name])
    fresh = edited(page, recordings[name])
    assert "every number and the finite differences" in page.inner_text("#edited")
    compared = 0
    for recorded in shown_steps(fresh):
        rows = {bound.name: fresh.check_of(recorded, bound) for bound in recorded.bound}
        wanted = {name: row.entries().numerical for name, row in rows.items() if row is not None}
        go(page, recorded.index)
        found = checks(page)
        assert set(found) == set(wanted)
        for gradient, numerical in wanted.items():
            np.testing.assert_allclose(found[gradient], numerical.ravel(), rtol=1e-7, atol=1e-8)
            compared += numerical.size
        verdicts = page.locator("#checks .verdict").all_inner_texts()
        assert len(verdicts) == len(wanted) and all(text.startswith("✓ at most ") for text in verdicts)
    assert compared >= {"softmax": 30, "layer-norm": 50}.get(name, 60)
    gradient = fresh.report.rows[0].name
    go(page, at(fresh, f"{fresh.calls[0].label}.d{gradient}"))
    before = next(iter(checks(page).values()))
    page.click("#reset")
    after = next(iter(checks(page).values()))
    np.testing.assert_array_equal(after, recordings[name].report.rows[0].entries().numerical.ravel())
    assert np.abs(before - after).max() > 1e-3


MADE = "playable().filter((bug) => editable(new Recording(data)).makes(bug)).map((bug) => bug.name)"


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=pytest.mark.sweep) for name in ("worked", "attention", "layer-norm")), "softmax"],
)
def test_a_mistake_opens_the_gap_with_edited_inputs_too(
    open_page: Open, recordings: Recordings, files: Files, name: str
) -> None:
    page = open_page(files[name])
    fresh = edited(page, recordings[name])
    page.check("#all")  # also switches
    known = page.evaluate(MADE)
    assert known
    for bug in known:
        switch(page, bug)
        assert page.is_visible("#edited") and page.is_visible("#editor")
        with MISTAKES[bug].applied():
            wrong = fresh.again()
        others = partners(fresh, wrong)
        opened = red = 0
        for recorded in shown_steps(fresh):
            go(page, recorded.index)
            for figure, right in zip(page.evaluate(FIGURES), recorded.bound, strict=True):
                if right.serial not in others:
                    continue  # the wrong code does not call this
                theirs = np.ravel(others[right.serial][1].value.array).astype(float)
                np.testing.assert_allclose([float(n) for n in figure["numbers"]], theirs, rtol=1e-8, atol=1e-8)
                differs = ~np.isclose(theirs, np.ravel(right.value.array).astype(float), rtol=1e-8, atol=1e-8)
                assert figure["wrong"] == differs.tolist()
                red += int(differs.sum())
            opened += page.locator("#checks .large-gap .verdict", has_text="✗ up to").count()
        assert red > 0 and f"It changes {red} numbers" in page.inner_text("#mistake")
        assert (opened > 0) == (MISTAKES[bug].caught_by == "gradients")
        switch(page, None)
        assert page.locator(".cell.wrong, .large-gap").count() == 0 and page.is_visible("#edited")


def test_edits_stay_where_the_fields_are_closed(open_page: Open, recordings: Recordings, files: Files) -> None:
    """Closing them showed the recorded numbers again without a word, under an address with the edit."""
    page = open_page(files["worked"], f"#step={at(recordings['worked'], 'attention.scores')}")
    page.click("#edit")
    page.fill("#inputs [data-name='x'] [data-flat='0']", "5")
    page.keyboard.press("Tab")
    address = page.evaluate("location.hash")
    changed = numbers(page)["scores"]
    page.click("#edit")
    assert page.is_hidden("#editor") and page.is_visible("#edited") and page.evaluate("location.hash") == address
    np.testing.assert_array_equal(numbers(page)["scores"], changed)
    page.click("#edit")
    assert page.input_value("#inputs [data-name='x'] [data-flat='0']") == "5"
    page.click("#edit")
    page.click("#edited button")
    assert page.is_hidden("#edited") and "edit=" not in page.evaluate("location.hash")
    np.testing.assert_array_equal(
        numbers(page)["scores"], np.ravel(recordings["worked"].find("attention.scores")[1].value.array)
    )


def test_a_mistake_that_the_terms_cannot_make_ends_the_editing(
    open_page: Open, recordings: Recordings, tmp_path: Path
) -> None:
    to_html(recordings["softmax"], tmp_path / "other.html", bugs=["softmax-expects-cross-entropy", "softmax-no-sum"])
    page = open_page(tmp_path / "other.html", f"#step={at(recordings['softmax'], 'softmax.dx')}")
    edited(page, recordings["softmax"])
    switch(page, "softmax-expects-cross-entropy")
    assert page.is_hidden("#editor") and page.is_hidden("#edited")
    assert page.inner_text(".verdict").startswith("✗") and "Largest gap" in page.inner_text("#mistake")
    page.click("#edit")
    assert page.is_hidden("#mistake") and chosen(page) == ""


FOLLOWED = [name for name in EXAMPLES if name not in REFUSED]


WITH_MISTAKES = """
(arrays) => {
  const inputs = editable(new Recording(data));
  const given = arrays.map((numbers) => Float64Array.from(numbers));
  const made = playable().filter((bug) => inputs.makes(bug));
  return made.map((bug) => [bug.name, inputs.run(given, bug).numbers.map((all) => [...all].map(String))]);
}
"""


@pytest.mark.parametrize(
    "name", ["layer-norm", *(pytest.param(n, marks=pytest.mark.sweep) for n in FOLLOWED if n != "layer-norm")]
)
def test_the_mistakes_of_an_example_follow_its_inputs(open_page: Open, tmp_path: Path, name: str) -> None:
    """With all arrays drawn anew and one mistake in the code, of those that the page offers then."""
    recording = EXAMPLES[name].record()
    to_html(recording, tmp_path / "page.html")
    rng = np.random.default_rng(8)
    drawn = {key: rng.normal(size=a.shape) if a.shape else a for key, a in _inputs(recording)}
    f, *given = recording.again.args
    parameters = inspect.signature(f).parameters
    named = dict(zip(parameters, given, strict=False)) | recording.again.keywords
    named |= {key: a if a.shape else float(a) for key, a in drawn.items() if key in parameters}
    page = open_page(tmp_path / "page.html")
    made = page.evaluate(WITH_MISTAKES, [a.ravel().tolist() for a in drawn.values()])
    assert len(made) > 1
    for mistake, lists in made:
        with MISTAKES[mistake].applied(), np.errstate(all="ignore"):
            others = partners(recording, step(f, **named | {"upstream": list(drawn.values())[-1]}))
        for (_, bound), texts in zip(recording.bindings, lists, strict=True):
            if bound.serial in others:
                found = [float(x.replace("Infinity", "inf")) for x in texts]
                theirs = np.ravel(others[bound.serial][1].value.array).astype(float)
                np.testing.assert_allclose(found, theirs, rtol=1e-8, atol=1e-8, err_msg=f"{mistake}: {bound.title}")


def test_terms_that_do_not_suffice_are_found() -> None:
    """Without the term of one line, other inputs would give the numbers of the recording there."""
    recording = EXAMPLES["attention"].record()
    data = page_data(recording)
    assert followed(recording, data) == ["q", "k", "v", "doutput", "dropout"]  # which drops nothing without an rng
    s, bound = recording.find("attention.scores")
    del data["steps"][s.index]["bound"][s.bound.index(bound)]["from"]
    assert followed(recording, data) == []
    assert followed(EXAMPLES["experts"].record(), page_data(EXAMPLES["experts"].record())) == []
    entropy = EXAMPLES["cross-entropy"].record()
    assert followed(entropy, page_data(entropy)) == ["logits", "dloss"]  # a smoothing of 0 leaves out a line


def test_what_the_terms_do_not_tell_cannot_be_edited(open_page: Open, tmp_path: Path) -> None:
    EXAMPLES["experts"].record().to_html(tmp_path / "experts.html", bugs=())
    page = open_page(tmp_path / "experts.html")
    page.click("#edit")
    told = page.inner_text("#fixed")
    assert told.startswith("This page cannot recompute Top-k gates") and "record again in Python" in told
    assert page.locator("#inputs input").count() == 0 and page.is_hidden("#reset")


def test_a_number_that_python_refuses_is_refused_with_its_reason(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """A temperature of 0 gave NaN everywhere, where Python raises ValueError; a word only turned its field red."""
    page = open_page(files["softmax"], f"#step={at(recordings['softmax'], 'softmax.y')}")
    page.click("#edit")
    before = numbers(page)["y"]
    cases = (("temperature", "τ", "0", "greater than 0, got 0."), ("x", "X[0, 0]", "two", "a number, got “two”."))
    for name, cell, typed, reason in cases:
        page.fill(f"#inputs [data-name='{name}'] [data-flat='0']", typed)
        page.keyboard.press("Tab")
        assert page.inner_text("#edited").startswith(f"{cell} must be {reason}")
        np.testing.assert_array_equal(numbers(page)["y"], before)
        page.click("#reset")


def test_an_edit_counts_beside_a_refused_one_and_what_moved_tells_its_old_number(
    open_page: Open, recordings: Recordings, files: Files
) -> None:
    """One cell that was not a number held back all other edits, and nothing showed which numbers an edit had moved."""
    recording = recordings["softmax"]
    page = open_page(files["softmax"], f"#step={at(recording, 'softmax.y')}")
    page.click("#edit")
    page.fill("#inputs [data-name='x'] [data-flat='0']", "two")
    page.fill("#inputs [data-name='x'] [data-flat='6']", "1.5")
    page.keyboard.press("Tab")
    assert "X[0, 0] must be a number" in page.inner_text("#edited")
    x = recording.find("softmax.x")[1].value.array.copy()
    x[1, 1] = 1.5
    y, _ = ops.softmax(x)
    np.testing.assert_allclose(numbers(page)["y"], y.ravel(), rtol=1e-12)
    told = page.locator("#result .result .cell").evaluate_all(
        "all => all.map((cell) => [cell.title, cell.style.border])"
    )
    before = recording.find("softmax.y")[1].value.array.ravel()
    for flat, (title, border) in enumerate(told):
        moved = 5 <= flat < 10  # the second row
        assert title.endswith(f", was {readable(float(before[flat]))}") is moved and ("dashed" in border) is moved
    page.click("#result .result [data-flat='6']")
    assert page.text_content("#sum-text").endswith(f", was {readable(float(before[6]))}")
