"""One value, one name: where formulas have a symbol, no question, answer or sum has the name in the code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from minitransformer.school.show.stepper.examples import EXAMPLES

from .conftest import Example, Open
from .reading import go, numbers

# At every step, with all lines: the question, what is said of a wrong answer, the finite differences, and the sum of a
# number of every matrix; each with the name of its value in the code and its symbol, as they are in the data.
TOLD = """
() => {
  const byId = (id) => document.getElementById(id);
  const recording = new Recording(data);
  const written = (symbol) => math(data.symbols[symbol]).textContent;
  byId("all").click();
  byId("predict").click();
  const found = [];
  const add = (where, element, [s, b], caption) => {
    const { name, symbol } = recording.steps[s].bound[b];
    const told = { where: `${where} ${s}`, text: element.textContent, name, symbol: caption ?? written(symbol) };
    if (!element.hidden) found.push(told);
  };
  for (let i = 0; i <= byId("slider").max; i++) {
    byId("slider").value = i;
    byId("slider").dispatchEvent(new Event("input"));
    const s = parseInt(byId("counter").textContent);
    const question = byId("question").hidden ? null : questionAt(recording, s);
    if (question) {
      add("question", byId("question"), [s, question.b]);
      const place = recording.recorded(s, question.b).shape.map(() => 0).join();
      byId("guess").value = { number: "123456", sign: "zero" }[question.kind] ?? place;
      byId("answer").click();
      add("mark", byId("mark"), [s, question.b]);
    } else byId("reveal").click();
    byId("checks").querySelectorAll("summary").forEach((line, i) => {
      const gradients = recording.results(s).filter(([at, b]) => recording.numerical(at, b));
      add("check", line, gradients[i]);
    });
    for (const figure of document.querySelectorAll("#now .result, #now .operand")) {
      const cell = figure.querySelector(".cell:not(.asked)");
      if (!cell || !figure.isConnected) continue; // what only the number before was computed from
      cell.click();
      const caption = figure.querySelector("figcaption math").textContent;
      add("sum", byId("sum-text"), figure.dataset.place.split(",").map(Number), caption);
      found.at(-1).note = byId("sum-note").textContent;
    }
  }
  return found;
}
"""

CALLED_OUTSIDE = "#now .result figcaption, #operands figcaption"


def test_inside_softmax_a_caption_says_what_attention_calls_it(open_page: Open, example: Example) -> None:
    recording, path = example("attention")
    page = open_page(path, reduced_motion="reduce")

    def captions(title: str) -> list[str]:
        go(page, recording.find(title)[0].index)
        told = page.locator(CALLED_OUTSIDE).evaluate_all("all => all.map((caption) => caption.textContent)")
        return [re.sub(r"\d.*", "", text) for text in told]

    assert captions("softmax.largest") == ["largest", "X = S"]
    assert captions("softmax.y") == ["Y → A", "exponentials", "total"]
    assert captions("softmax.dx")[:3] == ["dX → dS", "Y → A", "dY = dA"]
    assert captions("attention.dscores") == ["dS", "dA", "A"]


def test_the_backward_of_softmax_is_a_formula_of_attention(open_page: Open, example: Example) -> None:
    recording, path = example("attention")
    page = open_page(path, reduced_motion="reduce")
    formulas = []
    while page.get_attribute("#next", "aria-disabled") == "false":
        page.keyboard.press("ArrowRight")
        formulas.append(page.text_content("#formula"))
        if "=" in formulas[-1] and formulas[-1].startswith("dS"):
            dscores = recording.find("attention.dscores")[1].value.array
            np.testing.assert_array_equal(numbers(page)["dscores"], dscores.ravel())
    assert "dS=A⊙(dA−∑jdA⊙A)" in formulas and len(formulas) < 14


def test_one_counter_counts_the_steps(open_page: Open, example: Example) -> None:
    """The page said 13 of 14 and line 38 / 40, and its links spoke of step 38."""
    recording, path = example("attention")
    page = open_page(path, reduced_motion="reduce")
    go(page, recording.find("attention.output")[0].index)
    assert page.inner_text("#shown") == "7 of 14" and page.is_hidden("#counter")
    assert (page.text_content("#live") or "").startswith("Step 7, forward")
    page.click("#operands [data-name='kept'] .cell")
    assert page.text_content("#sum-note").startswith("See step 6: Softmax")
    go(page, recording.find("attention.weights")[0].index)  # no step of its own
    assert page.is_hidden("#shown") and page.is_visible("#counter")
    go(page, recording.find("attention.output")[0].index)
    page.check("#all")
    assert page.is_hidden("#shown") and page.text_content("#counter") == "25 / 40"


LONG = (
    "encoder-layer",
    "decoder-layer",
    "latent-attention",
    "multi-head",
    "qk-norm",
    "grouped-attention",
    "local-attention",
)


@pytest.mark.few(2, slow=0)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sweep) if name in LONG else name for name in EXAMPLES]
)
def test_a_value_has_the_name_that_its_formula_has(open_page: Open, tmp_path: Path, name: str) -> None:
    EXAMPLES[name].record(verify=name != "gpt").to_html(tmp_path / "page.html", bugs=())
    page = open_page(tmp_path / "page.html", reduced_motion="reduce")
    found = page.evaluate(TOLD)
    assert {each["where"].split()[0] for each in found} >= {"question", "mark", "sum"}
    for each in found:
        assert each["symbol"] in each["text"], each
        if len(each["name"]) > 2 and each["name"] not in each["symbol"]:
            assert not re.search(rf"(?<!\w){each['name']}(?!\w)", each["text"]), each
        assert "_" not in each["text"] + each.get("note", ""), each
