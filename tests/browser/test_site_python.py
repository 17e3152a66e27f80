"""The site's Python, in a real browser: cells give the notebook's outputs, exercises are judged, Stop stops."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import code_of
from playwright.sync_api import Page, expect

from minitransformer import cli
from minitransformer.course import EXERCISES
from minitransformer.school.show.site.build import _sizes
from minitransformer.school.show.site.frame import PUBLIC_SIZES

from .conftest import Open
from .site_server import PYODIDE, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from test_packaging import COMPILED, FILES

NOTEBOOKS = ROOT / "notebooks"
MINUTES = 60_000.0  # milliseconds


build = code_of(NOTEBOOKS / "build.py")
WITH_THREADS = "23_many_machines"  # its ranks are threads, which Python in a browser does not have
NAMES = [name for name in build.names() if name != WITH_THREADS]

# Keeps every output that the page shows, with the cell it belongs to.
KEEP = """
() => {
  const show = showOutput;
  showOutput = (box, output) => { (box.closest(".cell").kept ??= []).push(output); show(box, output); };
}
"""
ENDED = """
() => document.querySelector('.cell[data-state=failed]') ||
  [...document.querySelectorAll('.cell')].every((cell) => cell.dataset.state === 'done')
"""


def run_all(page: Page) -> list[list[dict[str, Any]]]:
    """Run all cells and return the outputs of each."""
    page.evaluate(KEEP)
    page.get_by_role("button", name="Show everything").click()
    page.get_by_role("button", name="Run all cells").click()
    page.wait_for_function(ENDED, timeout=10 * MINUTES)
    assert page.locator(".cell[data-state=failed] .error").all_inner_texts() == []
    return page.locator(".cell").evaluate_all("cells => cells.map((cell) => cell.kept ?? [])")


def differences(name: str, outputs: list[list[dict[str, Any]]]) -> list[str]:
    """Where the outputs of the page differ from the notebook's, by the rules of notebooks/build.py."""
    built = build.read_built(name)
    fresh = json.loads(json.dumps(built))
    code = [cell for cell in fresh["cells"] if cell["cell_type"] == "code"]
    for cell, own in zip(code, outputs, strict=True):
        cell["outputs"] = build._settled(own)
    return build.output_differences(fresh, built)


@pytest.mark.sweep  # the fourth runs in each gate, below
@pytest.mark.parametrize("name", NAMES)
def test_chapter_run_in_order_gives_the_outputs_of_the_notebook(visit: Open, name: str) -> None:
    page = visit(f"chapters/{name}.html")
    assert differences(name, run_all(page)) == []


@pytest.mark.sweep
def test_chapter_with_threads_says_where_it_runs(visit: Open) -> None:
    page = visit(f"chapters/{WITH_THREADS}.html")
    page.get_by_role("button", name="Show everything").click()
    page.get_by_role("button", name="Run all cells").click()
    page.wait_for_function(ENDED, timeout=10 * MINUTES)
    expect(page.locator(".cell[data-state=failed] .error")).to_contain_text("run this in Python on a computer")


CHECKS = """
async (answers) => {
  const verdicts = [];
  for (const [exercise, code] of answers) {
    const got = [];
    await python.run({ exercise, code }, (output) => got.push(output));
    verdicts.push(got.map((output) => output.said?.join(" ") ?? output.traceback?.join("")).join(""));
  }
  return verdicts;
}
"""


def answers(most: int) -> list[tuple[str, str, str]]:
    """For each exercise its reference solution and some mistakes: exercise, code, the sentence that must be told."""
    found = []
    for name, exercise in EXERCISES.items():
        found.append((name, exercise.solution(), ""))
        for mistake in exercise.mistakes[:most]:
            found.append((name, mistake.edited(exercise.solution()), mistake.sentence))
    return found


def judged(page: Page, given: list[tuple[str, str, str]]) -> list[str]:
    page.set_default_timeout(10 * MINUTES)
    texts = page.evaluate(CHECKS, [(name, _complete(name, code)) for name, code, _ in given])
    wrong = []
    for (name, _, sentence), text in zip(given, texts, strict=True):
        told = " ".join(text.split())
        right = f"{name}: right" in told
        if right != (not sentence) or " ".join(sentence.split()) not in told:
            wrong.append(f"{name}: {told[:300]} (expected: {sentence or 'right'})")
    return wrong


def _complete(name: str, code: str) -> str:
    """The code with the imports that it needs: those of the file of the reference that it uses."""
    module = sys.modules[EXERCISES[name].reference.__module__]
    used = set(re.findall(r"\b\w+\b", code))
    needed = [n for n in vars(module) if n in used and not n.startswith("__") and n not in (name, "np")]
    lines = [f"from {module.__name__} import {', '.join(needed)}"] if needed else []
    return "\n".join(["from __future__ import annotations", *lines, code])


@pytest.mark.sweep
def test_three_mistakes_of_each_exercise_are_named(visit: Open) -> None:
    assert judged(visit("exercises/softmax_backward.html"), answers(3)) == []


# The page of worksheets hands its code out in place of running it, and is given the outputs.
HAND_OUT = """
() => {
  python.begun = true;
  python.run = (request, onOutput) => new Promise((end) => (asked = { request, onOutput, end }));
}
"""
RUN = "async (request) => { const got = []; await python.run(request, (output) => got.push(output)); return got; }"
GIVE = "(outputs) => { outputs.forEach(asked.onOutput); asked.end({ done: true }); }"


def makes_worksheets(page: Page, sheets: Page, folder: Path) -> None:
    """In the page of worksheets, with the Python of another page, as the command makes them."""
    sheets.evaluate(HAND_OUT)
    expect(sheets.get_by_role("button", name="Make the key")).to_have_count(0)
    sheets.get_by_label("Kind").select_option("attention-backward")
    sheets.get_by_label("Seed").fill("7")
    sheets.get_by_label("Students").fill("1")
    sheets.get_by_role("button", name="Make the worksheets").click()
    sheets.evaluate(GIVE, page.evaluate(RUN, sheets.evaluate("asked.request")))
    with sheets.expect_download() as download:
        sheets.get_by_role("link", name="Save worksheet-attention-backward-7.html").click()
    assert cli.main(["worksheet", "attention-backward", "--seed", "7", "--html", str(folder / "sheet.html")]) == 0
    assert download.value.path().read_text("utf-8") == (folder / "sheet.html").read_text("utf-8")


def test_one_python_serves_the_exercises_and_scipy_comes_where_it_is_imported(
    visit: Open, site_folder: Path, tmp_path: Path
) -> None:
    """In the end it judges each third of the reference solutions and of the mistakes, and makes worksheets."""
    asked: list[str] = []
    page = visit("exercises/relu_backward.html")
    page.on("request", lambda request: asked.append(request.url))
    assert _sizes(str(PYODIDE)) == PUBLIC_SIZES  # what the other pages of the site, with the public Pyodide, say
    wheel = round(next(site_folder.glob("*.whl")).stat().st_size / 1e6)
    expect(page.get_by_text(f"The first run loads Python, about {PUBLIC_SIZES['numpy'] + wheel} MB.")).to_be_visible()
    page.set_default_timeout(5 * MINUTES)

    def check(answer: str) -> list[str]:
        """The files that are loaded for a check, after which the verdict says right."""
        asked.clear()
        page.evaluate("python.begun = true")
        page.locator(".editor textarea").fill(answer)
        page.get_by_role("button", name="Check", exact=True).click()
        expect(page.locator("#verdict")).to_contain_text(": right.", timeout=5 * MINUTES)
        return [url.rpartition("/")[2] for url in asked]

    first = check("def relu_backward(x, dy):\n    return dy * (x > 0)")
    assert any(name.startswith("numpy") for name in first) and not any("scipy" in name for name in first)
    page.get_by_role("link", name="GELU, backward").last.click()
    expect(page.locator(".editor textarea")).to_have_value(re.compile("def gelu_backward"))  # no longer the one before
    answer = (
        "def gelu_backward(x, dy):\n    s, e = x / 2**0.5, np.exp(-x * x / 2)\n"
        "    return dy * (0.5 + ERF / 2 + x * e / np.sqrt(2 * np.pi))"
    )
    assert check(answer.replace("ERF", "np.vectorize(__import__('math').erf)(s)")) == []
    page.evaluate("() => { const plainly = say; said = []; say = (text) => (said.push(text), plainly(text)); }")
    third = check("from scipy.special import erf\n" + answer.replace("ERF", "erf(s)"))
    assert sorted(name.partition("-")[0] for name in third) == ["openblas", "scipy"]
    assert "Python loads scipy, about 20 MB, and runs …" in page.evaluate("said")
    assert check(answer.replace("s, e", "from scipy.special import erf; s, e", 1).replace("ERF", "erf(s)")) == []
    assert judged(page, answers(1)[::3]) == []
    makes_worksheets(page, visit("teachers/worksheets.html"), tmp_path)


def imported(page: Page, every: int) -> None:
    """Import the modules of the package in the first cell."""
    names = ["minitransformer." + name[:-3].replace("/", ".").removesuffix(".__init__") for name in FILES]
    left_out = {"__init__", "__main__", "pytest_plugin", *(f"run.fast.{name}" for name in COMPILED)}
    wanted = [name for name in names if name.removeprefix("minitransformer.") not in left_out][::every]
    cell = page.locator(".cell").first
    if cell.locator("textarea").is_hidden():
        cell.locator("summary").click()  # its imports are folded
    cell.locator("textarea").fill(
        f"import importlib\nfor name in {wanted}:\n    importlib.import_module(name)\n'every module'"
    )
    cell.get_by_role("button", name="Run", exact=False).first.click()
    expect(cell.locator(".output")).to_contain_text("every module", timeout=5 * MINUTES)


@pytest.mark.sweep
def test_every_module_imports_in_pyodide(visit: Open) -> None:
    page = visit("chapters/04_softmax_backward.html")
    page.get_by_role("button", name="Show everything").click()
    imported(page, every=1)


def test_a_chapter_gives_the_outputs_of_its_notebook_imports_the_package_and_stops(visit: Open) -> None:
    page = visit("chapters/04_softmax_backward.html")
    assert differences("04_softmax_backward", run_all(page)) == []
    imported(page, every=8)
    cell = page.locator(".cell").first

    second = page.locator(".cell").nth(1)
    second.locator("textarea").fill("1 / 0")
    for _ in range(2):  # the number is that of the cell, not of the run
        page.get_by_role("button", name="Run cell 2", exact=True).click()
        expect(second).to_have_attribute("data-state", "failed", timeout=MINUTES)  # it is "running" from the click on
        expect(second.locator(".error")).to_contain_text('File "cell 2", line 1')

    cell.locator("textarea").fill("print('begun', flush=True)\nwhile True:\n    pass")
    cell.get_by_role("button", name="Run", exact=False).first.click()
    expect(cell.locator(".output")).to_contain_text("begun", timeout=MINUTES)
    assert page.evaluate("1 + 1") == 2  # the page answers
    page.get_by_role("button", name="Stop").click()
    expect(cell.locator(".error")).to_contain_text("Stopped.")
    expect(page.locator("#python")).to_contain_text("Python restarts")


def test_work_is_saved_as_the_file_that_grade_takes_and_opened_again(
    visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = visit("exercises/softmax_backward.html")
    right = "def softmax_backward(y, dy):\n    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))\n"
    page.locator(".editor textarea").fill(right)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save my work").click()
    path = tmp_path / "anna.ipynb"
    download.value.save_as(path)
    assert cli.main(["grade", str(path), "--json", "--seed", "1"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["score"] == 1.0 and [each["exercise"] for each in file["exercises"]] == ["softmax_backward"]

    fresh: Callable[..., Page] = visit
    other = fresh("exercises/softmax_backward.html")
    other.locator("input.open").set_input_files(path)
    expect(other.locator(".editor textarea")).to_have_value(right)
