"""The statements of exercises: formulas are mathematics, prose stays prose, and code stays code."""

import html
import re

from tiers import in_one

from minitransformer.school.course.exercises import EXERCISES
from minitransformer.school.show.site import statement

MATH = re.compile(r"<math.*?</math>")
BLOCK = re.compile(r'<div class="math block".*?</div>', re.DOTALL)


def shown(name: str) -> tuple[str, list[str]]:
    """What remains of a statement without its formulas, and the text of these."""
    exercise = EXERCISES[name]
    text = statement.to_html(exercise.statement, {*exercise.arguments, *exercise.outputs})
    formulas = [re.sub(r"\s", "", html.unescape(re.sub(r"<[^>]*>", "", found))) for found in MATH.findall(text)]
    return re.sub(r"<[^>]*>", "", MATH.sub("", re.sub("<code>.*?</code>", "", text))), formulas


@in_one("name", EXERCISES)
def test_no_sign_of_a_formula_is_left_in_the_prose(name: str) -> None:
    prose, formulas = shown(name)
    prose = re.sub(r'"\w+"|^loss = the', "", prose)  # the keys of a dictionary, and a formula in words
    assert not re.search(r"[=√ᵀ²Σ∂·≤⟦⟧]|_\w|\w_", prose), prose
    assert "\\" not in "".join(formulas)


def test_attention_is_set_as_one_writes_it() -> None:
    text = statement.to_html(EXERCISES["attention_backward"].statement, {"q", "k", "v", "weights", "doutput", "dq"})
    first = text.partition("</p>")[0]
    assert "<msqrt>" in first and "<msup>" in first and "<msub>" in first
    prose, formulas = shown("attention_backward")
    assert formulas[0] == "output=weightsv" and "Given , return the gradients of ,  and ." in prose


@in_one(
    "text, tex",
    [
        ("(x - mean) / √(variance + ε)", r"(x - \text{mean}) / \sqrt{\text{variance} + ε}"),
        ("base^(2i/D)", r"\text{base}^{2i/D}"),
        ("Σ_l a_il b_lj", r"\sum_{l} \,a_{il} \,b_{lj}"),
        ("sum_1 = x + heads w_o", r"\text{sum}_{1} = x + \text{heads} \,w_{o}"),
        ("m̂ / (√v̂ + 1e-5)", r"\hat{m} / (\sqrt{\hat{v}} + 10^{-5})"),
        ("dgamma_1 = n(k, γ_k)ᵀ", r"dγ_{1} = n(k, γ_{k})^\top "),
    ],
)
def test_plain_text_becomes_latex(text: str, tex: str) -> None:
    assert statement.tex(text) == tex


def test_an_article_is_no_matrix() -> None:
    text = statement.to_html("c = a @ b, the gradient of a loss and of a.", {"a", "b", "c"})
    assert text.count("<math") == 2 and "of a loss" in text
