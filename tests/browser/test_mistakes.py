"""Every mistake that the pages offer: the red numbers are exactly those in which Python's run with it differs."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer.check.verify.mistakes import MISTAKES, Mistake
from minitransformer.school.show.stepper import Recording
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.page_bugs import _made_in as made_in
from minitransformer.school.show.stepper.pairing import partners

from .conftest import Open
from .reading import FIGURES, at, current, set_in_type, shown_steps

# Of the quick test. A mistake that one example has shown, it leaves out of the next.
CHEAP = ["attention", "embedding", "channel-chunk", "routing"]

# For each mistake: switch it on, in the page and in a recording of its own; then off again. On: the red cells of each
# binding with their numbers, and what the page shows at the step to which it goes. Off: how many red cells are left.
SWITCH = f"""
() => {{
  const recording = new Recording(data);
  const choose = (name) => document.querySelector(name ? `[data-bug="${{name}}"]` : "#right").click();
  const red = () => recording.places.flatMap((place) => {{
    const cells = recording.wrong(...place);
    if (!cells) return [];
    const numbers = recording.value(...place).data;
    return [[place, [...cells].map((cell) => [cell, String(numbers[cell])])]];
  }});
  return JSON.stringify(data.bugs.map((bug) => {{
    if (!document.querySelector(`[data-bug="${{bug.name}}"]`))
      return {{ name: bug.name, refused: bug.refused ?? null }};
    recording.switchBug(bug);
    choose(bug.name);
    const found = {{
      name: bug.name, red: red(), step: Number(document.getElementById("counter").textContent.split(" ")[0]),
      figures: ({FIGURES})(), told: document.getElementById("mistake").textContent,
    }};
    recording.switchBug(null);
    choose("");
    found.left = red().length + document.querySelectorAll(".cell.wrong, .line.wrong, .red").length;
    return found;
  }}));
}}
"""


class Runs:
    """A recording that keeps its runs with a mistake, which the page's builder makes, for the comparison."""

    def __init__(self, right: Recording) -> None:
        self.right = right
        self.wrong: dict[str, Recording | Exception] = {}  # by mistake
        self.current: str | None = None
        self.recording = dataclasses.replace(right, again=self._again)

    def _again(self) -> Recording:
        try:
            run = self.right.again()
        except Exception as error:
            self.wrong[str(self.current)] = error
            raise
        if self.current is not None:
            assert any(call.file.endswith(f"[{self.current}]") for call in run.calls)  # it did run the mistake
            self.wrong[self.current] = run
        return run

    def progress(self, mistakes: Sequence[Mistake]) -> Iterator[Mistake]:
        for mistake in mistakes:
            self.current = mistake.name
            yield mistake


Cells = dict[tuple[int, int], dict[int, float]]  # of the binding [step, which of its names]: the numbers that differ


def differences(right: Recording, wrong: Recording) -> Cells:
    """The numbers in which a run with a mistake differs from the right one."""
    others, found = partners(right, wrong), Cells()
    for bound in (bound for recorded in right.steps for bound in recorded.bound):
        _, other = others.get(bound.serial, (None, None))
        if other is None or other.value.array is None or other.value.shape != bound.value.shape:
            continue
        ours, theirs = (np.ravel(np.asarray(b.value.array)) for b in (bound, other))
        if ours.tobytes() == theirs.tobytes():  # most are; isclose takes its time
            continue
        ours, theirs = ours.astype(float), theirs.astype(float)
        differs = np.flatnonzero(~np.isclose(theirs, ours, rtol=1e-9, atol=1e-9, equal_nan=True))
        step = right.binding(bound.serial)[0]
        if differs.size:
            found[step.index, step.bound.index(bound)] = {int(i): float(theirs[i]) for i in differs}
    return found


def landing(right: Recording, wrong: Recording, red: set[int]) -> int:
    """Of the steps with red numbers, the first whose line was changed; if none was, the first."""
    others = partners(right, wrong)
    changed = {
        s.index for s in right.steps for bound in s.bound
        if bound.serial in others and others[bound.serial][0].source != s.source
    }  # fmt: skip
    return min(red & changed or red)


def compare(name: str, page: Page, runs: Runs) -> Counter[str]:
    """Compare what the page shows for each mistake with Python's run, and count."""
    counts: Counter[str] = Counter()
    for bug in json.loads(page.evaluate(SWITCH)):
        wrong = runs.wrong.pop(bug["name"])
        if "refused" in bug and bug["refused"] is None:
            assert not isinstance(wrong, Exception) and not differences(runs.right, wrong), (name, bug["name"])
            counts["nothing to see"] += 1
            continue
        if "refused" in bug:
            assert isinstance(wrong, Exception) and bug["refused"] == str(wrong).split("\n")[0]
            counts["refused"] += 1
            continue
        wanted = differences(runs.right, wrong)
        found = {tuple(place): {cell: _number(x) for cell, x in cells} for place, cells in bug["red"]}
        assert found.keys() == wanted.keys(), (name, bug["name"])
        for place, cells in wanted.items():
            assert found[place].keys() == cells.keys(), (name, bug["name"], place)
            assert all(np.isclose(found[place][i], x, rtol=1e-8, atol=1e-8, equal_nan=True) for i, x in cells.items())
        shown = {s for s, _ in wanted} & {step.index for step in shown_steps(runs.right)}
        if shown:
            assert bug["step"] == landing(runs.right, wrong, shown), (name, bug["name"])
        for figure in bug["figures"]:  # of this step, or of others that it shows too
            red = [i for i, wrong in enumerate(figure["wrong"]) if wrong]
            assert red == sorted(wanted.get(tuple(figure["place"]), ())), (name, bug["name"], figure["name"])
        changed = sum(map(len, wanted.values()))
        assert (
            f"It changes {changed} numbers" in bug["told"]
            and set_in_type(MISTAKES[bug["name"]].sentence) in bug["told"]
        )
        assert bug["left"] == 0
        counts["mistakes"] += 1
        counts["numbers"] += changed
    assert not runs.wrong  # the page names all that ran
    return counts


def _number(text: str) -> float:
    return float(text.replace("Infinity", "inf"))


def test_every_mistake_turns_exactly_the_differing_numbers_red(open_page: Open, tmp_path: Path) -> None:
    """Every mistake that four cheap pages offer; all of all pages are in the sweep."""
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    for name in CHEAP:
        runs = Runs(EXAMPLES[name].record())
        mine = [m.name for all_of_one in made_in(runs.right).values() for m in all_of_one if m.name not in seen]
        to_html(runs.recording, tmp_path / f"{name}.html", bugs=mine, progress=runs.progress)
        page = open_page(tmp_path / f"{name}.html")
        offered = page.evaluate("data.bugs.filter((bug) => bug.numbers?.length).map((bug) => bug.name)")
        seen |= set(offered)
        counts += compare(name, page, runs)
        page.context.close()
    print(dict(counts))
    assert counts["mistakes"] == len(seen) >= 40


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_mistake_in_every_example(open_page: Open, tmp_path: Path, name: str) -> None:
    """The whole product: all that a page offers."""
    runs = Runs(EXAMPLES[name].record())
    to_html(runs.recording, tmp_path / "all.html", progress=runs.progress)
    counts = compare(name, open_page(tmp_path / "all.html"), runs)
    print(name, dict(counts))
    assert counts["mistakes"] >= 1


def test_a_hidden_line_that_a_mistake_bends_is_a_step(open_page: Open, tmp_path: Path) -> None:
    """A secret factor stood between two steps that both spoke of A: 0.2417 became 0.1395."""
    recording = EXAMPLES["attention"].record()
    recording.to_html(tmp_path / "page.html", bugs=["attention-scaled-after-softmax"])
    page = open_page(tmp_path / "page.html", f"#step={at(recording, 'softmax.y')}")
    page.keyboard.press("ArrowRight")
    assert current(page) == at(recording, "attention.output")
    page.eval_on_selector("#surprise", "button => button.click()")
    page.keyboard.press("ArrowLeft")
    assert current(page) == at(recording, "attention.kept")
