"""What the checker of the course says of wrong answers: a known mistake, a change of the solution, or what fails in it.

course_wrong_answers.txt has the answers, each with what is wrong in it.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiers import in_one

from minitransformer import course
from minitransformer.course import EXERCISES, Exercise, Result
from minitransformer.school.course.advice import advice
from minitransformer.school.course.altered import Altered
from minitransformer.school.course.checking import judge
from minitransformer.school.course.collecting import Answer

HERE = Path(__file__).parent


def wrong_answers() -> Iterator[tuple[str, str, str]]:
    """Of course_wrong_answers.txt: the exercise, what is wrong, and the body."""
    name = ""
    for line in (HERE / "course_wrong_answers.txt").read_text().splitlines():
        what, bar, body = line.partition(" | ")
        if line.startswith("#"):
            continue
        if bar:
            yield name, what, body
        else:
            name = line or name


def function(name: str, body: str) -> Callable[..., Any]:
    source = EXERCISES[name].solution()
    if " =>" in body:
        for old, new in (edit.split(" =>") for edit in body.split(" && ")):
            assert source.count(old) == 1, old
            source = source.replace(old, new.strip())
    else:
        named = re.match(r"\(([\w, ]+)\) (?=\w)", body)
        arguments = named[1] if named else ", ".join(EXERCISES[name].arguments)
        lines = (body[named.end() :] if named else body).replace("\\n", "\n")
        source = f"def {name}({arguments}):\n{textwrap.indent(lines, '    ')}"
    scope: dict[str, Any] = {"np": np} | EXERCISES[name].reference.__globals__
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), scope)
    return scope[name]


def said(name: str, body: str) -> str:
    return " ".join(str(course.check(name, function(name, body))).split())


GRADIENT = "dw = doutput @ v.swapaxes(1, 2); ds = weights * (dw - (dw * weights).sum(-1, keepdims=True)); "


@in_one("name, body, words", [
    ("softmax_forward", "e = np.exp(x - x.max(1, keepdims=True)); return e / e.sum(0)", "the sum of exponentials is"),
    ("softmax_forward", "e = np.exp(x - x.max(1, keepdims=True)); return e / e.sum(1)", "keepdims=True it is (5,1)"),
    ("softmax_forward", "return 1 / (1 + np.exp(-np.clip(x, -700, 700)))", "Its rows sum to between 0 and 6; they"),
    ("softmax_backward", "(dy, y) return y * (dy - (dy * y).sum(1, keepdims=True))", "the order is y, dy."),
    ("softmax_backward", "return y * dy - (y * dy).sum(1, keepdims=True)", "the factor y reaches only dy, not"),
    ("relu_backward", "(dy, x) return dy * (x > 0)", "It is right with x and dy exchanged"),
    ("matmul_backward", "(dc, a, b) return dc @ b.T, a.T @ dc", "in another order, dc, a, b, and stops"),
    ("attention_forward", "/ np.sqrt(q.shape[-1]) => / np.sqrt(q.shape[0])", "q.shape[-3] stands where q.shape[-1]"),
    ("attention_backward",
     f"{GRADIENT} r = q.shape[2] ** -0.5; t = ds.swapaxes(1, 2); return ds @ k * r, t @ q * r, t @ doutput",
     "in dv, dscores stands where weights belongs"),
    ("softmax_backward", "return np.clip(y * (dy - (dy * y).sum(1, keepdims=True)), -5, 5)", "rows sum to between"),
    ("dropout_backward", "return np.clip(dy * keep / (1 - rate), -20, 20)", "is something clipped?"),
    ("local_mask", "i = np.arange(t); return abs(i[:, None] - i) <= radius // 2", "it hides 108 of the 290 places"),
    ("layer_norm_forward", "eps) => 1e-5)", "1e-05 stands where eps belongs, whatever that is"),
    ("split_heads", "return split_heads(x, n_heads)[::-1]", "RecursionError"),
])  # fmt: skip
def test_what_is_said_of_a_wrong_answer(name: str, body: str, words: str) -> None:
    assert words in said(name, body)


def explained(result: Result) -> str:
    """How the worst output is explained."""
    wrong = [output for output in result.outputs if not output.right]
    if result.problem or all(output.problem for output in wrong):
        return "problem"
    if any(output.unknown for output in wrong):
        return "unknown"
    return "mistake" if result.mistake else "remark"


@pytest.mark.slow
def test_at_most_one_wrong_answer_in_twenty_is_unknown() -> None:
    found: Counter[str] = Counter()
    for name, what, body in wrong_answers():
        result = course.check(name, function(name, body))
        assert not result.right, (name, what)
        found[explained(result)] += 1
    assert found["unknown"] <= found.total() / 20 and found["mistake"] + found["remark"] > 0.9 * found.total(), found


def test_the_exercises_that_name_a_mistake_are_as_many_as_is_said() -> None:
    for page in ("README.md", "docs/teaching.md"):
        told = re.findall(r"(\d+)\s+exercises that\s+name|has all (\d+)", (HERE.parent / page).read_text())
        assert {"".join(one) for one in told} == {str(len(EXERCISES))}, page
    assert {name for name, _, _ in wrong_answers()} == EXERCISES.keys()


# Whatever an answer is, the checker does not fail on it.


ODD: list[Callable[[np.ndarray], Any]] = [
    lambda x: np.full(x.shape, np.nan),
    lambda x: np.where(np.arange(x.size).reshape(x.shape) % 2, x, np.inf),
    lambda x: x.astype(np.float16),
    lambda x: x.astype(complex),
    lambda x: x[None],
    lambda x: np.zeros(0),
    lambda x: 1e300 * (x + 1.0),
    lambda x: np.sin(9.0 * x),
    lambda x: x.ravel()[:1],
    lambda x: 3,
]


SLOW = (pytest.mark.slow, *3 * [pytest.mark.sweep])  # in turns
QUICK = ("softmax_jacobian", "causal_mask", "cross_entropy_forward", "embedding_backward")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else SLOW[i % 4]) for i, name in enumerate(EXERCISES)]
)
def test_odd_answers_are_judged(name: str) -> None:
    exercise = EXERCISES[name]
    for change in ODD:
        answers = []
        for inputs in exercise.trials(1):
            returned = exercise.reference(*inputs)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            with np.errstate(all="ignore"):
                answers.append(Answer(tuple(np.asarray(change(np.asarray(x))) for x in outputs), inputs=inputs))
        assert not judge(exercise, answers, 1).right


@in_one("error, words", [
    ("ValueError: operands could not be broadcast together with shapes (5,4,7) (5,4) ", "it is (5,4,1)"),
    ("ValueError: operands could not be broadcast together with shapes (5,7) (4,7) ", "For a product of matrices"),
    ("TypeError: softmax(): argument 'input' (position 1) must be Tensor, not numpy.ndarray",
     "mixes PyTorch and NumPy"),
    ("ModuleNotFoundError: No module named 'torch'", "write all of it with NumPy"),
    ("TypeError: sum() got an unexpected keyword argument 'dim'", "axis= and keepdims="),
    ("AttributeError: 'numpy.ndarray' object has no attribute 'unsqueeze'", "x[:, None]"),
    ("AttributeError: module 'numpy' has no attribute 'softmax'", "with np.exp and a sum"),
    ("ValueError: axes don't match array", "x.swapaxes(-1, -2)"),
    ("ValueError: cannot reshape array of size 6 into shape (4,)", "keeps the number of entries"),
    ("TypeError: only length-1 arrays can be converted to Python scalars", "np.exp"),
    ("KeyError: 'w'", "Your inputs: x (5, 4)"),
    ("ZeroDivisionError: division by zero", ""),
])  # fmt: skip
def test_what_is_said_of_an_error(error: str, words: str) -> None:
    told = advice(f"Traceback\n{error}", "x (5, 4)")
    assert words in told if words else told == ""


@pytest.mark.few(6)
@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_without_a_change_the_solution_is_as_it_was(exercise: Exercise) -> None:
    solution = Altered(exercise)
    assert len(solution.changes) > 5
    for inputs in exercise.trials(4):
        returned = exercise.reference(*inputs)
        for got, right in zip(
            solution.run({}, inputs), returned if isinstance(returned, tuple) else [returned], strict=True
        ):
            np.testing.assert_array_equal(got, right)
