"""The site without a browser: how a cell runs, and what the command refuses. tests/browser has the rest."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from minitransformer import cli
from minitransformer.course import EXERCISES
from minitransformer.school.course.worksheets import make, page, to_html
from minitransformer.school.show.site.build import LIBRARIES, build
from minitransformer.school.show.site.cell import LONGEST, Session, check
from minitransformer.school.show.site.exercises import _letters
from minitransformer.school.show.site.folding import MOST_LINES, summary
from minitransformer.school.show.site.modules import shown_modules
from minitransformer.school.show.site.notebook import linked, read, read_ideas, source_of
from minitransformer.school.show.site.predictions import kind, poll, question
from minitransformer.school.show.site.siblings import module_of
from minitransformer.school.show.site.worksheets import document
from minitransformer.school.show.stepper.examples import EXAMPLES

Outputs = list[dict[str, Any]]
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_named_before_the_work(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert cli.main(["site", "--out", str(tmp_path / "site")]) == 1
    assert capsys.readouterr().err.endswith(
        f'the site needs the library {library}; install it: pip install "minitransformer[site]"\n'
    )
    assert not any(tmp_path.iterdir())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    """A list for what a session sends; a session changes two modules and a variable, which are put back."""
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
    monkeypatch.setenv("MPLBACKEND", "agg")
    return []


def test_a_cell_shows_what_it_prints_and_the_value_of_its_last_line(sent: Outputs) -> None:
    session = Session(sent.append)
    assert session.run("x = 2\nprint('two')\nx + 1") and session.run("x;") and session.run("display(x)")
    assert [output["output_type"] for output in sent] == ["stream", "stream", "execute_result", "display_data"]
    assert "".join(output["text"] for output in sent[:2]) == "two\n"
    assert [output["data"] for output in sent[2:]] == [{"text/plain": "3"}, {"text/plain": "2"}]


def test_display_can_be_imported_and_shows_html_beside_text(sent: Outputs) -> None:
    code = "from IPython.display import display\nclass A:\n    def _repr_html_(self): return '<b>a</b>'\ndisplay(A())"
    assert Session(sent.append).run(code)
    assert sent[0]["data"]["text/html"] == "<b>a</b>"


def test_an_error_is_told_from_the_cell_on(sent: Outputs) -> None:
    session = Session(sent.append)
    assert not session.run("def f():\n    return 1 / 0\nf()")
    (error,) = sent
    text = "".join(error["traceback"])
    assert error["ename"] == "ZeroDivisionError" and 'File "cell 1", line 3' in text and "return 1 / 0" in text
    assert "cell.py" not in text
    assert not session.run("1 / 0", 6)
    assert 'File "cell 6", line 1' in "".join(sent[-1]["traceback"])  # the cell's place, however often it ran
    assert not session.run("def")
    assert sent[-1]["ename"] == "SyntaxError"


def test_notebooks_are_mentioned_as_chapters_with_links() -> None:
    pages = {n: f"../chapters/{n}.html" for n in range(1, 13)}
    for text, expected in (
        ("of notebook 2.", "of [chapter 2](../chapters/2.html)."),
        ("(Notebook 4 returns)", "([Chapter 4](../chapters/4.html) returns)"),
        ("notebooks 2 (VJPs in 3 lines), 6 and\n8 to 12.", "chapters {2} (VJPs in 3 lines), {6} and\n{8} to {12}."),
        ("this notebook, and 3 notebooks", "this notebook, and 3 notebooks"),
    ):
        for n in (2, 6, 8, 12):
            expected = expected.replace(f"{{{n}}}", f"[{n}](../chapters/{n}.html)")
        assert linked(text, pages) == expected


def figures(text: str) -> list[float]:
    """The numbers of a text, and the fractions of LaTeX."""
    plain = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3}\b)", "", text.replace("−", "-"))
    return [float(n) for n in re.findall(r"-?\d*\.?\d+(?:e[-+]?\d+)?", plain)]


def answers() -> Iterator[tuple[str, str, list[float]]]:
    """What each prediction is compared with: name, answer, and the numbers of the chapter's text and outputs."""
    for chapter in read(ROOT / "notebooks"):
        texts = [source_of(cell) + json.dumps(cell.get("outputs", ""), ensure_ascii=False) for cell in chapter.cells]
        found = figures(re.sub(r'"image/png": "[^"]*"', "", " ".join(texts)))
        for cell in chapter.cells:
            for part in filter(None, cell["metadata"].get("answer", "").split("; ")):
                name, _, answer = part.partition(": ")
                yield f"{chapter.stem}, {name}", answer, found


def test_the_answers_to_predictions_occur_in_their_chapters() -> None:
    derived = {"11_residuals_and_depth, share": "8 of 12 D²", "11_residuals_and_depth, σ of the sum": "√2"}
    n_answers, missing = 0, []
    for name, answer, found in answers():
        n_answers += 1
        if kind(answer) == "choice":
            choices = ["yes", "no"] if "|" not in answer else answer.split(" | ")
            assert len(set(choices)) == len(choices) > 1, name
        elif kind(answer) != "signs" and name not in derived:
            for each in answer.strip("()").split(", "):
                value, places = float(Fraction(each)) if "/" in each else float(each), len(each.partition(".")[2])
                within = 0.006 if "/" in each else value / 20 if "e" in each else 0.51 * 10.0**-places if places else 0
                if np.isfinite(value) and min(abs(value - f) for f in found) > within:
                    missing.append((name, each))
    assert missing == []
    assert n_answers > 200


def test_only_a_prediction_with_a_choice_has_letters() -> None:
    choice, number = question("", "it: shrinks | grows | stays"), question("", "it: 3")
    assert re.findall("<li>(.*)</li>", choice) == ["grows", "shrinks", "stays"] and "Count the hands" in choice
    assert "<li>" not in number and "Count the hands" not in number
    assert re.findall("<li>([^<]*)", poll("a: yes; b: 3; c: no")) == ["a", "yes", "no", "c", "yes", "no"]
    assert "<li>" not in poll("it: 3") and "Count the hands" in poll("it: 3")  # a slide takes what the class says


def test_a_field_for_several_numbers_says_how_many() -> None:
    assert "two numbers, such as 7, 5<" in question("", "dq: (3, 2)")
    assert "four numbers, such as 7, 5, 9, 7<" in question("", "n: (-1, -1, 1, 1)")
    assert "three numbers, such as 0.1, 0.2, 0.7, to 1 place<" in question("", "w: (0.3, 0.3, 0.4)")
    examples = {"7, 5", "7, 5, 9", "0.1, 0.2", "0.1, 0.2, 0.7"}
    for chapter in [*read(ROOT / "notebooks"), *read_ideas()]:
        for cell in chapter.cells:
            for part in cell["metadata"].get("answer", "").split("; "):
                assert part.partition(": ")[2].strip("()") not in examples, f"{chapter.stem}: a hint tells {part}"


def test_an_exercise_says_what_the_letters_of_its_shapes_count() -> None:
    told = _letters(EXERCISES["attention_backward"].statement)
    letters = re.findall(r"<math.*?</math>", told)
    assert [re.sub("<.*?>", "", each) for each in letters] == ["B", "Tq", "Tk", "dk", "dv"]
    assert _letters("f(x) with B outside of a shape") == ""


def test_endless_output_is_cut(sent: Outputs) -> None:
    assert Session(sent.append).run(f"for _ in range(30):\n    print('a' * {LONGEST // 10})")
    text = "".join(output["text"] for output in sent)
    assert len(text) < LONGEST + 100 and text.endswith("(the rest is not shown)\n")


@pytest.mark.parametrize(
    ("code", "right", "told"),
    [
        ("def softmax_backward(y, dy):\n    return y * dy", False, "is missing"),
        ("def softmax_backward(y, dy):\n    return y * (dy - (dy * y).sum(-1, keepdims=True))", True, "right"),
        ("softmax = 1", False, "There is no function softmax_backward"),
    ],
)
def test_an_answer_is_judged(sent: Outputs, code: str, right: bool, told: str) -> None:
    check("softmax_backward", code, sent.append)
    (verdict,) = sent
    assert verdict["right"] is right and told in " ".join(verdict["said"])


@pytest.mark.slow
def test_the_course_imports_no_scipy_until_an_op_needs_it() -> None:
    """In a browser the import takes two seconds, which each reader waited for."""
    modules = "minitransformer.course, minitransformer.verify, minitransformer.school.show.plots"
    command = f"import sys, {modules}; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_worksheets_of_a_class_are_one_document_and_its_key_another() -> None:
    sheets, key = (document("matmul-backward", 7, 3, 2, wanted)._repr_html_() for wanted in (False, True))
    for text in (sheets, key):
        assert text.count("<article") == 2 and "seed 7" in text and "seed 8" in text
    assert sheets.count('Name: <span class="line">') == 2
    alone = document("matmul-backward", 7, 3, 1, False).html
    assert alone == to_html([page(make("matmul-backward", 7))])
    with pytest.raises(ValueError, match="from 1 to 200, got 0"):
        document("matmul-backward", 7, 3, 0, False)


def test_long_code_and_imports_are_folded_and_a_line_says_what_they_do() -> None:
    n_folded = 0
    for chapter in read(ROOT / "notebooks"):
        for code in (source_of(cell) for cell in chapter.cells if cell["cell_type"] == "code"):
            said = summary(code)
            assert bool(said) or (len(code.splitlines()) <= MOST_LINES and code.count("\nimport ") < 3), code
            assert re.fullmatch(r"|(Imports|Defines|Computes|Sets|Shows) .*\(\d+ lines\)", said), said
            n_folded += bool(said)
    assert n_folded > 60
    long = "figure, axes = f()\nmean = 1\ndef half(x):\n    return x / 2\n" + "print(mean)\n" * 12
    assert summary(long) == "Defines half; computes mean; shows numbers (16 lines)"
    assert summary(long, draws=True).endswith("computes mean; draws a picture (16 lines)")
    assert summary("import numpy as np\nmean = 1") == ""


def test_exercises_know_their_code() -> None:
    about = {name: module_of(name) for name in EXERCISES}
    assert set(filter(None, about.values())) <= set(shown_modules())
    wanted = {
        "masked_attention_backward": "core.ops.attention",
        "multi_head_attention_forward": "core.layers.attention",
    }
    wanted |= {
        "linear_attention_forward": "ideas.after.linear_attention",
        "low_rank_linear_backward": "ideas.after.low_rank_linear",
    }
    assert {name: about[name] for name in wanted} == wanted
    themes = {EXERCISES[name].reference.__module__.rpartition(".")[2] for name, module in about.items() if not module}
    assert themes == {"derivatives", "training", "inspection", "ranks"}  # no op, layer or model


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["site", *arguments]) == 1
    return capsys.readouterr().err


def test_command_refuses_what_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    assert "exists and is not a site" in refused(capsys, "--out", str(full))
    assert "has no notebooks" in refused(capsys, "--out", str(tmp_path / "a"), "--source", str(tmp_path))
    assert "has no pyodide.js" in refused(capsys, "--out", str(tmp_path / "a"), "--pyodide", str(full))
    assert sorted(os.listdir(tmp_path)) == ["full"] and os.listdir(full) == ["thesis.txt"]


def test_the_command_says_what_it_does_while_it_takes_minutes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr("minitransformer.commands.site.build", lambda *_, progress: passed.extend(progress([1])) or 1)
    assert cli.main(["site", "--out", str(tmp_path)]) == 0 and passed == [1]
    assert capsys.readouterr().err.startswith(f"writing the site to {tmp_path}")


def links_of(page: Path) -> set[str]:
    """Where the links of a page lead within the site, without the place in a page; its scripts and pictures, too."""
    links = re.findall(r'(?:href|src|action)="([^"#?]+)', page.read_text(encoding="utf-8").partition('id="data">')[0])
    return {unquote(link) for link in links if ":" not in link}


def without_file(folder: Path) -> set[str]:
    """The links of the pages that lead to no file."""
    return {
        link for page in folder.rglob("*.html") for link in links_of(page) if not os.path.isfile(page.parent / link)
    }


def led_to(folder: Path) -> dict[Path, set[Path]]:
    """A crawler: each page that links lead to from the start, and the pages that its own links lead to."""
    found: dict[Path, set[Path]] = {}
    waiting = [folder / "index.html"]
    while waiting:
        page = waiting.pop()
        if page not in found:
            targets = {os.path.normpath(page.parent / link) for link in links_of(page)}
            found[page] = {Path(target) for target in targets if target.endswith(".html")}
            waiting += found[page]
    return found


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("instructor", [False, True])
def test_a_chapter_for_each_notebook_and_a_file_for_each_link(
    instructor: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: EXAMPLES[name] for name in ("softmax", "attention")}  # the others take most of the time of a build
    monkeypatch.setattr("minitransformer.school.show.site.steppers.EXAMPLES", few)
    monkeypatch.setattr("minitransformer.school.show.site.worksheets._READY", 1)
    folder = tmp_path / "site"
    assert build(folder, ROOT, instructor=instructor) == sum(path.is_file() for path in folder.rglob("*"))
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    ideas = {idea.stem for idea in read_ideas()}
    assert {path.stem for path in (folder / "chapters").glob("*.html")} == notebooks | ideas | {"index"}
    assert without_file(folder) == set()
    whole = (folder / "code" / "gpt2.html").read_text(encoding="utf-8")
    assert "GPT-2 on one page" in whole and 'data-name="dscores"' in whole and whole.count('class="formula"') > 40
    assert "norm_1" not in "".join(re.findall("<math.*?</math>", whole))  # what is looked up by name has no formula
    assert 'href="gpt2.html"' in (folder / "code" / "index.html").read_text(encoding="utf-8").partition("<h2>")[0]
    found = led_to(folder)
    assert set(folder.rglob("*.html")) == set(found)
    assert [path for path, targets in found.items() if folder / "index.html" not in targets] == []
    near = {
        path: {t.parent.name for t in ts if t.stem != "index"} for path, ts in found.items() if path.stem != "index"
    }
    leads_to = {"steppers": "code", "exercises": "chapters", "slides": "chapters"}
    assert [path for path, kinds in near.items() if leads_to.get(path.parent.name, "") not in kinds | {""}] == []
    assert {"chapters", "exercises", "steppers", "code"} <= near[folder / "code" / "core-ops-attention.html"]
    assert "attention.xlsx" in {link.rpartition("/")[2] for link in links_of(folder / "steppers" / "attention.html")}
    (folder / "chapters" / "03_softmax.html").unlink()
    assert {link.rpartition("/")[2] for link in without_file(folder)} == {"03_softmax.html"}


@pytest.mark.slow
def test_a_page_of_the_stepper_is_the_same_whatever_python_hashes() -> None:
    """So that two builds of one source are equal: no set decides about an order."""
    examples = "from minitransformer.school.show.stepper.examples import EXAMPLES"
    code = f"{examples}\nfor name in ('softmax', 'gru', 'lstm'): print(EXAMPLES[name].record().to_html())"
    pages = [
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True)
        for seed in "12"
    ]
    assert pages[0].stdout == pages[1].stdout and len(pages[0].stdout) > 10_000


def test_the_plan_of_two_weeks_has_a_lesson_for_each_notebook() -> None:
    """Days of one double lesson had two notebooks of 50 minutes each."""
    guide = (Path(__file__).parents[1] / "docs" / "teaching.md").read_text(encoding="utf-8")
    plan = guide.partition("### Two weeks")[2].partition("###")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in plan.splitlines()]
    rows = [row for row in cells if row and row[0].isdigit()]
    lessons = {day: int(count) for day, count, *_ in rows}
    notebooks = {day: len(notebooks.replace("14 or 15", "14").split(",")) for day, _, notebooks, *_ in rows}
    assert len(rows) == 10 and lessons == notebooks
    assert f"Ten days with {sum(lessons.values())} double lessons" in plan
