"""What every step of every example says: no marks of code in a heading, a sentence, a formula or the call path."""

import pytest

from minitransformer.school.show.stepper.examples import EXAMPLES

from .conftest import Example, Files, Open
from .reading import stops, switch

# Of every step, with all lines: what stands in the given places, but for code that is shown as code.
TEXTS = """
(places) => {
  document.getElementById("all").click();
  const slider = document.getElementById("slider");
  const found = new Map();
  for (let i = 0; i <= slider.max; i++) {
    slider.value = i;
    slider.dispatchEvent(new Event("input"));
    for (const element of document.querySelectorAll(places)) {
      const copy = element.cloneNode(true);
      copy.querySelectorAll("code, .hidden").forEach((code) => code.remove());
      if (!found.has(copy.textContent)) found.set(copy.textContent, `${i} ${element.id || element.tagName}`);
    }
  }
  return [...found].map(([text, place]) => [place, text]);
}
"""
PLACES = "h1, h2, #path, #formula, #sentence, #map button, #map .input, figcaption, #formulas, #intro, #question"


OFTEN = ("linear-attention", "attention")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.sweep) for name in EXAMPLES]
)
def test_no_step_says_a_private_name_or_an_underscore(open_page: Open, example: Example, name: str) -> None:
    recording, path = example(name)
    page = open_page(path, reduced_motion="reduce")
    found = page.evaluate(TEXTS, PLACES)
    assert len(found) > 20
    assert [(place, text) for place, text in found if "_" in text] == []
    assert [text for _, text in found if " post " in text or " pre " in text] == []
    page.evaluate("document.getElementById('all').click()")
    page.keyboard.press("Home")
    page.click("#list")
    summaries = page.locator("#links summary").all_text_contents()
    assert not [text for text in summaries if "_" in text or "#" in text]
    assert page.locator("#links a").count() == len(stops(recording))


def test_a_sentence_has_formulas_not_code(open_page: Open, files: Files) -> None:
    """The banner said sum_i dy_i y_i; in large text a line ended between √ and d_k."""
    page = open_page(files["attention"])
    switch(page, "softmax-no-sum")
    assert "∑" in page.inner_text("#mistake") and "sum_" not in page.inner_text("#mistake")
    page.keyboard.press("Home")
    page.keyboard.press("t")
    root = page.locator("#sentence .piece", has_text="√")
    assert root.inner_text().replace("\n", "") == "√dk" and "√" not in page.inner_text("#sentence").replace("√d", "")
    assert root.evaluate("(e) => getComputedStyle(e).display") == "inline-block"
