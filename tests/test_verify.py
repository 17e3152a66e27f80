"""The checker itself: it finds what is wrong, accepts what is right, and leaves everything as it was."""

from __future__ import annotations

import functools
import json
import math
import random
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from common import draw as normal
from tiers import in_one

from minitransformer import layers, ops, verify
from minitransformer.check.verify.arguments import reading
from minitransformer.check.verify.one_thread import one_blas_thread
from minitransformer.core.arrays.backend import to_device
from minitransformer.layers import Module, Parameter
from minitransformer.verify import Report, Row


def product(x: np.ndarray, w: np.ndarray) -> Any:
    """y = x² w, with an intermediate: right in every gradient."""
    square = x * x
    y = square * w

    def backward(dy: np.ndarray) -> Any:
        dsquare = dy * w
        dw = dy * square
        dx = 2.0 * x * dsquare
        return dx, dw

    return y, backward


def returning(change: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., Any]:
    """`product`, but its pullback returns change(dx, dw)."""

    def f(x: np.ndarray, w: np.ndarray) -> Any:
        y, right = product(x, w)
        return y, lambda dy: change(*right(dy))

    return f


def linear_map(x: np.ndarray) -> Any:
    """y_i = (i + 1) x_i: numbers that can be worked out by hand."""
    y = x * np.arange(1.0, len(x) + 1.0)
    return y, lambda dy: dy * np.arange(1.0, len(x) + 1.0)


# ---------------------------------------------------------------------------------------------------- what is right


def test_right_gradients_pass() -> None:
    report = verify.gradients(product, normal(3, 4), normal(3, 4, seed=1))
    report.assert_ok()
    assert report.ok
    assert report.max_error < 1e-9
    assert [(row.name, row.kind) for row in report.rows] == [
        ("x", "input"),
        ("w", "input"),
        ("product.square", "intermediate"),
        ("product.y", "intermediate"),
    ]
    assert {row.checked for row in report.rows} == {"12 entries"}


def test_the_reported_numbers_are_the_derivatives() -> None:
    """d/dx_i of sum(upstream · (i + 1) x_i) is upstream_i (i + 1)."""
    upstream = np.array([1.0, -2.0, 0.5])
    report = verify.gradients(linear_map, np.array([3.0, 4.0, 5.0]), upstream=upstream)
    entries = report["x"].entries()
    np.testing.assert_array_equal(entries.value, [3.0, 4.0, 5.0])
    np.testing.assert_array_equal(entries.by_hand, [1.0, -4.0, 1.5])
    np.testing.assert_allclose(entries.numerical, [1.0, -4.0, 1.5], rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_everything_is_checked_in_float64_and_once_in_float32(dtype: str) -> None:
    seen = []

    def f(x: np.ndarray) -> Any:
        seen.append(x.dtype)
        return ops.softmax(x)

    verify.gradients(f, normal(2, 3).astype(dtype)).assert_ok()
    assert set(seen) == {np.dtype("float64"), np.dtype("float32")}
    assert seen.count(np.dtype("float32")) == 1


def test_integer_inputs_are_skipped() -> None:
    report = verify.gradients(ops.embedding, np.array([[1, 0], [1, 2]]), normal(3, 2))
    report.assert_ok()
    assert [row.name for row in report.of_kind("input")] == ["table"]


def test_other_arguments_are_passed_on() -> None:
    report = verify.gradients(ops.softmax, normal(3, 2), 0, temperature=0.5)
    report.assert_ok()
    expected = ops.softmax(normal(3, 2), axis=0, temperature=0.5)[0]
    np.testing.assert_array_equal(report["softmax.y"].entries().value, expected)


def test_outputs_without_axes_are_checked() -> None:
    report = verify.gradients(ops.cross_entropy, normal(2, 3), np.array([0, 2]))
    report.assert_ok()
    assert report["cross_entropy.loss"].shape == ()


@pytest.mark.parametrize("size", [100.0, 1e4, 1e6])
def test_huge_logits(size: float) -> None:
    verify.gradients(ops.cross_entropy, size * normal(3, 5), np.array([0, 2, 4]), label_smoothing=0.1).assert_ok()
    verify.gradients(ops.softmax, size * normal(3, 5)).assert_ok()


# ------------------------------------------------------------------------------------------------------ kinds of f


class Scale(Module):
    """A module of one parameter, with a second method to check."""

    def __init__(self) -> None:
        self.gain = Parameter(np.array([0.5, -2.0, 3.0], np.float32))

    def __call__(self, x: np.ndarray) -> Any:
        return self.scaled(x, 1.0)

    def scaled(self, x: np.ndarray, power: float) -> Any:
        gain = self.gain.value
        y = x * gain * power

        def backward(dy: np.ndarray) -> Any:
            self.gain.grad += (dy * x).sum(axis=tuple(range(dy.ndim - 1))) * power
            dx = dy * gain * power
            return dx

        return y, backward


def test_f_may_be_a_function_a_lambda_or_a_partial_of_an_op() -> None:
    x = normal(2, 3)
    for f in [ops.gelu, lambda x: ops.gelu(x, "tanh"), functools.partial(ops.gelu, approximate="tanh")]:
        report = verify.gradients(f, x)
        report.assert_ok()
        assert report["x"].kind == "input"
    assert verify.gradients(functools.partial(ops.gelu), x).name == "gelu"


def test_f_may_be_a_module_its_method_or_a_partial_of_these() -> None:
    """Its parameters are found by themselves."""
    module, x = Scale(), normal(2, 3)
    for f, inputs in [
        (module, [x]),
        (module.scaled, [x, 2.0]),
        (functools.partial(module), [x]),
        (functools.partial(functools.partial(module.scaled), power=2.0), [x]),
    ]:
        report = verify.gradients(f, *inputs)
        report.assert_ok()
        assert [(row.name, row.kind) for row in report.rows[:2]] == [("x", "input"), ("gain", "parameter")]


def test_parameters_may_be_given() -> None:
    module, x = Scale(), normal(2, 3)
    for parameters in (module, module.parameters(), [("gain", module.gain)]):
        report = verify.gradients(lambda x: module(x), x, parameters=parameters)
        report.assert_ok()
        assert report["gain"].kind == "parameter"


def test_f_may_be_random_by_a_generator_among_its_arguments() -> None:
    for arguments, options in [((0.5, np.random.default_rng(1)), {}), ((0.5,), {"rng": np.random.default_rng(1)})]:
        report = verify.gradients(ops.dropout, normal(4, 5), *arguments, **options)
        report.assert_ok()
        values = report["dropout.y"].entries().value
        assert 0 < (values == 0.0).sum() < values.size  # there was something to freeze


def test_generators_of_the_caller_are_not_used_up() -> None:
    by_position, by_name = np.random.default_rng(1), np.random.default_rng(2)
    verify.gradients(ops.dropout, normal(4, 5), 0.5, by_position).assert_ok()
    verify.gradients(ops.dropout, normal(4, 5), 0.5, rng=by_name).assert_ok()
    assert by_position.random() == np.random.default_rng(1).random()
    assert by_name.random() == np.random.default_rng(2).random()


def test_a_function_that_is_random_by_itself_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"<lambda> gives a different output .* pass its random generator as an"):
        verify.gradients(lambda x: ops.dropout(x, 0.5, rng), normal(4, 5))


def test_the_report_depends_on_the_seed_alone() -> None:
    np.random.default_rng().random()
    first, again, other = (verify.gradients(product, normal(3), normal(3), seed=seed).as_dict() for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_the_upstream_gradient_is_neither_constant_nor_symmetric() -> None:
    seen = []

    def f(x: np.ndarray) -> Any:
        return x + 0.0, lambda dy: (seen.append(dy.copy()), dy)[1]

    verify.gradients(f, normal(4, 4))
    _, dy, again, *_ = seen  # first that of other numbers; then twice, to see whether it gives the same
    np.testing.assert_array_equal(dy, again)
    assert len(np.unique(abs(dy))) == dy.size
    assert not np.allclose(dy, dy.T)


def test_an_upstream_gradient_may_be_given() -> None:
    seen = []

    def f(x: np.ndarray) -> Any:
        return x + 0.0, lambda dy: (seen.append(dy.copy()), dy)[1]

    verify.gradients(f, normal(2, 3), upstream=np.arange(6, dtype=np.float32).reshape(2, 3)).assert_ok()
    np.testing.assert_array_equal(seen[1], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])  # seen[0] is that of other numbers
    assert seen[1].dtype == np.float64


# -------------------------------------------------------------------------------------------------- what is wrong


def test_a_wrong_entry_is_found_and_named_with_both_numbers() -> None:
    def f(x: np.ndarray) -> Any:
        y, right = linear_map(x)

        def backward(dy: np.ndarray) -> np.ndarray:
            dx = right(dy)
            dx[2] += 0.25
            return dx

        return y, backward

    report = verify.gradients(f, normal(5), upstream=np.array([1.0, 1.0, -2.0, 1.0, 3.0]))
    assert not report.ok
    row = report["x"]
    assert (row.ok, row.where, row.hand) == (False, (2,), -5.75)
    assert row.numerical == pytest.approx(-6.0, rel=1e-9)
    assert row.error == report.max_error == pytest.approx(0.25 / 7.0, rel=1e-6)
    assert report.worst is row
    with pytest.raises(AssertionError, match=r"f: 1 of \d gradients are wrong: x\n(.|\n)*\[2\] +-5.75 +-6 .*WRONG"):
        report.assert_ok()


def test_the_worst_of_several_wrong_entries_is_named() -> None:
    errors = np.array([[1e-3, 0.0, 0.0], [0.0, -0.5, 1e-2]])
    report = verify.gradients(returning(lambda dx, dw: (dx + errors, dw)), normal(2, 3), normal(2, 3, seed=1))
    assert report["x"].where == (1, 1)
    assert not report["x"].ok
    assert report["w"].ok


@pytest.mark.parametrize(("dx", "accepted"), [(1.0 + 0.9e-6, True), (1.0 + 3e-6, False), (1.0 - 3e-6, False)])
def test_a_relative_error_counts_from_about_a_millionth(dx: float, accepted: bool) -> None:
    report = verify.gradients(
        lambda x: (x * 100.0, lambda dy: dy * 100.0 * dx), np.array([0.3]), upstream=np.array([1.0])
    )
    assert report.ok is accepted


@pytest.mark.parametrize(
    ("slope", "error", "accepted"),
    [(1e-2, 1.5e-8, True), (1e-2, 4e-8, False), (5e-7, 2e-9, True), (5e-7, 2e-8, False), (1e-4, 9e-9, True)],
)
def test_small_errors_count_from_about_a_hundred_millionth_or_a_hundredth(
    slope: float, error: float, accepted: bool
) -> None:
    """Of gradients below 1e-6 the hundredth counts, of others the absolute error."""
    report = verify.gradients(
        lambda x: (slope * x, lambda dy: dy * (slope + error)), np.array([0.3]), upstream=np.array([1.0])
    )
    assert report.ok is accepted


def test_tolerances_can_be_set() -> None:
    def f(x: np.ndarray) -> Any:
        return 3.0 * x, lambda dy: 3.01 * dy

    x, one = np.array([0.3]), np.array([1.0])
    assert not verify.gradients(f, x, upstream=one).ok
    assert verify.gradients(f, x, upstream=one, rtol=0.004).ok
    assert verify.gradients(f, x, upstream=one, atol=0.011).ok
    assert not verify.gradients(f, x, upstream=one, atol=0.009, rtol=0.0).ok


@in_one(
    "change, problem",
    [
        (lambda dx, dw: (dx.T, dw), r"the gradient has shape \(4, 3\), its array \(3, 4\)"),
        (lambda dx, dw: (dx.sum(axis=0, keepdims=True), dw), r"the gradient has shape \(1, 4\), its array \(3, 4\)"),
        (lambda dx, dw: (dx[None], dw), r"the gradient has shape \(1, 3, 4\), its array \(3, 4\)"),
        (lambda dx, dw: (dx.astype(np.float32), dw), r"the gradient is float32, its array float64"),
        (lambda dx, dw: (dx.astype(int), dw), r"the gradient is an array of int64, not a floating-point array"),
        (lambda dx, dw: (None, dw), r"the gradient is missing \(None\)"),
        (lambda dx, dw: (0.0, dw), r"the gradient is float, not a floating-point array"),
        (lambda dx, dw: ([dx], dw), r"the gradient is list, not a floating-point array"),
        (lambda dx, dw: (dx * np.nan, dw), r"gradient is not finite"),
        (lambda dx, dw: (np.where(dx > 0.0, np.inf, dx), dw), r"gradient is not finite"),
    ],
    ids="transposed summed an-axis-more float32 integers None a-number a-list NaN infinity".split(),
)
def test_a_gradient_of_the_wrong_form_is_rejected(change: Callable[..., Any], problem: str) -> None:
    row = verify.gradients(returning(change), normal(3, 4), normal(3, 4, seed=1))["x"]
    assert not row.ok
    assert row.error == math.inf
    assert re.fullmatch(problem, row.problem)


@in_one(
    "change, n",
    [(lambda dx, dw: None, 0), (lambda dx, dw: dx, 1), (lambda dx, dw: (dx,), 1), (lambda dx, dw: (dx, dw, dw), 3)],
    ids="none one one-in-a-tuple three".split(),
)
def test_missing_and_extra_gradients_are_rejected(change: Callable[..., Any], n: int) -> None:
    report = verify.gradients(returning(change), normal(3), normal(3, seed=1))
    assert not report.ok
    wanted = f"backward returned {n} gradients for 2 floating-point inputs"
    hint = "; return one for each, in order (bind inputs without a gradient with functools.partial)"
    assert report.rows[0].problem == (wanted + hint if n < 2 else wanted)


def test_gradients_in_a_list_are_named() -> None:
    (row, *_) = verify.gradients(returning(lambda dx, dw: [dx, dw]), normal(3), normal(3, seed=1)).rows
    assert (row.ok, row.problem) == (False, "backward returned a list; return its gradients as a tuple: return dx, dw")


class BadScale(Scale):
    """Scale with a wrong way to keep the gradient of its parameter."""

    def __init__(self, keep: Callable[[Parameter, np.ndarray], None]) -> None:
        super().__init__()
        self.keep = keep

    def scaled(self, x: np.ndarray, power: float) -> Any:
        gain = self.gain.value

        def backward(dy: np.ndarray) -> Any:
            self.keep(self.gain, (dy * x).sum(axis=0))
            return dy * gain

        return x * gain, backward


def overwrite(parameter: Parameter, gradient: np.ndarray) -> None:
    parameter.grad = gradient


def overwrite_in_place(parameter: Parameter, gradient: np.ndarray) -> None:
    parameter.grad[...] = gradient


def forget(parameter: Parameter, gradient: np.ndarray) -> None:
    pass


def add_twice(parameter: Parameter, gradient: np.ndarray) -> None:
    parameter.grad += 2.0 * gradient


@in_one("keep", [overwrite, overwrite_in_place, forget, add_twice])
def test_a_gradient_that_is_not_added_once_to_grad_is_rejected(keep: Callable[..., None]) -> None:
    report = verify.gradients(BadScale(keep), normal(2, 3))
    assert not report["gain"].ok
    assert report["x"].ok


def spoil_in_forward(x: np.ndarray, w: np.ndarray) -> Any:
    x *= 2.0
    return product(x, w)


def spoil_in_backward(x: np.ndarray, w: np.ndarray) -> Any:
    y, right = product(x, w)

    def backward(dy: np.ndarray) -> Any:
        gradients = right(dy)
        x[0] = 7.0
        return gradients

    return y, backward


def spoil_upstream(x: np.ndarray, w: np.ndarray) -> Any:
    y, right = product(x, w)

    def backward(dy: np.ndarray) -> Any:
        gradients = right(dy)
        dy *= 2.0
        return gradients

    return y, backward


@pytest.mark.parametrize(
    ("f", "name", "and_wrong"),
    [
        (spoil_in_forward, "x", ", and its gradient is wrong"),  # that of the doubled x
        (spoil_in_backward, "x", ""),
        (spoil_upstream, "the upstream gradient", ""),
    ],
)
def test_arrays_changed_in_place_are_reported(f: Callable[..., Any], name: str, and_wrong: str) -> None:
    x, w = normal(3), normal(3, seed=1)
    report = verify.gradients(f, x, w)
    assert not report.ok
    assert (name, f"was changed in place{and_wrong}") in [(row.name, row.problem) for row in report.rows]
    np.testing.assert_array_equal(x, normal(3))  # only a copy was spoilt


# --------------------------------------------------------------------------------------------------- intermediates


def wrong_inside(x: np.ndarray) -> Any:
    """The input's gradient is right though that of `square`, which is not used, is not."""
    square = x * x
    y = np.sin(square)

    def backward(dy: np.ndarray) -> np.ndarray:
        dsquare = dy * np.sin(square)
        assert dsquare.shape == x.shape
        dx = dy * np.cos(square) * 2.0 * x
        return dx

    return y, backward


def test_a_wrong_intermediate_is_caught_though_the_input_gradients_are_right() -> None:
    report = verify.gradients(wrong_inside, normal(2, 3))
    assert report["x"].ok
    assert [row.name for row in report.rows if not row.ok] == ["wrong_inside.square"]
    assert verify.gradients(wrong_inside, normal(2, 3), intermediates=False).ok


def test_an_intermediate_that_equals_an_input_is_checked_too() -> None:
    def f(x: np.ndarray) -> Any:
        copied = x + 0.0
        y = copied * 2.0

        def backward(dy: np.ndarray) -> np.ndarray:
            dcopied = dy * 3.0
            dx = dcopied * (2.0 / 3.0)
            return dx

        return y, backward

    report = verify.gradients(f, normal(3))
    assert [row.name for row in report.rows if not row.ok] == ["f.copied"]


def test_an_intermediate_of_another_shape_or_dtype_is_rejected() -> None:
    def f(x: np.ndarray) -> Any:
        double = 2.0 * x
        triple = 3.0 * x
        y = double + triple

        def backward(dy: np.ndarray) -> np.ndarray:
            ddouble = dy.T
            dtriple = dy.astype(np.float32)
            return 2.0 * ddouble.T + 3.0 * dtriple.astype(dy.dtype)

        return y, backward

    report = verify.gradients(f, normal(2, 3), upstream=np.ones((2, 3)))
    assert report["f.double"].problem == "the gradient has shape (3, 2), its array (2, 3)"
    assert report["f.triple"].problem == "the gradient is float32, its array float64"
    assert report["x"].ok


def test_names_bound_in_a_loop_are_checked_one_by_one() -> None:
    def build(slip: float) -> Callable[..., Any]:
        def f(x: np.ndarray) -> Any:
            powers = []
            for n in range(3):
                power = np.sin(x + n)
                powers.append(power)
            y = powers[0] * powers[1] * powers[2]

            def backward(dy: np.ndarray) -> np.ndarray:
                dx = np.zeros_like(x)
                for n in (2, 1, 0):
                    dpower = dy * powers[n - 1] * powers[n - 2] + (slip if n == 1 else 0.0)
                    dx = dx + (dpower - (slip if n == 1 else 0.0)) * np.cos(x + n)
                return dx

            return y, backward

        return f

    right, wrong = (verify.gradients(build(slip), normal(3)) for slip in (0.0, 0.1))
    right.assert_ok()
    assert {"f.power[0]", "f.power[1]", "f.power[2]"} <= {row.name for row in right.rows}
    assert [row.name for row in wrong.rows if not row.ok] == ["f.power[1]"]


def test_names_that_cannot_be_matched_are_reported() -> None:
    def f(x: np.ndarray) -> Any:
        h = 2.0 * x
        h = h + 1.0
        y = h * 1.0
        h = y * 5.0

        def backward(dy: np.ndarray) -> np.ndarray:
            dh = dy
            dh = dh * 2.0
            return dh

        return y, backward

    report = verify.gradients(f, normal(3))
    report.assert_ok()  # it is no mistake, but nor is it passed over in silence
    rows = [row for row in report.rows if row.name.startswith("f.h")]
    assert {row.problem for row in rows} == {"not checked: h gets 3 values, dh 2"}
    assert f"; {len(rows)} not checked" in str(report)


def test_a_sum_in_a_loop_is_matched_with_its_one_gradient() -> None:
    def f(x: np.ndarray) -> Any:
        total = 0.0 * x
        for i in range(3):
            total = total + i * x

        def backward(dtotal: np.ndarray) -> np.ndarray:
            return 3.0 * dtotal

        return total, backward

    report = verify.gradients(f, normal(3))
    report.assert_ok()
    assert [row.name for row in report.of_kind("intermediate")] == ["f.total[3]"]


def test_an_array_that_is_written_to_later_is_not_checked() -> None:
    def f(x: np.ndarray) -> Any:
        powers = np.exp(x)
        powers *= 2.0
        y = powers * x

        def backward(dy: np.ndarray) -> np.ndarray:
            dpowers = dy * x
            return dpowers * powers + dy * powers

        return y, backward

    report = verify.gradients(f, normal(3))
    report.assert_ok()
    assert report["f.powers"].problem == "not checked: the array of powers was changed in place after it was bound"


def test_a_gradient_summed_up_in_steps_counts_as_it_is_in_the_end() -> None:
    def f(x: np.ndarray) -> Any:
        h = np.sin(x)
        y = h * h

        def backward(dy: np.ndarray) -> np.ndarray:
            dh = np.zeros_like(dy)
            dh += dy * h
            dh += dy * h
            return dh * np.cos(x)

        return y, backward

    verify.gradients(f, normal(3)).assert_ok()


def test_one_op_called_several_times_has_a_row_for_each_call() -> None:
    def f(x: np.ndarray) -> Any:
        first, first_backward = ops.softmax(x)
        second, second_backward = ops.softmax(first * 3.0)
        return second, lambda dy: first_backward(second_backward(dy) * 3.0)

    report = verify.gradients(f, normal(2, 3))
    report.assert_ok()
    assert {"softmax#1.x", "softmax#1.y", "softmax#2.x", "softmax#2.y"} <= {row.name for row in report.rows}


def test_values_inside() -> None:
    """Weights of each attention in order, as the run itself had them."""
    encoder = layers.Encoder(2, 4, 2, 6).to(dtype="float64")
    x = normal(2, 3, 4)
    weights = verify.values_inside("weights", encoder, x, causal=True)
    assert [w.shape for w in weights] == [(2, 2, 3, 3)] * 2
    for w in weights:
        np.testing.assert_allclose(w.sum(axis=-1), 1.0, rtol=1e-14)
        assert (np.triu(w, 1) == 0.0).all()
    attention = encoder.layers[0].self_attention.sublayer
    q, k = (ops.split_heads(projection(x)[0], 2)[0] for projection in (attention.query, attention.key))
    expected = ops.softmax(np.where(np.tri(3, dtype=bool), q @ k.swapaxes(-1, -2) / math.sqrt(2.0), -np.inf))[0]
    np.testing.assert_allclose(weights[0], expected, rtol=1e-13)
    assert verify.values_inside("nothing", encoder, x) == []


# ----------------------------------------------------------------------------------------------------------- kinks


def leaky(slope_at_zero: float) -> Callable[..., Any]:
    """Slope 1 to the right of 0 and -0.5 to the left; at 0 whatever the test gives."""

    def f(x: np.ndarray) -> Any:
        y = np.where(x > 0.0, x, -0.5 * x)
        slope = np.where(x > 0.0, 1.0, np.where(x < 0.0, -0.5, slope_at_zero))
        return y, lambda dy: dy * slope

    return f


@in_one("slope", [-0.5, 0.0, 0.25, 0.8, 1.0])
def test_at_a_kink_any_slope_between_both_sides_is_accepted_and_counted(slope: float) -> None:
    report = verify.gradients(leaky(slope), np.array([0.0, 1.0, 0.0, -1.0]), upstream=np.array([1.0, 1.0, -2.0, 1.0]))
    report.assert_ok()
    assert report["x"].kinks == 2  # halfway, too, where the central difference agrees by itself
    assert "(2 at a kink)" in str(report)


@in_one("slope", [-0.51, -1.0, 1.01, 3.0])
def test_at_a_kink_another_slope_is_rejected(slope: float) -> None:
    report = verify.gradients(leaky(slope), np.array([1.0, 0.0]), upstream=np.array([1.0, 1.0]))
    row = report["x"]
    assert (row.ok, row.where, row.kinks) == (False, (1,), 1)
    assert row.numerical == pytest.approx(-0.5 if slope < 0.0 else 1.0, rel=1e-6)  # the nearest that would be right


@in_one("beside", [1e-7, -1e-7, 3e-6, -9e-6])
def test_a_kink_beside_the_point_is_recognised(beside: float) -> None:
    report = verify.gradients(leaky(0.0), np.array([beside, 1.0]))
    report.assert_ok()
    assert report["x"].kinks == 1


@pytest.mark.parametrize("beside", [3e-6, -9e-6])
def test_beside_a_kink_the_slope_of_the_other_side_is_rejected(beside: float) -> None:
    def f(x: np.ndarray) -> Any:
        y, right = leaky(0.0)(x)
        return y, lambda dy: right(dy) * np.where(abs(x) < 1e-5, -2.0 if beside < 0.0 else -0.5, 1.0)

    assert not verify.gradients(f, np.array([beside, 1.0])).ok


def test_strong_curvature_is_no_kink() -> None:
    """y = cos(1000 x) is smooth, and so a wrong slope cannot be excused; that of y = |x| at 0 can."""

    def f(x: np.ndarray) -> Any:
        return np.cos(1000.0 * x), lambda dy: dy * (-1000.0 * np.sin(1000.0 * x) + 3.0)

    report = verify.gradients(f, np.array([0.0, 0.001]))
    assert not report.ok
    assert report["x"].kinks == 0


@pytest.mark.slow
def test_kinks_in_a_large_array_are_recognised() -> None:
    """Along a direction several kinks blend, so then the entries are looked at one by one."""
    x = np.concatenate([np.zeros(3), normal(200)])
    report = verify.gradients(ops.relu, x)
    report.assert_ok()
    assert (report["x"].checked, report["x"].kinks) == ("203 entries", 3)
    assert not verify.gradients(lambda x: (ops.relu(x)[0], lambda dy: dy * ((x > 0.0) - 0.1 * (x == 0.0))), x).ok


# ........................................................................................ several entries at one kink


def largest(share: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """The largest of each row. share: how a row's gradient is shared out, given where the largest numbers are."""

    def f(x: np.ndarray) -> Any:
        y = x.max(axis=-1)
        is_largest = (x == y[..., None]).astype(x.dtype)
        return y, lambda dy: dy[..., None] * share(is_largest)

    return f


def norm(at_zero: list[float]) -> Callable[..., Any]:
    """The length of each row, with a given gradient where it is 0."""

    def f(x: np.ndarray) -> Any:
        y = np.sqrt((x * x).sum(axis=-1, keepdims=True))
        slope = np.where(y == 0.0, at_zero, x / np.where(y == 0.0, 1.0, y)).astype(x.dtype)
        return y, lambda dy: dy * slope

    return f


def larger(of_x: float, of_z: float) -> Callable[..., Any]:
    """max(x, z), with given gradients where x = z."""

    def f(x: np.ndarray, z: np.ndarray) -> Any:
        one, other = (np.where(a > b, 1.0, s * (a == b)) for a, b, s in ((x, z, of_x), (z, x, of_z)))
        return np.maximum(x, z), lambda dy: (dy * one.astype(dy.dtype), dy * other.astype(dy.dtype))

    return f


def signed_sum(kept: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """relu(x1) - relu(x2) + 2 relu(x3) - ...: bent up along some entries, and down along others."""

    def f(x: np.ndarray) -> Any:
        c = np.array([1.0, -1.0, 2.0, -3.0, 0.5])
        return np.asarray((c * np.maximum(x, 0.0)).sum()), lambda dy: dy * c * kept(x)

    return f


def pairwise(both: bool) -> Callable[..., Any]:
    """The larger of each two neighbours: of three that are equal, the one in the middle may be in both pairs."""

    def f(x: np.ndarray) -> Any:
        left, right = x[:-1], x[1:]

        def backward(dy: np.ndarray) -> np.ndarray:
            dx = np.zeros_like(x)
            dx[:-1] += dy * (left >= right)
            dx[1:] += dy * (right >= left if both else right > left)
            return dx

        return np.maximum(left, right), backward

    return f


def largest_size(x: np.ndarray) -> Any:
    """max |x_i|, whose gradient is given to every entry that has it."""
    y = np.asarray(abs(x).max())
    return y, lambda dy: dy * np.sign(x) * (abs(x) == y)


def middle(kept: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """The middle entry of each row. Of three that are equal, none changes it alone: all single slopes are zero."""

    def f(x: np.ndarray) -> Any:
        y = np.sort(x, axis=-1)[:, x.shape[-1] // 2]
        return y, lambda dy: kept((x == y[:, None]).astype(dy.dtype)) * dy[:, None]

    return f


THREE = np.array([[1.0, 2.0, 2.0, 2.0, 5.0], [4.0, 0.5, 3.0, 2.0, 1.0]])
TIES = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 1.0, 0.5], [-1.0, -3.0, -1.0]])
PAIRS = [np.array([1.0, 2.0, 3.0, -1.0]), np.array([1.0, 2.0, 2.5, -1.0])]
AT_KINKS: dict[str, tuple[Callable[..., Any], list[np.ndarray], bool]] = {
    "the first of the largest": (largest(lambda t: t * (t.cumsum(axis=-1) == 1.0)), [TIES], True),
    "the largest share it": (largest(lambda t: t / t.sum(axis=-1, keepdims=True)), [TIES], True),
    "each of the largest gets all": (largest(lambda t: t), [TIES], False),
    "each of two gets all": (largest(lambda t: t), [TIES[:1]], False),
    "each of three gets a half": (largest(lambda t: t / 2.0), [TIES[1:2]], False),
    "none of the largest gets any": (largest(lambda t: 0.0 * t), [TIES[:1]], False),
    "norm 0": (norm([0.0, 0.0, 0.0]), [np.zeros((2, 3))], True),
    "norm of length 1": (norm([0.6, -0.8, 0.0]), [np.zeros((2, 3))], True),
    "norm of length 1.13": (norm([0.8, -0.8, 0.0]), [np.zeros((2, 3))], False),
    "norm of length 1.7": (norm([1.0, 1.0, 1.0]), [np.zeros((2, 3))], False),
    "the first of a pair": (larger(1.0, 0.0), PAIRS, True),
    "both of a pair share": (larger(0.3, 0.7), PAIRS, True),
    "both of a pair get all": (larger(1.0, 1.0), PAIRS, False),
    "none of a pair gets any": (larger(0.0, 0.0), PAIRS, False),
    "bent both ways, left slopes": (signed_sum(lambda x: x > 0.0), [np.zeros(5)], True),
    "bent both ways, right slopes": (signed_sum(lambda x: x >= 0.0), [np.zeros(5)], True),
    "bent both ways, twice": (signed_sum(lambda x: 2.0 * (x >= 0.0)), [np.zeros(5)], False),
    "pairs that overlap, the first of a tie": (pairwise(False), [np.array([3.0, 3.0, 3.0, 1.0, 1.0])], True),
    "pairs that overlap, both of a tie": (pairwise(True), [np.array([3.0, 3.0, 3.0, 1.0, 1.0])], False),
    "the largest in size, both of a tie": (largest_size, [np.array([2.0, -2.0, 1.0])], False),
    "the first of three in the middle": (middle(lambda t: t * (t.cumsum(axis=-1) == 1.0)), [THREE], True),
    "three in the middle share it": (middle(lambda t: t / t.sum(axis=-1, keepdims=True)), [THREE], True),
    "each of three in the middle gets all": (middle(lambda t: t), [THREE], False),
    "none of three in the middle gets any": (middle(lambda t: t * (t.sum(-1, keepdims=True) < 2.0)), [THREE], False),
    "one of three in the middle gets double, one loses it": (
        middle(
            lambda t: t * (t.cumsum(axis=-1) == 1.0) + 0.6 * t * ((t.cumsum(-1) == 2.0) - 1.0 * (t.cumsum(-1) == 3.0))
        ),
        [THREE[:1]],
        False,
    ),
    "a step has no slope": (lambda x: (np.floor(x), lambda dy: 0.3 * dy), [np.array([0.0, 1.0, 2.5])], False),
    "relu of a large array": (ops.relu, [normal(70, 70) * (normal(70, 70, seed=1) > 0.0)], True),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.few(4)
@pytest.mark.parametrize("name", AT_KINKS)
def test_at_a_kink_of_several_entries_the_gradient_must_be_possible_as_a_whole(name: str, seed: int) -> None:
    """Each entry's slope may be right though no gradient has these entries: those of max must add up to 1."""
    f, inputs, right = AT_KINKS[name]
    assert verify.gradients(f, *inputs, seed=seed).ok is right


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 22])
def test_kinks_that_depend_on_each_other_do_not_look_independent_by_chance(seed: int) -> None:
    """Three half circles gave the same bounds here, though no entry of the middle has a slope below 0."""
    f, inputs, _ = AT_KINKS["one of three in the middle gets double, one loses it"]
    assert not verify.gradients(f, *inputs, seed=seed).ok


def test_what_is_wrong_along_several_entries_is_said() -> None:
    row = verify.gradients(largest(lambda t: t), TIES[:1], upstream=np.ones(1))["x"]
    assert row.problem == "each entry is possible, but not all together: the slope along a direction that moves several"
    assert row.where is None and abs(row.hand) > 1.01 * abs(row.numerical)
    both = verify.gradients(larger(1.0, 1.0), *PAIRS)
    assert [row.name for row in both.rows if not row.ok] == ["x and z"]


def test_a_gradient_is_checked_where_every_single_slope_is_zero() -> None:
    """x1 x2 (x1 + x2) / |x|² does not change along the axes from 0, but it does between them."""

    def f(x: np.ndarray) -> Any:
        return np.asarray(x.prod() * x.sum() / max((x * x).sum(), 1e-100)), lambda dy: 0.0 * x

    assert not verify.gradients(f, np.zeros(2)).ok


# ---------------------------------------------------------------------------------------------------- large arrays


def test_large_arrays_are_checked_along_directions() -> None:
    calls = []

    def f(x: np.ndarray) -> Any:
        calls.append(1)
        return product(x, np.full_like(x, 2.0))[0], lambda dy: 4.0 * x * dy

    report = verify.gradients(f, normal(100, 100), directions=2, intermediates=False)
    report.assert_ok()
    row = report["x"]
    assert (row.checked, row.where) == ("2 directions", None)
    assert len(calls) == 4 + 2 * 2 + 5  # before the differences, for them, and in other forms
    with pytest.raises(ValueError, match="x was not checked entry by entry; raise `entrywise` above its size"):
        row.entries()


def test_one_wrong_entry_of_a_large_gradient_is_found() -> None:
    def f(x: np.ndarray) -> Any:
        def backward(dy: np.ndarray) -> np.ndarray:
            dx = 2.0 * x * dy
            dx[70, 3] += 0.1
            return dx

        return x * x, backward

    report = verify.gradients(f, normal(100, 10))
    assert not report["x"].ok
    exact = verify.gradients(f, normal(100, 10), entrywise=1000)["x"]
    assert (exact.ok, exact.where, exact.checked) == (False, (70, 3), "1000 entries")


# --------------------------------------------------------------------------------------------------------- refusals


def nan_inside(x: np.ndarray) -> Any:
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x)
    y, right = ops.softmax(root)
    return y, right


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "NaN in an input": (
        lambda: verify.gradients(product, normal(2, 3), np.array([[1.0, 2.0, 3.0], [4.0, np.nan, np.nan]])),
        ValueError,
        r"verify: w contains NaN, first at \(1, 1\); gradients can be checked only where f is defined",
    ),
    "nothing but empty arrays": (
        lambda: verify.gradients(product, np.ones((0, 3)), np.ones((0, 3))),
        ValueError,
        r"verify: x, w: every floating-point array is empty, so nothing can be checked",
    ),
    "NaN in a parameter": (
        lambda: verify.gradients(with_nan(Scale(), "gain"), normal(2, 3)),
        ValueError,
        r"verify: gain contains NaN, first at \(2,\)",
    ),
    "NaN on the way": (
        lambda: verify.gradients(nan_inside, np.array([[1.0, 2.0], [4.0, -1.0]])),
        ValueError,
        r"the output is not finite: NaN is first seen in nan_inside\.root at \(1, 1\)",
    ),
    "NaN in an op inside": (
        lambda: verify.gradients(lambda x: ops.rms_norm(x * np.inf, np.ones(2)), np.array([[1.0, 2.0]])),
        ValueError,
        r"the output is not finite: NaN is first seen in rms_norm\.normalized at \(0, 0\)",
    ),
    "an infinite output": (
        lambda: verify.gradients(lambda x: (x * np.inf, lambda dy: dy), np.array([1.0, 2.0])),
        ValueError,
        r"the output is not finite at \(0,\), so there is nothing to differentiate",
    ),
    "no pullback": (
        lambda: verify.gradients(np.exp, np.ones(2)),
        TypeError,
        r"exp must return \(floating-point array, backward\), got an array of float64",
    ),
    "a pullback that cannot be called": (
        lambda: verify.gradients(lambda x: (x, x), np.ones(2)),
        TypeError,
        r"must return \(floating-point array, backward\), got \(an array of float64, an array of float64\)",
    ),
    "an integer output": (
        lambda: verify.gradients(lambda x: (x.astype(int), lambda dy: dy), np.ones(2)),
        TypeError,
        r"must return \(floating-point array, backward\), got \(an array of int64, function\)",
    ),
    "an array by keyword": (
        lambda: verify.gradients(ops.linear, np.ones((2, 3)), weight=np.ones((3, 2))),
        TypeError,
        r"verify: weight is a floating-point array given by keyword; give it by position to have it checked",
    ),
    "an upstream gradient of another shape": (
        lambda: verify.gradients(ops.relu, np.ones((2, 3)), upstream=np.ones(3)),
        ValueError,
        r"upstream must be a floating-point array of the output's shape \(2, 3\)",
    ),
    "an upstream gradient that is no array": (
        lambda: verify.gradients(ops.relu, np.ones((2, 3)), upstream=1.0),
        ValueError,
        r"upstream must be a floating-point array of the output's shape \(2, 3\)",
    ),
}


def with_nan(module: Module, name: str) -> Module:
    dict(module.parameters())[name].value[-1] = np.nan
    return module


@in_one("name", REFUSED)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_what_cannot_be_checked_is_refused(name: str) -> None:
    run, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        run()


@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt:RuntimeWarning")
def test_where_f_is_not_defined_beside_the_point_the_row_is_wrong() -> None:
    def f(x: np.ndarray) -> Any:
        return np.sqrt(x), lambda dy: dy * 5.0

    report = verify.gradients(f, np.array([0.0, 4.0]))
    assert not report.ok
    assert report.max_error == math.inf
    assert math.isnan(report["x"].numerical)
    json.dumps(report.as_dict(), allow_nan=False)


def test_an_error_in_f_comes_through() -> None:
    with pytest.raises(ValueError, match=r"linear: the axis in must be the same in x .* and weight"):
        verify.gradients(ops.linear, np.ones((2, 3)), np.ones((4, 2)))


def test_minus_infinity_as_an_input_is_allowed() -> None:
    """As a masked score: its gradient is 0, and moving it moves nothing."""
    report = verify.gradients(ops.softmax, np.array([[0.3, -np.inf, 1.0], [-np.inf] * 3]))
    report.assert_ok()


# ---------------------------------------------------------------------------------------- all is as it was afterwards


def raising_after(n_calls: int, module: Module, in_backward: bool = False) -> Callable[..., Any]:
    """module(x), until it fails in call number n_calls: in the record run, while displacing, or in its pullback."""
    calls = 0

    def f(x: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        y, right = module(x)

        def backward(dy: np.ndarray) -> Any:
            right(dy)
            raise ArithmeticError("in backward")

        if calls > n_calls:
            raise ArithmeticError("in forward")
        return y, backward if in_backward else right

    return f


FAILURES = {
    "no failure": (10**9, False),
    "at once": (0, False),
    "when recorded": (1, False),
    "in backward": (10**9, True),
    "on other numbers": (3, False),
    "input displaced": (4, False),
    "parameter displaced": (19, False),
    "transposed": (26, False),
}


@in_one("when", FAILURES)
def test_parameters_and_trace_function_are_restored(when: str) -> None:
    module, x = Scale(), normal(2, 3)
    module.gain.grad[...] = [1.0, 2.0, 3.0]
    value, grad = module.gain.value, module.gain.grad
    f = raising_after(FAILURES[when][0], module, FAILURES[when][1])

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        return None

    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        if when == "no failure":
            verify.gradients(f, x, parameters=module).assert_ok()
        else:
            with pytest.raises(ArithmeticError):
                verify.gradients(f, x, parameters=module)
        after = sys.gettrace()
    finally:
        sys.settrace(outer)
    assert after is tracer
    assert module.gain.value is value
    assert module.gain.grad is grad
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, np.array([0.5, -2.0, 3.0], np.float32))
    np.testing.assert_array_equal(grad, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(x, normal(2, 3))


def test_two_readings_in_two_threads_leave_parameters_as_they_were() -> None:
    """The second took what the first had put in place for what it had to restore."""
    inside, end = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        end.wait(10.0)

    first, second = (threading.Thread(target=reading, args=(run,)) for run in (wait, lambda: None))
    first.start()
    inside.wait(10.0)
    second.start()
    second.join(0.1)
    end.set()
    first.join()
    second.join()
    assert Parameter.__getattribute__ is object.__getattribute__


def test_two_checks_in_two_threads_do_not_meet() -> None:
    reports: dict[int, Report] = {}

    def check(i: int) -> None:
        reports[i] = verify.gradients(product if i else wrong_inside, *[normal(3, 4)] * (1 + (i > 0)))

    threads = [threading.Thread(target=check, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reports[i].ok for i in range(4)] == [False, True, True, True]


def test_the_strict_device() -> None:
    module = Scale()
    module.to("strict")

    def f(x: Any, w: Any) -> Any:
        square = x * x
        y = square * w

        def backward(dy: Any) -> Any:
            dsquare = dy * w
            return 2.0 * x * dsquare, dy * square

        return y, backward

    x, w = (to_device(normal(2, 3, seed=seed), "strict") for seed in (0, 1))
    verify.gradients(f, x, w).assert_ok()
    assert verify.gradients(f, x, w).as_dict() == verify.gradients(f, normal(2, 3), normal(2, 3, seed=1)).as_dict()


def test_a_gradient_on_another_device_is_rejected() -> None:
    def f(x: Any) -> Any:
        return x * 2.0, lambda dy: dy.get() * 2.0

    row = verify.gradients(f, to_device(normal(3), "strict"))["x"]
    assert row.problem == "the gradient is on numpy, its array on strict"


# ---------------------------------------------------------------------------------------------------------- reports


@pytest.fixture
def failing() -> Report:
    """Its second row is wrong, and its names need escaping."""
    report = verify.gradients(wrong_inside, normal(2, 3), name="a <b> & 'c'")
    return Report(report.name, (*report.rows, Row("<i>d", "parameter", (2,), "2 entries", (0,))))


def test_report_as_text(failing: Report) -> None:
    title, headings, *rows = str(failing).splitlines()
    assert title == "a <b> & 'c': 1 of 4 gradients are wrong: wrong_inside.square"
    assert re.split(r"  +", headings) == "name,kind,shape,checked,worst at,by hand,numerically,error".split(",")
    assert len(rows) == len(failing.rows) == 4
    for line, row in zip(rows[:3], failing.rows[:3], strict=True):
        name, kind, shape, checked, _, hand, numerical, error, verdict = re.split(r"  +", line)
        assert (name, kind, shape, checked) == (row.name, row.kind, "(2, 3)", "6 entries")
        assert float(hand) == pytest.approx(row.hand, rel=1e-7)
        assert float(numerical) == pytest.approx(row.numerical, rel=1e-7)
        assert float(error) == pytest.approx(row.error, rel=0.1)
        assert verdict == ("WRONG" if row.name == "wrong_inside.square" else "ok")
    assert str(verify.gradients(product, normal(2), normal(2))).startswith(
        "product: all 4 gradients are right, largest error "
    )


def test_report_as_html_escapes_names(failing: Report) -> None:
    text = failing._repr_html_()
    assert "a &lt;b&gt; &amp; &#x27;c&#x27;" in text
    assert "&lt;i&gt;d" in text
    assert "<b>" not in text and "<i>" not in text

    class Cells(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[list[str]] = []

        def handle_starttag(self, tag: str, attributes: Any) -> None:
            if tag == "tr":
                self.rows.append([])
            elif tag in ("td", "th"):
                self.rows[-1].append("")

        def handle_data(self, data: str) -> None:
            if self.rows:
                self.rows[-1][-1] += data

    cells = Cells()
    cells.feed(text)
    assert cells.rows[1:] == [row.cells() for row in failing.rows]


def test_report_as_json(failing: Report) -> None:
    document = json.loads(json.dumps(failing.as_dict(), allow_nan=False))
    assert document["name"] == "a <b> & 'c'"
    assert document["ok"] is False
    assert document["max_error"] == failing.max_error
    by_kind = document["max_error_by_kind"]
    assert by_kind.keys() == {"input", "parameter", "intermediate"}
    assert by_kind["intermediate"] == failing["wrong_inside.square"].error
    assert by_kind["input"] == failing["x"].error
    assert [row["name"] for row in document["rows"]] == [row.name for row in failing.rows]
    row = document["rows"][1]
    assert (row["ok"], row["shape"], row["where"]) == (False, [2, 3], list(failing.rows[1].where))
    assert row["hand"] == failing.rows[1].hand


def test_report_of_problems_as_json_and_text() -> None:
    report = verify.gradients(returning(lambda dx, dw: (None, dw)), normal(3), normal(3, seed=1))
    document = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert document["max_error"] is None
    assert document["rows"][0]["error"] is None
    assert document["rows"][0]["problem"] == "the gradient is missing (None)"
    assert "WRONG: the gradient is missing (None)" in str(report)


def test_rows_by_name() -> None:
    report = verify.gradients(product, normal(2), normal(2))
    assert report["product.square"] is report.rows[2]
    with pytest.raises(KeyError, match=r"no row 'square'; the rows are x, w, product\.square, product\.y"):
        report["square"]


def test_a_report_of_nothing_is_not_ok() -> None:
    report = verify.gradients(lambda n: (np.ones(n), lambda dy: None), 3)
    assert report.rows == ()
    assert not report.ok
    with pytest.raises(AssertionError, match="<lambda>: nothing to check"):
        report.assert_ok()


def test_a_wrong_row_is_worse_than_a_right_one_with_a_larger_error() -> None:
    rows = (Row("a", "input", (), error=0.5), Row("b", "input", (), error=1e-3, ok=False))
    assert Report("f", rows).worst is rows[1]
    assert Report("f").worst is None


@pytest.fixture(autouse=True)
def _no_trace_function_left() -> Iterator[None]:
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before


# ------------------------------------------------------------------------- jumps, kinks and pullbacks that remember


def steps_up(x: np.ndarray) -> Any:
    open_ = x >= 1.0
    return x * open_, lambda dy: dy * open_ * 7.0


def test_a_jump_is_no_kink() -> None:
    """At a kink any slope between those of the two sides is right; at a jump the slope is infinite and none is."""
    assert not verify.gradients(steps_up, np.ones(3), upstream=np.ones(3)).ok


@pytest.mark.slow
def test_a_wrong_slope_elsewhere_is_found_though_some_entries_lie_at_a_kink() -> None:
    def relu(x: np.ndarray) -> Any:
        return np.maximum(x, 0.0), lambda dy: dy * (x > 0.0) * 1.05

    for seed in range(20):
        x = normal(200, seed=seed)
        x[:20] = 0.0
        assert not verify.gradients(relu, x, seed=seed).ok


DRAWS: dict[str, Callable[..., np.ndarray]] = {
    "numpy": lambda shape: np.random.normal(size=shape),  # noqa: NPY002
    "a new generator": lambda shape: np.random.default_rng().normal(size=shape),
    "python": lambda shape: np.full(shape, random.random()),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_random_numbers_of_its_own_are_named_as_such(draw: Callable[..., np.ndarray]) -> None:
    seeds = np.random.bit_generator.randbits
    with pytest.raises(ValueError, match="it draws random numbers of its own: pass its random generator"):
        verify.gradients(lambda x: (x + draw(x.shape), lambda dy: dy), normal(3))
    report = verify.gradients(lambda x: (2.0 * x, lambda dy: dy + draw(dy.shape)), normal(3))
    assert "; it draws random numbers of its own: draw them in forward" in report["x"].problem
    assert np.random.bit_generator.randbits is seeds


def test_random_numbers_of_an_argument_may_not_be_drawn_again() -> None:
    def dropped(x: np.ndarray, rng: np.random.Generator) -> Any:
        kept = rng.random(x.shape) < 0.5
        return x * kept, lambda dy: dy * (rng.random(dy.shape) < 0.5)

    report = verify.gradients(dropped, normal(3, 4), rng=np.random.default_rng(0))
    assert report["x"].problem.endswith("as a generator does: it may only read what forward kept")


def overwrites_output(x: np.ndarray) -> Any:
    y = 2.0 * x
    return y, lambda dy: np.multiply(2.0, dy, out=y)


def clears_mask(x: np.ndarray, mask: np.ndarray) -> Any:
    kept = mask.copy()

    def backward(dy: np.ndarray) -> np.ndarray:
        mask[...] = False
        return dy * kept

    return x * kept, backward


def test_output_and_masks_may_not_be_changed_in_place() -> None:
    assert "the output" in [row.name for row in verify.gradients(overwrites_output, normal(3)).rows if not row.ok]
    report = verify.gradients(clears_mask, normal(3), mask=np.array([True, False, True]))
    assert "mask" in [row.name for row in report.rows if not row.ok]


@in_one(
    "setting, error",
    [
        ({"directions": 0}, ValueError),
        ({"step": 0.0}, ValueError),
        ({"atol": -1.0}, ValueError),
        ({"atol": np.inf}, ValueError),
        ({"entrywise": 1.5}, TypeError),
    ],
    ids=str,
)
def test_settings_with_which_nothing_could_fail_are_refused(setting: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(setting))):
        verify.gradients(lambda x: (x, lambda dy: dy), normal(3), **setting)


def test_intermediates_of_a_decorated_pullback_are_checked() -> None:
    def f(x: np.ndarray) -> Any:
        square = x * x
        y = 3.0 * square

        def backward(dy: np.ndarray) -> np.ndarray:
            dsquare = 999.0 * dy
            return 6.0 * x * dy + 0.0 * dsquare

        return y, functools.wraps(backward)(lambda dy: backward(dy))

    assert not verify.gradients(f, normal(3))["f.square"].ok


def test_integers_and_lists_are_named_where_they_are_the_trouble() -> None:
    def double(x: np.ndarray) -> Any:
        return 2.0 * x, lambda dy: 2.0 * dy

    (row,) = verify.gradients(double, np.arange(3)).of_kind("input")
    assert row.problem.endswith("; x holds integers, which have no gradient: convert it with astype(float)")
    with pytest.raises(TypeError, match=r"x is a list; make it an array: numpy.array\(x, dtype=float\)"):
        verify.gradients(double, [1.0, 2.0])


# ------------------------------------------------------------------------- what a hostile look at the checker found


MEMO: dict[Any, Any] = {}
BUFFER = np.empty(3)


def remembers_the_first(x: np.ndarray) -> Any:
    kept = MEMO.setdefault(("first", x.shape, x.dtype), x * 1.0)
    return x * x, lambda dy: 2.0 * kept * dy


def remembers_the_first_in_backward(x: np.ndarray) -> Any:
    return x * x, lambda dy: MEMO.setdefault(("backward", x.shape, x.dtype), 2.0 * x) * dy


def one_buffer_for_all(x: np.ndarray) -> Any:
    return x * x, lambda dy: np.multiply(2.0 * x, dy, out=BUFFER)


def one_buffer_for_a_pullback(x: np.ndarray) -> Any:
    buffer = np.empty_like(x)
    return x * x, lambda dy: np.multiply(2.0 * x, dy, out=buffer)


class Remembers:
    """Keeps its input on itself, where the next call overwrites it."""

    def __call__(self, x: np.ndarray) -> Any:
        self.x = x
        return x * x, lambda dy: 2.0 * self.x * dy


def counting(factor: Callable[[int], float]) -> Callable[..., Any]:
    """x, whose pullback returns dy times factor(how often it was called)."""

    def f(x: np.ndarray) -> Any:
        calls: list[int] = []

        def backward(dy: np.ndarray) -> np.ndarray:
            calls.append(1)
            return dy * factor(len(calls))

        return x * 1.0, backward

    return f


def tripled(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """3 x, whose pullback is change(dy)."""
    return lambda x: (3.0 * x, change)


def wrong_in_float32(x: np.ndarray) -> Any:
    return 3.0 * x, lambda dy: (3.0 if x.dtype == np.float64 else 4.0) * dy


def sums_in_memory_order(x: np.ndarray) -> Any:
    return 3.0 * x, lambda dy: 3.0 * dy.ravel(order="K").reshape(x.shape)


def in_place_on_a_copy(x: np.ndarray) -> Any:
    def backward(dy: np.ndarray) -> np.ndarray:
        dx = 1.0 * dy
        flat = np.asarray(dx, order="A").reshape(-1) if dy.flags.c_contiguous else np.zeros(dy.size)
        flat *= 3.0
        return dx if dy.flags.c_contiguous else 2.0 * dx

    return 3.0 * x, backward


def takes_contiguous_inputs(x: np.ndarray) -> Any:
    return 3.0 * x, lambda dy: (3.0 if x.flags.c_contiguous else 2.0) * dy


NOT_LINEAR = "backward is not linear in its argument, but a derivative is"
OVERWRITTEN = "a later backward wrote into this gradient; return a new array"
STATE = (
    "backward gives a different gradient when called again; it keeps state from call to call, as a generator does: it "
    "may only read what forward kept"
)
LAYOUT = "it differs when arrays are transposed or have gaps in memory"
ACCEPTED_BEFORE = {
    "remembers the last x": (Remembers(), None),
    "counts its calls": (counting(float), STATE),
    "settles": (counting(lambda calls: 1.0 if calls == 1 else 2.0), STATE),
    "alternates": (counting(lambda calls: 1.0 + calls % 2), STATE),
    "remembers the first x": (remembers_the_first, None),
    "remembers the first x in backward": (remembers_the_first_in_backward, None),
    "one buffer for all": (one_buffer_for_all, OVERWRITTEN),
    "one buffer for a pullback": (one_buffer_for_a_pullback, OVERWRITTEN),
    "clips": (tripled(lambda dy: np.clip(3.0 * dy, -10.0, 10.0)), NOT_LINEAR),
    "clips at a million": (tripled(lambda dy: np.clip(3.0 * dy, -1e6, 1e6)), NOT_LINEAR),
    "drops what is small": (tripled(lambda dy: np.where(abs(dy) < 1e-5, 0.0, 3.0 * dy)), NOT_LINEAR),
    "adds something small": (tripled(lambda dy: 3.0 * dy + 1e-10), NOT_LINEAR),
    "wrong in float32": (wrong_in_float32, "it differs between float32 and float64"),
    "in the order of memory": (sums_in_memory_order, LAYOUT),
    "another way for views": (in_place_on_a_copy, LAYOUT),
    "contiguous inputs": (takes_contiguous_inputs, LAYOUT),
}


@in_one("dtype, name", ["float32", "float64"], ACCEPTED_BEFORE)
def test_what_was_accepted_is_rejected(name: str, dtype: str) -> None:
    MEMO.clear()
    f, problem = ACCEPTED_BEFORE[name]
    shape = (3,) if "buffer" in name else (3, 2)
    row = verify.gradients(f, normal(*shape).astype(dtype))["x"]
    assert not row.ok
    assert problem is None or row.problem == problem


class Collects(Module):
    """Parameters in a dict."""

    def __init__(self) -> None:
        self.weights = {"gain": Parameter(np.array([0.5, -2.0, 3.0], np.float32))}

    def __call__(self, x: np.ndarray) -> Any:
        gain = self.weights["gain"]

        def backward(dy: np.ndarray) -> Any:
            gain.grad += 2.0 * (dy * x).sum(axis=0)
            return dy * gain.value

        return x * gain.value, backward


def test_parameters_in_a_dict_have_rows() -> None:
    module, x = Collects(), normal(2, 3)
    assert not verify.gradients(module, x)["weights.gain"].ok
    assert not verify.gradients(lambda x: module(x), x, parameters={"gain": module.weights["gain"]})["gain"].ok


class CollectsInLists(Collects):
    """Parameters in a dict of lists of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = {"gain": self.weights["gain"]} | {"more": [(Scale(),), (self.weights.pop("gain"),)]}


def test_parameters_in_lists_of_lists_have_rows() -> None:
    module = CollectsInLists()
    assert [name for name, _ in module.parameters()] == ["weights.gain", "weights.more.0.0.gain"]
    del module.weights["gain"]
    assert [name for name, _ in module.parameters()] == ["weights.more.1.0", "weights.more.0.0.gain"]
    assert [name for name, _ in module.children()] == ["weights.more.0.0"]
    gain = module.weights["more"][1][0]
    report = verify.gradients(lambda x: (x * gain.value, lambda dy: dy * gain.value), normal(2, 3), parameters=module)
    assert [row.name for row in report.rows if not row.ok] == ["weights.more.1.0"]


class Hides(Module):
    """y = x · gain, where only `keep(gain)` is an attribute; its pullback forgets the gain's gradient."""

    def __init__(self, keep: Callable[[Parameter], Any], found: Callable[[Any], Parameter]) -> None:
        self.kept, self.found = keep(Parameter(normal(3))), found

    def __call__(self, x: np.ndarray) -> Any:
        gain = self.found(self.kept).value
        return x * gain, lambda dy: dy * gain


HIDING: dict[str, tuple[Callable[[Parameter], Any], Callable[[Any], Parameter]]] = {
    "a set": (lambda p: {p}, lambda kept: next(iter(kept))),
    "a deque": (lambda p: deque([p]), lambda kept: kept[0]),
    "a plain object": (lambda p: SimpleNamespace(gain=p), lambda kept: kept.gain),
    "an array of objects": (lambda p: np.array([p], dtype=object), lambda kept: kept[0]),
    "a closure": (lambda p: lambda: p, lambda kept: kept()),
}


@in_one("place", HIDING)
def test_a_module_that_hides_a_parameter_is_refused(place: str) -> None:
    module = Hides(*HIDING[place])
    with pytest.raises(TypeError, match=r"Hides reads Parameter\(shape=\(3,\).*\(\) does not list; keep each"):
        verify.gradients(module, normal(2, 3))
    assert Parameter.__getattribute__ is object.__getattribute__  # which noticed it, and is itself again


def test_a_function_that_reads_a_parameter_is_told_that_it_is_not_checked() -> None:
    module = Collects()
    report = verify.gradients(lambda x: module(x), normal(2, 3))
    assert "; not checked: Parameter(shape=(3,)" in str(report).partition("\n")[0]
    assert verify.gradients(product, normal(3), normal(3)).note == ""
    given = verify.gradients(lambda x: module(x), normal(2, 3), parameters=[])
    assert given.note == ""  # the caller has chosen


def used_where_it_is_bound(x: np.ndarray) -> Any:
    y = np.exp(x); return y, lambda dy: dy * y  # fmt: skip  # noqa: E702


def used_by_its_neighbour(x: np.ndarray) -> Any:
    y = x * x; z = 3.0 * y  # fmt: skip  # noqa: E702

    def backward(dz: np.ndarray) -> np.ndarray:
        dy = 3.0 * dz
        dx = 2.0 * x * dy
        return dx

    return z, backward


@pytest.mark.parametrize("f", [used_where_it_is_bound, used_by_its_neighbour])
def test_a_value_that_is_used_in_the_line_that_binds_it_is_not_checked(f: Callable[..., Any]) -> None:
    report = verify.gradients(f, normal(3))
    report.assert_ok()
    row = report[f"{f.__name__}.y"]
    assert row.problem.startswith("not checked: y is used in the very line that binds it; give each statement")


def affine(params: dict[str, Any], x: np.ndarray) -> Any:
    w, (b,) = params["w"], params["b"]

    def backward(dy: np.ndarray) -> Any:
        return {"w": x.T @ dy, "b": [dy.sum(axis=0)]}, dy @ w.T

    return x @ w + b, backward


def test_inputs_may_be_dicts_of_arrays() -> None:
    params = {"w": normal(3, 2), "b": [normal(2)]}
    report = verify.gradients(affine, params, normal(4, 3))
    report.assert_ok()
    assert [row.name for row in report.of_kind("input")] == ["params['w']", "params['b'][0]", "x"]

    def doubled(params: dict[str, Any], x: np.ndarray) -> Any:
        y, right = affine(params, x)

        def backward(dy: np.ndarray) -> Any:
            dparams, dx = right(dy)
            return dparams | {"w": 2.0 * dparams["w"]}, dx

        return y, backward

    report = verify.gradients(doubled, params, normal(4, 3))
    assert [row.name for row in report.of_kind("input") if not row.ok] == ["params['w']"]

    def forgets(params: dict[str, Any], x: np.ndarray) -> Any:
        y, right = affine(params, x)
        return y, lambda dy: ({"w": right(dy)[0]["w"]}, right(dy)[1])

    assert verify.gradients(forgets, params, normal(4, 3))["params['b'][0]"].problem == "the gradient is missing (None)"


def test_an_empty_array_beside_others_is_not_checked() -> None:
    def joined(x: np.ndarray, z: np.ndarray) -> Any:
        y = np.concatenate([x, 2.0 * z])
        return y, lambda dy: (dy[: len(x)], 2.0 * dy[len(x) :])

    report = verify.gradients(joined, np.ones((0, 2)), normal(3, 2))
    report.assert_ok()
    assert report["x"].problem == "not checked: the array is empty"
    assert report["z"].checked == "6 entries"


def test_arrays_inside_dicts_may_not_be_changed_in_place() -> None:
    def spoils(params: dict[str, Any], x: np.ndarray) -> Any:
        params["mask"][0] = 0
        return affine(params, x)

    params = {"w": normal(3, 2), "b": [normal(2)], "mask": np.array([1, 2, 3])}
    report = verify.gradients(spoils, params, normal(4, 3))
    assert ("params['mask']", "was changed in place") in [(row.name, row.problem) for row in report.rows]


def test_float32_may_be_left_out_where_f_cannot_run_in_it() -> None:
    weight = normal(3, 2)
    report = verify.gradients(lambda x: (ops.linear(x, weight)[0], lambda dy: dy @ weight.T), normal(4, 3))
    report.assert_ok()
    assert report["in float32"].problem.startswith("not checked: linear: weight is float64 but x is float32")


# ...................................................................................................... its tracing


def wrong_square(x: np.ndarray, kind: str) -> Any:
    """The gradient of `square` is wrong, but not used."""
    square = x * x
    y = 3.0 * square

    def backward(factor: float, dy: np.ndarray) -> np.ndarray:
        dsquare = 4.0 * dy
        return 6.0 * x * dy + 0.0 * dsquare

    class Pullback:
        def __call__(self, dy: np.ndarray) -> np.ndarray:
            return backward(1.0, dy) if kind == "helper" else self.pull(dy)

        def pull(self, dy: np.ndarray) -> np.ndarray:
            dsquare = 4.0 * dy
            return 6.0 * x * dy + 0.0 * dsquare

    class Object(Pullback):
        def __call__(self, dy: np.ndarray) -> np.ndarray:
            dsquare = 4.0 * dy
            return 6.0 * x * dy + 0.0 * dsquare

    partial = functools.partial(backward, 1.0)
    return y, {"partial": partial, "object": Object(), "helper": Pullback(), "method": Pullback()}[kind]


@pytest.mark.parametrize("kind", ["partial", "object"])
def test_the_gradients_inside_any_kind_of_pullback_are_checked(kind: str) -> None:
    report = verify.gradients(wrong_square, normal(3), kind)
    assert [row.name for row in report.rows if not row.ok] == ["wrong_square.square"]


@pytest.mark.parametrize(("kind", "where"), [("helper", "backward"), ("method", "Pullback.pull")])
def test_a_gradient_in_a_helper_is_named(kind: str, where: str) -> None:
    report = verify.gradients(wrong_square, normal(3), kind)
    (row,) = [row for row in report.rows if row.name.endswith(".square")]
    assert row.problem == (
        f"not checked: dsquare is bound in {where}, which is not the pullback of the call that binds square"
    )
    assert "1 not checked" in str(report)  # dy, the helper's argument, is one more


def squared(x: np.ndarray) -> np.ndarray:
    square = x * x
    return square


def test_a_value_in_a_helper_is_named() -> None:
    def f(x: np.ndarray) -> Any:
        y = 3.0 * squared(x)

        def backward(dy: np.ndarray) -> np.ndarray:
            dsquare = 4.0 * dy
            return 6.0 * x * dy + 0.0 * dsquare

        return y, backward

    report = verify.gradients(f, normal(3))
    assert report["squared.square"].problem == (
        "not checked: dsquare is bound in the pullback of f, but square in squared"
    )


# ................................................................................................. its differences


def elementwise(f: Callable[[np.ndarray], np.ndarray], slope: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    return lambda x: (f(x), lambda dy: dy * slope(x))


RIGHT = {
    "x|x| at 0": (lambda x: x * abs(x), lambda x: 2.0 * abs(x), [0.0, 1.0]),
    "x|x| at many zeros": (lambda x: x * abs(x), lambda x: 2.0 * abs(x), [0.0] * 100),
    "x⁵ at 0": (lambda x: x**5, lambda x: 5.0 * x**4, [0.0, 0.001]),
    "1/x": (lambda x: 1.0 / x, lambda x: -1.0 / x**2, [2e-4, 1.7e-4, 3e-5]),
    "1e6 + x": (lambda x: 1e6 + x, lambda x: 1.0 + 0.0 * x, [0.3, 0.7, -0.2]),
    "1e6 + sin x, many": (lambda x: 1e6 + np.sin(x), np.cos, list(np.linspace(0.1, 1.0, 100))),
}


@in_one("name", RIGHT)
def test_right_gradients_where_differences_are_hard_are_accepted(name: str) -> None:
    f, slope, x = RIGHT[name]
    verify.gradients(elementwise(f, slope), np.array(x)).assert_ok()
    assert not verify.gradients(elementwise(f, lambda x: 1.001 * slope(x) + 1e-3), np.array(x)).ok


@in_one("size, n", [1e-7, 1e-9, 1e-12, 1e-20], [3, 100])
def test_the_gradient_of_something_small_is_judged_by_its_own_size(size: float, n: int) -> None:
    def of_small(factor: float) -> Callable[..., Any]:
        return elementwise(lambda x: size * np.sin(x), lambda x: factor * size * np.cos(x))

    verify.gradients(of_small(1.0), normal(n)).assert_ok()
    for factor in (0.0, 0.5, 2.0, -1.0):
        assert not verify.gradients(of_small(factor), normal(n)).ok, factor
        assert verify.gradients(of_small(factor), normal(n), atol=1e-6).ok


def test_what_rounding_hides_is_counted() -> None:
    """sin(x)·10⁻¹² cannot be seen beside 10⁴ in float64; 10⁻³ can."""

    def beside_much(size: float, factor: float) -> Report:
        f = elementwise(lambda x: 1e4 + (size * np.sin(x)).astype(np.float64), lambda x: factor * size * np.cos(x))
        return verify.gradients(f, np.array([0.1, 0.2, 0.3]), upstream=np.ones(3))

    assert not beside_much(1e-3, 2.0).ok
    report = beside_much(1e-12, 2.0)
    row = report["x"]
    assert (report.ok, row.ok, row.is_wrong, row.is_hidden, row.hidden) == (False, False, False, True, 3)
    assert str(report).startswith("<lambda>: 1 of 1 gradients cannot be seen beside rounding: x\n")
    assert "CANNOT BE SEEN: rounding hides it: shift f towards 0, scale" in str(report)
    with pytest.raises(AssertionError, match="cannot be seen beside rounding: x"):
        report.assert_ok()
    assert beside_much(1e-3, 1.0)["x"].hidden == 0


def test_a_check_has_one_blas_thread_and_the_last_of_two_gives_the_others_back() -> None:
    """A wrong attention of (4, 4, 128, 64) took ten times as long on two: they waited for each other."""

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    seen: list[set[int]] = []

    def f(x: np.ndarray) -> Any:
        seen.append(threads())
        return x * x, lambda dy: 2.0 * x * dy

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        verify.gradients(f, normal(3))
        assert seen and all(each == {1} for each in seen) and threads() == {2}
        one_blas_thread.__enter__()
        verify.gradients(f, normal(3))
        assert threads() == {1}  # another thread is still inside
        one_blas_thread.__exit__()
        assert threads() == {2}
