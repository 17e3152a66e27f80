"""Exercises that one derives on paper: models pass, slips are found, and no way around the derivation counts."""

import json
import shutil
from pathlib import Path

import pytest
from tiers import in_one

from minitransformer import course
from minitransformer.cli import main
from minitransformer.school.course.derive import handed_in
from minitransformer.school.course.derive.task import read

NAMES = list(course.derivations())


def test_there_are_exercises_of_all_kinds():
    assert len(NAMES) >= 15 and all(name.startswith("derive_") for name in NAMES)
    assert "derive_softmax" in repr(course.derivations()) and "Find: dx" in str(course.derivation("derive_softmax"))


@pytest.mark.few(6)
@pytest.mark.parametrize("name", NAMES)
def test_model_derivation_is_right_and_needs_all_of_its_finish(name):
    exercise = course.derivation(name)
    marked = course.check_derivation(name, exercise.solution())
    assert marked.right and marked.score == 1.0 and not marked.missing, str(marked)
    first = course.check_derivation(name, exercise.model[0][0])
    assert not first.right and 0 < first.score < 1 and first.missing, str(first)
    assert all(exercise.hint(n) for n in range(1, len(exercise.model) + 1))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
def test_definition_is_compared_with_that_of_the_start(name):
    for line in course.derivation(name).start.splitlines()[1:]:
        left, _, right = line.partition("=")
        (first,) = course.check_derivation(name, f"{left}= 2 ({right})").lines
        assert first.verdict == "wrong", str(first)


STEP = "dx_j = sum_i dy_i ∂y_i/∂x_j"
NOT_DERIVED = {  # an answer to derive_softmax that does not reach the finish: a part of what is said
    "": "no answer yet",
    "dx = dx": "dx still stands in it",
    STEP: "∂y_i/∂x_j still stands in it",
    f"∂y_i/∂x_j = y_i (δ_ij - y_j)\n{STEP}": "Line 2 is not the finish",
    "h = dx\ndx = h": "Line 2 is not the finish",
    "h_j = sum_i dy_i ∂y_i/∂x_j\ndx = h": "∂y_i/∂x_j still stands in it",
    "given dx: (n)\ndx = dx": "nothing can be added",
    "y_i = 2 x_i\ndx_i = 2 dy_i": "line 1 is wrong",  # compared with the start, not with this
    "L = sum_i x_i\ndx_i = 1": "line 2 is wrong",
    "dx_j = y_j dy_j": "line 1 is wrong",
}


@in_one("text", NOT_DERIVED)
def test_what_is_not_derived_does_not_count(text):
    marked = course.check_derivation("derive_softmax", text)
    assert not marked.right and marked.score < 1 and NOT_DERIVED[text] in str(marked), str(marked)


def test_a_mistake_counts_once_and_what_is_given_may_be_repeated():
    start = course.derivation("derive_softmax").start
    wrong = "dx_j = sum_i dy_i y_i (δ_ij + y_j)\n     = y_j (dy_j + sum_i dy_i y_i)\ndx = y ⊙ (dy - y^T dy)"
    marked = course.check_derivation("derive_softmax", f"{start}\n{wrong}")
    assert [line.verdict for line in marked.lines] == ["given", "given", "wrong", "follows", "right"], str(marked)
    assert marked.score == 0.5 and marked.as_dict()["first_wrong"] == 3 and "✗" in marked._repr_html_()
    attention = course.derivation("derive_attention").solution().replace("(dA_ij - sum", "(dA_ij + sum")
    marked = course.check_derivation("derive_attention", attention)
    assert sum(line.verdict == "wrong" for line in marked.lines) == 1 and not marked.missing and not marked.right


def test_bad_input_gets_a_sentence():
    with pytest.raises(ValueError, match="did you mean 'derive_softmax'"):
        course.check_derivation("derive_softmx", "")
    with pytest.raises(TypeError, match="expected the answer as a str, got int"):
        course.check_derivation("derive_softmax", 3)
    with pytest.raises(ValueError, match="fewer than 1000 lines"):
        course.check_derivation("derive_softmax", "\n" * 2000)
    with pytest.raises(ValueError, match="hints for the lines 1 to 4"):
        course.derivation("derive_softmax").hint(9)
    with pytest.raises(ValueError, match="needs a hint"):
        read("derive_x", "# X (chapter 1)\n\nWords.\n\n    given x\n\nFind: dx\n\n    dx = 1\n")


def hand_in(*cells: tuple[str, str]) -> bytes:
    made = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    return json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}).encode()


RIGHT = "dx = y ⊙ (dy - sum(dy ⊙ y))"
CODE = 'derive_products = """\n\\frac{\\partial L}{\\partial X} = dY W^T\n"""\nderive_products = [1]\n'


def test_derivations_are_found_in_markdown_and_in_strings():
    two = f"# derive_softmax\nFirst:\n{RIGHT}\n\n**derive_bias:**\n\ndb = 0"
    found = handed_in.answers(
        "a.ipynb", hand_in(("markdown", "derive_softmax\ndx = 0"), ("markdown", two), ("code", CODE))
    )
    assert list(found) == ["derive_softmax", "derive_bias", "derive_products"] and "\\frac" in found["derive_products"]
    assert course.check_derivation("derive_softmax", found["derive_softmax"]).right
    assert handed_in.answers("a.py", CODE.encode()) == {"derive_products": found["derive_products"]}
    for data in (b"{", b'{"cells": 3}', b'{"cells": [{}]}', b"\xff", b"[" * 100_000):
        assert handed_in.answers("a.ipynb", data) == {}


@pytest.mark.slow
def test_hand_in_is_graded_by_line(tmp_path, capsys):
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    attention = course.derivation("derive_attention").solution().replace("(dA_ij - sum", "(dA_ij + sum")
    cells = ("markdown", f"derive_softmax\n{RIGHT}"), ("markdown", f"derive_attention\n{attention}"), ("code", CODE)
    path = tmp_path / "a.ipynb"
    path.write_bytes(hand_in(*cells, ("markdown", "derive_gelu\n" + "x" * 60_000)))
    assert main(["grade", str(path), "--json"]) == 0
    grades = {each["exercise"]: each for each in json.loads(capsys.readouterr().out)["files"][0]["exercises"]}
    assert {name: each["verdict"] for name, each in grades.items()} == {
        "derive_products": "partial",
        "derive_gelu": "wrong",
        "derive_softmax": "right",
        "derive_attention": "partial",
    }
    assert grades["derive_products"]["score"] == 0.5 and "6 ✗" in grades["derive_attention"]["message"]
    assert "50000 are the limit" in grades["derive_gelu"]["message"]


def test_derivation_is_an_open_question_with_its_model(capsys, tmp_path):
    assert main(["exam", "chain-rule", "derive_softmax"]) == 0
    asked = capsys.readouterr().out
    assert "    y_i = exp(x_i) / sum_j exp(x_j)" in asked and "Find dx." in asked and "δ" not in asked
    assert main(["exam", "derive_softmax", "--answers", "--html", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "= y_j (dy_j - sum_i dy_i y_i)" in page and page.count("<pre>") == 2


def test_derivation_is_a_sheet_with_ruled_lines_and_its_model_apart(capsys, tmp_path):
    assert main(["worksheet", "derive_softmax", "--student", "A_da"]) == 0
    sheet = capsys.readouterr().out
    assert "Name: A\\_da" in sheet and "Find: dx" in sheet and sheet.count("_" * 70) > 8 and "δ" not in sheet
    path = tmp_path / "a.html"
    assert main(["worksheet", "derive_softmax", "--answers", "--html", str(path), "--student", "<b>"]) == 0
    page = path.read_text(encoding="utf-8")
    exercise = course.derivation("derive_softmax")
    assert page.count("<article") == 2 and page.count("<math") == 1 + 1 + len(exercise.model) and "<b>&" not in page
    assert all(hint in page for _, hint in exercise.model) and "dx = <span" in page
    for refused in ("--form", "--csv", "--grade"):
        assert main(["worksheet", "derive_softmax", *((refused,) if refused == "--csv" else (refused, "x"))]) == 2
        assert "derive_softmax: a derivation" in capsys.readouterr().err


@pytest.mark.slow
def test_exercises_in_code_and_on_paper_find_each_other():
    from minitransformer.school.show.site.notebook import places, read
    from minitransformer.school.show.site.siblings import on_paper

    found: dict[str, set[str]] = {}
    for place, paper in on_paper(places(read(Path(__file__).parents[1] / "notebooks"))):
        found.setdefault(paper.name, set()).add(place.exercise.name)
    assert "matmul_backward" in found["derive_products"] and "rotary_backward" in found["derive_rotation"]
    assert {"softmax_forward", "softmax_backward"} < found["derive_softmax"]  # of two chapters
    assert found["derive_rms_norm"] == {"rms_norm_backward"} and found["derive_adam"] == {"adam_step"}
    assert set(NAMES) - set(found) == {"derive_gate"}  # the code of a gate is no exercise
