"""The start page's translator: its numbers are Python's, and it shows them without Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from minitransformer import models, text
from minitransformer.commands import demo
from minitransformer.run.tasks.translation import written
from minitransformer.school.show.site import live
from minitransformer.school.show.viewer import view
from minitransformer.text import english, german

from .conftest import Open
from .site_server import untrained

LONGEST = 24  # parts of a translation
KINDS = ("encoder", "decoder", "cross")
MODELS: dict[int, dict[str, int]] = {  # by seed, the sizes
    4: {},
    18: {"n_encoder_layers": 2, "n_decoder_layers": 1},
    8: {"d_model": 10, "n_heads": 1, "d_ff": 7},
}
TRANSLATE = """
([script, all]) => {
  const translator = new Translator(new Function(`${script}; return MODEL`)());
  return all.map((words) => translator.translate(words));
}
"""


def translated(page: Page, folder: Path, numbers: list[int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(TRANSLATE, [live.script(folder), [english(n) for n in numbers]])
    return found


def test_translation_and_every_weight_are_pythons(visit: Open, tmp_path: Path) -> None:
    page, numbers = visit("index.html"), [7, 42, 54_321]
    for seed, sizes in MODELS.items():
        folder = untrained(tmp_path / str(seed), seed, **sizes)
        model, source, target = models.load(folder), text.load(folder, "source"), text.load(folder, "target")
        model.to(dtype="float64")
        parts = set()
        for number, made in zip(numbers, translated(page, folder, numbers), strict=True):
            ids = source.encode(" ".join(english(number)))
            (wanted,) = written(model, [ids], beam=1, max_length=LONGEST)
            assert made["written"] == [target.tokens[i] for i in wanted]
            parts |= set(wanted)
            read = [target.tokens.index(part) for part in made["read"]]
            for kind, maps in zip(KINDS, view(model, ids, read).maps, strict=True):
                weights = np.array(made["weights"][kind]).reshape(maps.weights.shape)
                np.testing.assert_allclose(weights, maps.weights, rtol=0, atol=1e-12)
        assert len(parts) > 3  # a model that always writes the same would hide mistakes


@pytest.mark.sweep
def test_the_demos_model_translates_as_in_python(visit: Open, tmp_path: Path) -> None:
    demo.run(tmp_path)
    folder = tmp_path / "model"
    model, source, target = models.load(folder), text.load(folder, "source"), text.load(folder, "target")
    numbers = np.random.default_rng(1).choice(100_000, 1000, replace=False).tolist()
    ids = [source.encode(" ".join(english(number))) for number in numbers]
    wanted = [[target.tokens[i] for i in each] for each in written(model, ids, beam=1, max_length=LONGEST)]
    made = translated(visit("index.html"), tmp_path / "model", numbers)
    assert [each["written"] for each in made] == wanted


def test_numbers_are_put_into_words_as_python_does(visit: Open) -> None:
    numbers = [*range(1200), *range(1200, 100_000, 97)]
    found = visit("index.html").evaluate("ns => ns.map((n) => [english(n), german(n)])", numbers)
    assert found == [[english(n), "".join(german(n))] for n in numbers]


def test_only_the_demos_kind_of_model_is_taken(tmp_path: Path) -> None:
    folder = untrained(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["config"]["activation"] = "gelu"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="a translator of numbers like the demo's, which"):
        live.script(folder)


def test_a_typed_number_is_translated_and_each_head_shows_where_it_looks(visit: Open) -> None:
    page = visit("index.html", reduced_motion="reduce")
    page.get_by_label("Type a number").fill("42")
    expect(page.locator("#looks .keys li")).to_have_text(["forty", "two"])
    made = page.evaluate("new Translator(MODEL).translate(['forty', 'two'])")
    expect(page.locator("#looks .queries li")).to_have_text(made["written"])
    got = "".join(part for part in made["written"] if part != "<end>")
    expect(page.locator("#said")).to_contain_text(f"{got or '(nothing)'} ✗ it should be zweiundvierzig")
    page.locator("#looks .queries button").first.focus()
    heads = page.locator("#heads button")
    assert heads.count() == len(made["weights"]["cross"])
    most = [["forty", "two"][int(np.argmax(weights[0]))] for weights in made["weights"]["cross"]]
    expect(heads.locator(".most")).to_have_text(most)
    heads.nth(2).click()
    expect(heads.nth(2)).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("document.activeElement.textContent").startswith("layer 1, head 3")
    expect(page.locator("#readout")).to_contain_text("looks at")
    page.get_by_label("English at itself").check()
    expect(page.locator("#looks .queries li")).to_have_text(["forty", "two"])


REFUSED = dict.fromkeys(("", "-1", "1.5", "<b>", "١"), "") | {  # by what is typed, why
    "0": "The model never met the word “zero”. ",
    "100000": "100000 is too large: the model learnt no number above 99999. ",
}


def test_what_the_model_cannot_read_is_refused_in_words_and_no_old_answer_stays(visit: Open) -> None:
    page = visit("index.html")
    field = page.get_by_label("Type a number")
    for typed, why in REFUSED.items():
        field.fill("7")
        expect(page.locator("#looks")).to_be_visible()
        field.fill(typed)
        expect(page.locator("#said")).to_have_text(f"{why}Type a whole number from 1 to 99999.")
        expect(page.locator("#why")).to_be_hidden()
        expect(page.locator("#pictured")).to_be_hidden()
        expect(field).to_have_attribute("aria-invalid", "true")
        field.fill("21")
        expect(page.locator("#looks .keys li")).to_have_text(["twenty", "one"])


def test_a_wrong_answer_says_how_often_the_model_is_right(visit: Open) -> None:
    page = visit("index.html")
    page.get_by_label("Type a number").fill("42")
    of_two = page.evaluate("MODEL.tried[1][1]")  # this model has not learnt anything, but may guess one
    expect(page.locator("#why")).to_contain_text(f"this small model got {of_two} of 90 numbers of 2 digits right")
    expect(page.locator("#why")).to_contain_text("seldom met short ones")
    page.get_by_label("Type a number").fill("54321")
    expect(page.locator("#why")).to_have_text("When tried, this small model got 0 of 90 numbers of 5 digits right.")
    page.evaluate("german = () => document.querySelector('#said strong').textContent")
    page.get_by_label("Type a number").dispatch_event("input")
    expect(page.locator("#said")).to_contain_text("right")
    expect(page.locator("#why")).to_be_hidden()


def test_how_often_is_counted_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = untrained(tmp_path)
    model, source, target = models.load(folder), text.load(folder, "source"), text.load(folder, "target")
    said = [target.encode("vier und"), target.encode("zwei")]
    monkeypatch.setattr(live, "greedy", lambda _, ids, *rest: [said[int(row[1] == 0)] for row in ids])
    monkeypatch.setattr(live, "german", lambda n: ["vier", "und"] if n > 20 else ["zwei"])
    tens = [n for n in range(10, 100) if n <= 20 or n % 10 == 0]  # in one word
    wanted = sum((n <= 20) == (n in tens) for n in range(10, 100))
    assert live._tried(model, source, target, 2) == (90, wanted)


def test_one_word_needs_no_squares(visit: Open) -> None:
    page = visit("index.html", reduced_motion="reduce")
    page.get_by_label("Type a number").fill("7")
    expect(page.locator("#heads")).to_be_hidden()
    expect(page.locator("#squares")).to_contain_text("There is one word to look at, “seven”")
    page.get_by_label("Type a number").fill("27")
    expect(page.locator("#heads")).to_be_visible()
    smallest = "all => Math.min(...all.map((each) => parseFloat(getComputedStyle(each).fontSize)))"
    assert page.locator("#heads span").evaluate_all(smallest) >= 12


def test_enter_keeps_the_number(visit: Open) -> None:
    """It drew another, and so took away what was typed and what was said about it."""
    page = visit("index.html")
    field = page.get_by_label("Type a number")
    field.fill("7")
    field.press("Enter")
    assert field.input_value() == "7"
    page.get_by_role("button", name="Another").click()
    assert field.input_value() != "7"


def test_both_ways_to_see_it_lead_to_the_field(visit: Open) -> None:
    page = visit("index.html")
    ways = page.locator("a[href='#live']")
    expect(ways).to_have_count(2)
    for i in range(2):
        page.get_by_role("button", name="Another").focus()
        ways.nth(i).click()
        expect(page.get_by_label("Type a number")).to_be_focused()
