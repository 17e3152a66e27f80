"""The checker of the course: what a student is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiers import in_one

from minitransformer import course
from minitransformer.course import EXERCISES, check
from minitransformer.school.course.examination.question import Question


def softmax_backward(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def matmul_backward(a: np.ndarray, b: np.ndarray, dc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return dc @ b.T, a.T @ dc


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="there is no exercise 'softmax_backwards'; did you mean 'softmax_backward'"):
        course.exercise("softmax_backwards")
    with pytest.raises(ValueError, match="did you mean 'layer_norm_backward'"):
        check("layernorm_backward", softmax_backward)
    with pytest.raises(ValueError, match=r"exercises\(\) lists them"):
        course.exercise("qqq")


def test_exercises_are_listed_with_their_titles() -> None:
    titles = course.exercises()
    assert titles["softmax_backward"] == "Softmax, backward" and list(titles) == list(EXERCISES)
    assert re.search(r"^softmax_backward +Softmax, backward$", repr(titles), re.MULTILINE)


def test_an_exercise_shows_its_statement_and_on_request_more() -> None:
    exercise = course.exercise("softmax_backward")
    assert exercise.signature == "softmax_backward(y, dy) -> dx"
    assert exercise.signature in str(exercise) and exercise.statement in str(exercise)
    assert repr(exercise) == "Exercise('softmax_backward(y, dy) -> dx')"
    assert "softmax_backward(y, dy) -&gt; dx" in exercise._repr_html_()
    assert "Jacobian" in exercise.hint()
    assert "(dy * y).sum" in exercise.solution() and "@exercise" not in exercise.solution()
    assert "no-sum" in {mistake.name for mistake in exercise.mistakes}


def test_a_right_answer() -> None:
    result = check("softmax_backward", softmax_backward)
    assert result.right and result.score == 1.0 and result.mistake is None
    assert str(result) == repr(result) == "softmax_backward: right."


def test_a_known_mistake_is_explained_with_entries() -> None:
    result = check("softmax_backward", lambda y, dy: y * dy)
    y, dy = EXERCISES["softmax_backward"].trials(0)[0]
    got, expected = (y * dy)[0, 0], softmax_backward(y, dy)[0, 0]
    assert not result.right and result.score == 0.0 and result.mistake == "no-sum"
    lines = str(result).splitlines()
    assert lines[0] == "softmax_backward: not right yet."
    assert f"dx: {y.size} of {y.size} entries differ" in lines
    assert f"    for y {y.shape}, dy {y.shape}" in lines
    assert f"    dx[0, 0]: {got:.6g}, expected {expected:.6g}" in lines
    assert lines[2].startswith("The mistake: The term -Σ_i dy_i y_i is missing")  # before the numbers
    shown = result._repr_html_()
    assert shown.index(f"<b>{result.sentences[0]}</b>") < shown.index("dx[0, 0]")
    assert result["dx"].entries[0] == ((0, 0), expected, got)
    with pytest.raises(KeyError, match="it has dx"):
        result["dy"]


def test_only_the_wrong_entries_are_shown() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        dx = softmax_backward(y, dy)
        dx[-1, -1] += 1.0
        return dx

    result = check("softmax_backward", f)
    y, _ = EXERCISES["softmax_backward"].trials(0)[0]
    assert result["dx"].wrong == 1
    assert [entry.place for entry in result["dx"].entries] == [(y.shape[0] - 1, y.shape[1] - 1)]
    assert f"dx: 1 of {y.size} entries differ" in str(result)


def test_partial_credit() -> None:
    result = check("matmul_backward", lambda a, b, dc: (dc @ b.T, 2.0 * a.T @ dc))
    assert str(result).startswith("matmul_backward: 1 of 2 right: da.")
    assert result.score == 0.5 and result["da"].right and not result["db"].right


SOFTMAX = [
    (lambda y, dy: None, "Your function returned None; is a `return` missing?"),
    (lambda y, dy: (softmax_backward(y, dy),), "a tuple of 1; it must return only dx; is there an extra comma"),
    (lambda y, dy: (y, dy), "Your function returned a tuple of 2; it must return only dx"),
    (lambda y, dy: softmax_backward(y, dy).tolist(), "dx: it is a list; make it an array: np.array(...)"),
    (lambda y, dy: "dx", "dx: it is a str, but must be an array"),
    (lambda y, dy: np.zeros(y.shape, dtype=int), "it holds integers (int64), so every fraction was cut off"),
    (lambda y, dy: y > 0, "it holds bool; compute in float64 (or float32)"),
    (lambda y, dy: y.astype(np.float16), "it holds float16; compute in float64 (or float32)"),
    (lambda y, dy: y.astype(complex), "it holds complex128; compute in float64 (or float32)"),
    (lambda y, dy: np.array([y, "x"], dtype=object), "array of Python objects; are its rows of unequal length?"),
    (lambda y, dy: softmax_backward(y, dy).T, "the transpose of the expected"),
    (lambda y, dy: softmax_backward(y, dy)[:, :1], "it has the shape"),
    (lambda y, dy: softmax_backward(y, dy) + np.nan, "it holds NaN, first at [0, 0]"),
    (lambda y, dy: 0.0, "it has the shape (), but"),
    (lambda y: y, "Your function is called with (y, dy), but it takes (y)."),
]
MATMUL = [
    (lambda a, b, dc: dc @ b.T, "one array of shape"),
    (lambda a, b, dc: (dc @ b.T,), "Your function returned 1 value; it must return the 2 values da, db"),
    (lambda a, b, dc: (a, b, dc), "Your function returned 3 values; it must return the 2 values da, db"),
    (lambda a, b, dc: 1.0, "Your function returned one float; it must return the 2 values da, db"),
    (lambda a, b, dc: None, "Your function returned None"),
    (lambda a, b, dc: (dc @ b.T, None), "db: it is None"),
]
CHANGED = [  # the right answer, with a change to each of its outputs
    ("softmax_backward", lambda x: 0.1 + x, "It is 0.1 too large everywhere."),
    ("cross_entropy_forward", lambda x: x - 2.0, "It is 2 too small."),
    ("cross_entropy_forward", lambda x: 3.0 * x, "It is 3 times what it should be."),
    ("cross_entropy_forward", lambda x: 0.0, "It is zero for all inputs."),
    ("cross_entropy_forward", lambda x: 1, "It is 1 for all inputs."),
    ("causal_mask", np.ones_like, "All its entries are True."),
    ("softmax_backward", lambda x: x * 1.0005, "It is 1.0005 times what it should be."),
    ("softmax_backward", lambda x: x * 1e-16, "It is zero but for rounding, and must not be."),
    ("softmax_forward", lambda x: np.vstack([x[:1] + np.nan, x[1:] ** 2]), "Where it is finite: its rows sum to"),
    ("gelu_backward", lambda x: -x, "It has the wrong sign but is otherwise right."),
    ("attention_backward", lambda x: 1.01 * x, "dq, dk and dv: It is 1.01 times what it should be."),
    ("attention_backward", lambda x: 0.0 * x, "dq, dk and dv: All its entries are zero."),
    ("attention_backward", lambda x: -x, "dq, dk and dv: It has the wrong sign but is otherwise right."),
]


def changed(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def f(*inputs: Any) -> Any:
        outputs = EXERCISES[name].reference(*inputs)
        return tuple(map(change, outputs)) if isinstance(outputs, tuple) else change(outputs)

    return f


PLAIN = [("softmax_backward", *row) for row in SOFTMAX] + [("matmul_backward", *row) for row in MATMUL]
PLAIN += [(name, changed(name, change), words) for name, change, words in CHANGED]


@in_one("name, f, words", PLAIN)
def test_what_is_plain_to_see_is_said(name: str, f: Callable[..., Any], words: str) -> None:
    result = check(name, f)
    assert not result.right and result.mistake is None and words in " ".join(str(result).split())
    assert "unknown" not in str(result) and " 1 times" not in str(result)
    assert result.score == (0.5 if words.startswith("db") else 0.0)


def test_a_mask_must_be_boolean() -> None:
    result = check("causal_mask", lambda t_q, t_k: np.tril(np.ones((t_q, t_k)), t_k - t_q))
    assert not result.right and "it holds float64, but a mask must hold booleans" in str(result)
    result = check("causal_mask", lambda t_q, t_k: np.tril(np.ones((t_q, t_k), dtype=bool)))
    assert result.mistake == "offset-forgotten" and "mask[0, 1]: False, expected True" in str(result)


def test_a_scalar_may_be_a_python_float() -> None:
    def loss(logits: np.ndarray, targets: np.ndarray) -> float:
        log_p = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        return float(-sum(row[t] for row, t in zip(log_p, targets, strict=True)) / len(targets))

    assert check("cross_entropy_forward", loss).right
    result = check("cross_entropy_forward", lambda *inputs: -loss(*inputs))
    assert result.mistake == "wrong-sign" and "loss: wrong\n" in str(result)


@pytest.mark.parametrize("places", [(2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)])
def test_outputs_in_another_order_are_said_to_be_so_once(places: tuple[int, ...]) -> None:
    result = check("attention_backward", lambda *inputs: tuple(attention(*inputs)[i] for i in places))
    assert not result.right and result.mistake == "wrong-order"
    assert result.order == tuple(("dq", "dk", "dv")[i] for i in places)
    assert result.score == sum(i == place for i, place in enumerate(places)) / 3
    told = f"in another order: you return {', '.join(result.order)}. Return dq, dk, dv."
    assert str(result).count("return") == 1 and told in str(result) and "unknown" not in str(result)
    assert json.loads(json.dumps(result.as_dict()))["order"] == list(result.order)


def test_an_order_that_is_a_known_mistake_keeps_its_name() -> None:
    result = check("attention_backward", lambda *inputs: tuple(attention(*inputs)[i] for i in (1, 0, 2)))
    assert result.mistake == "dq-and-dk-mixed-up" and result.order == ()


attention = EXERCISES["attention_backward"].reference


def test_two_unknown_outputs_beside_a_known_one() -> None:
    def f(*inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        dq, dk, dv = attention(*inputs)
        return np.sin(9.0 * dq), dk * inputs[0].shape[-1] ** 0.5, np.sin(9.0 * dv)

    result = check("attention_backward", f)
    assert result["dk"].mistake == "dk-not-scaled" and str(result).count("unknown") == 1
    assert "gives these dq and dv. They may have one cause" in " ".join(result.sentences)


def test_a_difference_can_be_seen_in_the_digits_shown() -> None:
    right = EXERCISES["gelu_backward"].reference
    for size in (6e-5, 1e-4, 1e-3):
        f = lambda x, dy: right(x, dy) + size * abs(right(x, dy)).max() * (x == x.max())  # noqa: B023, E731
        (line,) = (line for line in str(check("gelu_backward", f)).splitlines() if ", expected " in line)
        got, expected = line.split(": ")[1].split(", expected ")
        assert got != expected, line


def test_an_input_that_is_returned_is_said_to_be_one() -> None:
    result = check("attention_backward", lambda q, k, v, weights, doutput: (q, k, v))
    assert all(f"It is the input {name}, unchanged." in str(result) for name in "qkv") and "unknown" not in str(result)


def test_a_changing_factor_is_told_with_two_of_its_values() -> None:
    result = check("matmul_backward", lambda a, b, dc: (dc @ b.T * (a.shape[1] + 3), a.T @ dc))
    told = " ".join(str(result).split())
    assert "times a factor that depends on the inputs" in told and "unknown" not in told
    widths = [a.shape[1] + 3 for a, _, _ in EXERCISES["matmul_backward"].trials(0) if a.size > 1]
    assert f"The factor is {min(widths)} for a (" in told and f", and {max(widths)} for a (" in told


def test_an_answer_that_is_right_for_some_inputs_is_told_for_how_many() -> None:
    result = check("softmax_backward", lambda y, dy: softmax_backward(y, dy).clip(-5.0, 5.0))
    assert not result.right and "(right for 6 of the 7 inputs tried)" in str(result)


def test_a_changed_input_is_named() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        dy -= (dy * y).sum(axis=-1, keepdims=True)
        return y * dy

    result = check("softmax_backward", f)
    assert not result.right and result.mistake == "changes-input" and result.score == 0.5
    assert result.changed == ("dy",) and result["dx"].right
    assert "the values are right, but you changed your input dy" in str(result)


def test_a_pullback_called_twice_is_named() -> None:
    def twice(dy: np.ndarray, sublayer_backward: Callable[..., Any]) -> np.ndarray:
        return dy + sublayer_backward(0.5 * dy) + sublayer_backward(0.5 * dy)

    result = check("residual_backward", twice)
    assert not result.right and result.mistake == "repeats-pullback" and result.score == 0.5
    assert result.repeated == ("sublayer_backward",) and result.changed == () and result["dx"].right
    assert "the values are right, but you called a pullback twice" in str(result)
    assert "Your function calls sublayer_backward more than once." in str(result)
    assert json.loads(json.dumps(result.as_dict()))["repeated"] == ["sublayer_backward"]

    def first_for_its_value(dy: np.ndarray, pullbacks: dict[str, Callable[..., Any]]) -> Any:
        pullbacks["norm_1"](dy)
        return EXERCISES["decoder_layer_backward"].reference(dy, pullbacks)

    result = check("decoder_layer_backward", first_for_its_value)
    assert result.repeated == ("pullbacks",) and "calls a function in pullbacks more than once" in str(result)


def test_a_wrong_answer_that_also_changes_an_input_has_its_own_mistake() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        dy *= y
        return dy

    result = check("softmax_backward", f)
    assert result.mistake == "no-sum" and result.changed == ("dy",) and result.score == 0.0
    assert "Your function changes dy in place" in str(result)


def test_the_students_own_traceback_is_shown() -> None:
    def helper(y: np.ndarray) -> np.ndarray:
        return y @ y

    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        return helper(y)

    result = check("softmax_backward", f)
    assert not result.right and result.score == 0.0 and result.mistake is None
    assert "Your function stops with an error for y (" in result.problem
    assert "return helper(y)" in result.error and "return y @ y" in result.error and "ValueError" in result.error
    assert "collecting.py" not in result.error and result.error in str(result)
    assert result.verdict == "softmax_backward: stops with an error."
    assert "each matrix of a batch it is x.swapaxes(-1, -2)" in result.problem


def test_an_endless_recursion_is_shown_in_part() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        return f(y, dy)

    result = check("softmax_backward", f)
    assert "RecursionError" in result.error and result.error.count("return f(y, dy)") <= 8


@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError("x"), AssertionError()])
def test_any_error_is_caught(error: BaseException) -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        raise error

    assert type(error).__name__ in check("softmax_backward", f).error


def test_a_keyboard_interrupt_is_not() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("softmax_backward", f)


def test_a_stub_is_not_an_error() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    assert str(check("softmax_backward", f)) == "softmax_backward: no answer yet.\nYour function is not written yet."


def test_the_result_of_a_call_in_place_of_the_function() -> None:
    with pytest.raises(TypeError, match="must be the function itself, got ndarray; write check"):
        check("softmax_backward", np.zeros(3))  # type: ignore[arg-type]


def test_warnings_of_the_students_code_are_left_out() -> None:
    result = check("softmax_forward", lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))
    assert result.mistake == "no-shift" and "it holds NaN" in str(result)


@pytest.mark.parametrize("f", [
    softmax_backward,
    lambda y, dy: y * dy,
    lambda y, dy: y * np.nan,
    lambda y, dy: y / 0.0,
    lambda y, dy: y.tolist(),
    lambda y, dy: y[99],
    lambda y: y,
])  # fmt: skip
def test_results_go_into_json(f: Callable[..., Any]) -> None:
    result = check("softmax_backward", f)
    document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert document["right"] == result.right and document["score"] == result.score
    assert document["mistake"] == result.mistake and document["message"] == str(result)
    assert [output["name"] for output in document["outputs"]] == ["dx"]


def test_what_a_student_wrote_is_escaped_in_a_notebook() -> None:
    def f(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        raise ValueError("<script>alert(1)</script> & more")

    shown = check("softmax_backward", f)._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown
    assert "right." in check("softmax_backward", softmax_backward)._repr_html_()


def test_answers_to_other_trials_are_not_right() -> None:
    exercise = course.exercise("softmax_backward")
    answers = course.collect(exercise, softmax_backward, seed=1)
    assert not course.judge(exercise, answers, seed=2).right
    for some in ([], answers[:-1], [*answers, answers[0]], [course.Answer()] * len(answers)):
        result = course.judge(exercise, some, seed=1)
        assert not result.right and result.score == 0.0 and "one answer for each of the 7 trials" in str(result)


def test_a_slip_that_float32_would_round_away_is_found_in_float64() -> None:
    def off(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        return softmax_backward(y, dy) * (1.0 + 3e-5)

    assert not check("softmax_backward", off).right
    assert check("softmax_backward", lambda y, dy: off(y, dy).astype(np.float32)).right
    assert check("softmax_backward", lambda y, dy: off(y, dy).astype(np.float32).astype(np.float64)).right


def test_a_text_that_is_missing_is_named() -> None:
    """An exercise or a question without a docstring would be an empty one, as under python -OO."""

    def nothing_said(draw):
        return {}, {}, {}

    with pytest.raises(ValueError, match="nothing_said has no docstring, which is its text"):
        Question("nothing", 1, 1, nothing_said).asked(3)
