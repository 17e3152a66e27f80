"""The bank of examination questions and the test of concepts."""

import re
from importlib import resources

import numpy as np
import pytest
from examination_answers import ANSWERS
from tiers import in_one

from minitransformer import ops
from minitransformer.cli import main
from minitransformer.school.course.examination import CONCEPTS, QUESTIONS, chosen, concepts_paper, paper, to_html
from minitransformer.school.course.examination.question import as_written, block, n

SEEDS = range(5)


def test_the_bank_has_sixty_questions_five_for_each_week():
    weeks = [question.week for question in QUESTIONS.values()]
    assert len(QUESTIONS) == 60 and all(weeks.count(week) == 5 for week in range(1, 13))
    assert {name.replace("_", "-") for name in ANSWERS} == set(QUESTIONS)


@in_one("name", QUESTIONS)
def test_every_answer_is_what_another_computation_gives(name):
    for seed in SEEDS:
        asked = QUESTIONS[name].asked(seed)
        again = ANSWERS[name.replace("-", "_")](asked.given)
        assert set(again) == set(asked.answers)
        for part, value in asked.answers.items():
            assert np.shape(again[part]) == np.shape(value), (seed, part)
            np.testing.assert_allclose(
                np.asarray(again[part], float), np.asarray(value, float), rtol=1e-7, atol=1e-8, err_msg=f"{seed} {part}"
            )


@in_one("name", QUESTIONS)
def test_numbers_differ_by_seed_and_stay_for_a_seed(name):
    texts = [QUESTIONS[name].asked(seed).text for seed in range(30)]
    assert len(set(texts)) > 5 and texts[3] == QUESTIONS[name].asked(3).text


LETTERS = {"where-induction-looks"}  # its tokens are letters
TOLD = {"accepted", "arithmetic", "columns without", "sums", "angles", "rank", "right for ones", "at zero", "after"}


@in_one("name", QUESTIONS)
def test_the_worked_answer_says_every_number_that_counts(name):
    for seed in SEEDS:
        asked = QUESTIONS[name].asked(seed)
        said = re.sub(r"[(),\[\]{}]", " ", (asked.worked + asked.text).replace("−", "-"))
        for part, value in asked.answers.items():
            if part in TOLD or name in LETTERS:
                continue
            if part == "jacobian":  # it is printed times the square of the sum
                continue
            for number in np.ravel(value):
                forms = {n(number), f"{number:.1e}", f"{number:.4g}", f"{number:g}", f"{number:.0f}"}
                assert forms & set(re.findall(r"-?\d[\d.e+-]*\d|-?\d", said)), (seed, part, number)


def test_the_paper_has_marks_answers_and_no_markup_in_its_page():
    asked = chosen(range(1, 13), 24, seed=3)
    assert [question.week for question in asked] == sorted([*range(1, 13)] * 2)  # two of each week
    assert chosen(range(1, 13), 24, seed=3) == asked != chosen(range(1, 13), 24, seed=4)
    text, key = paper(asked, 3), paper(asked, 3, answers=True)
    assert f"{sum(question.marks for question in asked)} marks" in text
    for question in asked:
        assert question.asked(3).text in text and question.asked(3).worked.partition("\n")[0] in key
        assert question.asked(3).worked not in text and question.name not in text
    page = to_html(key)
    assert page.count("<blockquote>") == 24 and page.count("<h2>") == 24 and "&lt;" not in page.partition("<body>")[0]
    assert "\n    " not in re.sub(r"<pre>.*?</pre>|<style>.*?</style>", "", page, flags=re.DOTALL)
    with pytest.raises(ValueError, match="ask for 1 to 10, not 11"):
        chosen([2, 5], 11, 0)


def test_matrices_stand_side_by_side():
    assert block(a=np.array([[1.0, -2.0], [3.0, 0.5]]), b=np.array([7.0])).split("\n") == [
        "    a = [   1   -2 ]    b = [ 7 ]",
        "        [   3  0.5 ]",
    ]


def test_the_command(tmp_path, capsys):
    assert main(["exam", "matmul-gradients", "--seed", "2", "--answers"]) == 0
    assert QUESTIONS["matmul-gradients"].asked(2).text in capsys.readouterr().out
    assert main(["exam", "--weeks", "1-3", "--count", "4", "--html", str(tmp_path / "exam.html")]) == 0
    assert (tmp_path / "exam.html").read_text(encoding="utf-8").count("<h2>") == 4
    assert main(["exam", "--concepts", "--seed", "1"]) == 0
    assert "Reveals" not in capsys.readouterr().out
    for wrong, message in (
        (["matmul-gradient"], "did you mean 'matmul-gradients'?"),
        (["--weeks", "3-1"], "--weeks must be a week from 1 to 12"),
        (["--weeks", "4", "--count", "6"], "these weeks have 5 questions"),
        (["--concepts", "warm-up"], "drop the names"),
    ):
        assert main(["exam", *wrong]) == 2
        assert message in capsys.readouterr().err


# ---- The test of concepts. ----


def test_each_concept_has_four_options_and_says_what_a_wrong_one_reveals():
    assert len(CONCEPTS) == 20 and {concept.week for concept in CONCEPTS} == set(range(1, 13))
    for concept in CONCEPTS:
        assert len({concept.right, *concept.wrong}) == 4 and all(concept.wrong.values())


def test_signs_with_a_meaning_in_gift_are_escaped():
    gift = (
        resources.files("minitransformer.school.course.examination")
        .joinpath("concepts.gift")
        .read_text(encoding="utf-8")
    )
    for concept in CONCEPTS:
        for text in (concept.text, concept.right, *concept.wrong, *concept.wrong.values()):
            assert re.sub("([~=#{}:])", r"\\\1", text) in gift


def test_the_order_of_the_options_differs_and_tells_nothing():
    places = []
    for seed in range(40):
        key = concepts_paper(seed, answers=True)
        places += [match[1] for match in re.finditer(r"^([A-D])\. .*\n\n> Right\.", key, re.MULTILINE)]
        assert len(places) == 20 * (seed + 1)
    assert all(150 < places.count(letter) < 250 for letter in "ABCD")
    before, after = concepts_paper(0), concepts_paper(1)
    assert before != after and "Right" not in before
    longest = sum(len(concept.right) > max(map(len, concept.wrong)) for concept in CONCEPTS)
    assert longest <= 10  # or else the longest option would be a good guess


def test_what_can_be_tried_of_the_concepts_is_so():
    """The right answers, by experiment."""
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=5), rng.normal(size=5)
    y, backward = ops.softmax(x)
    assert np.allclose(backward(np.ones(5)), 0.0) and not np.allclose(backward(dy), 0.0)  # 1: all ones is one direction
    doubled = ops.softmax(2 * x)[0]
    assert np.allclose(doubled[0] / doubled[1], (y[0] / y[1]) ** 2)  # 5
    assert abs(backward(dy).sum()) < 1e-12  # 6: one rises only if others fall
    tokens, order = rng.normal(size=(4, 3)), [2, 0, 3, 1]
    out = ops.attention(tokens, tokens, tokens)[0]
    assert np.allclose(ops.attention(tokens[order], tokens[order], tokens[order])[0], out[order])  # 8
    sharp = np.array([30.0, 0.0, 0.0])
    assert abs(ops.softmax(sharp)[1](rng.normal(size=3))).max() < 1e-10  # 10 and 11: a saturated softmax
    causal = ops.softmax(rng.normal(size=(3, 3)))[0] * np.tri(3)
    assert causal.sum(axis=1)[0] < 0.99  # 13: masked after the softmax, they no longer sum to one
    _, look_back = ops.embedding(np.array([1, 1, 1]), rng.normal(size=(3, 2)))
    assert np.allclose(look_back(np.ones((3, 2)))[1], 3.0)  # 16


def test_formulas_are_typeset():
    """A paper said "x₁²·x₂ + -1·x₂", and its matrices were drawn with letters."""
    assert as_written("x₁²·x₂ + -1·x₂ − -3, `x + -1`, (-2, 1·h)") == "x₁²·x₂ − x₂ + 3, `x + -1`, (−2, h)"
    for seed in range(20):
        for question in QUESTIONS.values():
            asked = question.asked(seed)
            for told in (asked.text, asked.worked):
                plain = re.sub(r"`[^`]*`|^    .*$", "", told, flags=re.MULTILINE)
                assert not re.search(r"[+−·] ?-|\+ −|− −|(?<![\w.·])1·[a-z]", plain), plain
    page = to_html(paper([QUESTIONS["matmul-gradients"]], 2, answers=True))
    assert "<mtable>" in page and "<var>" in page and "<pre>" not in page
    assert page.count("<mtable>") == len(
        re.findall(r"\S+ = \[", paper([QUESTIONS["matmul-gradients"]], 2, answers=True))
    )
