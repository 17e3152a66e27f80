"""The bank of examination questions and the test of concepts."""

import re
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
from common import draw
from examination_answers import ANSWERS
from tiers import in_one

from minitransformer import layers, ops
from minitransformer.cli import main
from minitransformer.school.course.examination import (
    CONCEPTS,
    QUESTIONS,
    chosen,
    concepts_paper,
    of_chapter,
    paper,
    to_html,
)
from minitransformer.school.course.examination.question import as_written, n

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


def test_each_concept_has_four_options_and_says_what_a_wrong_one_reveals():
    assert len(CONCEPTS) == 5 * 25 and all(len(of_chapter(number)) == 5 for number in range(1, 26))
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
    for most in (max, min):  # neither the longest option nor the shortest is a good guess
        found = sum(most([concept.right, *concept.wrong], key=len) == concept.right for concept in CONCEPTS)
        assert found < 0.4 * len(CONCEPTS)


def fractions(*numbers):
    return "(" + ", ".join(map(str, numbers)).replace("-", "−") + ")"


def softmax_backward():
    y, dy = (Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)), (7, 0, 0)
    mean = sum(a * b for a, b in zip(y, dy, strict=True))
    return fractions(*(a * (b - mean) for a, b in zip(y, dy, strict=True)))


def add_thrice():
    grad = np.zeros(3)
    grad[[2, 2, 2]] += 1
    return f"{grad[2]:.0f}"


def layers_until(seen_back, distance):
    """Layers until a token depends on one so far back, by following who sees whom."""
    sees = np.tri(distance + 1) - np.tri(distance + 1, k=-seen_back - 1)
    reached, layers = sees, 1
    while reached[-1, 0] == 0:
        reached, layers = np.minimum(sees @ reached, 1.0), layers + 1
    return layers


def around_the_ring(ranks, size):
    """What each rank sends: a stretch in each step, first to add up, then to hand round."""
    return 2 * (ranks - 1) * size / ranks


def parameters(norm):
    return sum(p.value.size for _, p in norm(100).parameters())


def delta_rule(values, rate):
    """What is read under the key (1, 0) after each of these values was written under it."""
    key, memory = np.array([1.0, 0.0]), np.zeros((2, 2))
    for value in values:
        memory += rate * np.outer(key, value - memory.T @ key)
    return memory.T @ key


# The first words of a question whose answer is a number or a shape, and the right answer, computed.
COMPUTED = {
    "f(x) = x³ has": lambda: f"{((2 + 0.01) ** 3 - (2 - 0.01) ** 3) / 0.02:.4f}",
    "A has the shape (3, 5)": lambda: f"{np.empty((3, 2, 3, 5)).size}, one for each output and each entry of A.",
    "The softmax of (0": lambda: fractions(*(Fraction(e, 1 + 3) for e in (1, 3))),
    "y = (1/7, 2/7, 4/7) and": softmax_backward,
    "p = (1/7, 2/7, 4/7) and": lambda: fractions(*(Fraction(e, 7) - (e == 1) for e in (1, 2, 4))),
    "The logits are": lambda: f"{ops.cross_entropy(np.array([[0.0, 1000.0]]), np.array([0]))[0]:.0f}",
    "Seven queries": lambda: "{} and {}".format(
        *((w := np.empty((7, 4)) @ np.empty((4, 9))).shape, (w @ np.empty((9, 5))).shape)
    ),
    "A causal mask on 6": lambda: str(int(np.tri(6).sum())),
    "A model of width 64": lambda: str(np.linalg.matrix_rank(draw(64, 8) @ draw(8, 64))),
    "A model of width 96": lambda: str(np.linalg.matrix_rank(draw(96, 24) @ draw(24, 96))),
    "LayerNorm without": lambda: fractions(*np.sign(np.array([1, 1, 5, 5]) - 3)),
    "ReLU of x": lambda: fractions(*ops.relu(np.array([-1.0, 2.0]))[1](np.array([5.0, 5.0])).astype(int)),
    "NumPy, ids": add_thrice,
    "12 layers of width 768": lambda: f"{np.zeros((12, 2, 768), np.float16).nbytes:,} bytes",
    "A product of matrices (100": lambda: f"{2 * 100 * 200 * 300 / 1e6:.0f} million",
    "D = 512 and d_ff = 2048. Which": lambda: max(
        (4 * 512**2, "Attention"), (2 * 512 * 2048, "The feed-forward network.")
    )[1],
    "D = 512 and d_ff = 2048. From": lambda: str(  # scores and means, beside the network's two products
        next(t for t in range(1, 9999) if 2 * (2 * t**2 * 512) >= 2 * (2 * t * 512 * 2048))
    ),
    "Softmax over tiles": lambda: f"e{np.log(np.exp(1.0 - 5.0) / np.exp(1.0 - 3.0)):.0f}".replace("-2", "⁻²"),
    "A recurrent network multiplies": lambda: f"{0.6**32:.0e}".replace("e-0", " · 10⁻").replace("8 · 10⁻8", "8 · 10⁻⁸"),
    "A causal convolution": lambda: str(layers_until(2, 100)),
    "Each layer sees a token": lambda: f"{next(n for n in range(99) if layers_until(3, n + 1) > 3)} tokens",
    "32 heads of queries": lambda: f"{32 // 8} times smaller.",
    "Scores (ln 1": lambda: fractions(0, *(Fraction(e, 3 + 2) for e in (3, 2)), 0),
    "Four ranks add up": lambda: f"{around_the_ring(4, 8):.0f} MB",
    "A memory that only": lambda: fractions(*(np.outer([1, 0], [5, 6]) + np.outer([1, 0], [1, 1])).T @ [1, 0]),
    "The delta rule writes": lambda: fractions(*delta_rule([(4, 8), (4, 8)], 0.5).astype(int)),
    "A head that attends": lambda: f"From the {next(n for n in range(99) if 2 * 64 * n > 64 * 64)}rd on.",
    "In a model of width": lambda: str(9 * (parameters(layers.LayerNorm) - parameters(layers.RMSNorm))),
    "A gated network": lambda: f"{2 * 1200 // 3}",
    "Two of four layers": lambda: f"{100 * (2 * 100 + 2 * 10) // (4 * 100)} %",
    "A ring of 1000": lambda: f"About {around_the_ring(1000, 8):.0f} MB",
}


@in_one("start", COMPUTED)
def test_the_key_is_what_a_computation_gives(start):
    (concept,) = [concept for concept in CONCEPTS if concept.text.startswith(start)]
    assert concept.right == COMPUTED[start]()


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
