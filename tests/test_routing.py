"""Routes for experts, and shared experts: against the formulas written out, and their mistakes."""

import math

import numpy as np
import pytest
from tiers import in_one
from value_checks import CLOSE, rejects

from minitransformer import course, ideas
from minitransformer.ideas.after.routing import (
    SharedExperts,
    SigmoidRouting,
    SoftmaxRouting,
    sigmoid_gates,
    softmax_gates,
)
from minitransformer.ideas.after.routing.op import best_in_groups

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(7, 6))
BIAS = np.array([0.5, -0.6, 0.3, -0.2, 0.6, 0.1])
LESSON = course.exercise("sigmoid_gates_backward")


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def chosen_by_hand(scores, k, groups=1, kept=1, counted=1):
    """Expert by expert: which ones a token goes to."""
    size = len(scores) // groups
    members = [list(range(g * size, (g + 1) * size)) for g in range(groups)]
    worth = [sum(sorted((scores[i] for i in group), reverse=True)[:counted]) for group in members]
    best = sorted(range(groups), key=lambda g: -worth[g])[:kept]
    able = [i for g in best for i in members[g]]
    return set(sorted(able, key=lambda i: -scores[i])[:k])


def route_of(**options):
    route = SigmoidRouting(6, 2, **options).to(dtype="float64")
    route.bias.value = BIAS.copy()
    return route


@in_one("groups, kept", [(1, 1), (3, 1), (3, 2), (2, 1)])
def test_the_route_is_that_of_the_formula(groups, kept):
    """The bias helps to choose, and is not in the gates."""
    gates = route_of(groups=groups, kept=kept, factor=2.5)(LOGITS)[0]
    for row, found in zip(LOGITS, gates, strict=True):
        s = [sigmoid(x) for x in row]
        picked = chosen_by_hand([a + b for a, b in zip(s, BIAS, strict=True)], 2, groups, kept, counted=2)
        total = sum(s[i] for i in picked)
        expected = [2.5 * s[i] / total if i in picked else 0.0 for i in range(6)]
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert (route_of().chosen(LOGITS) != SigmoidRouting(6, 2).chosen(LOGITS)).any()


@pytest.mark.parametrize("groups, kept", [(1, 1), (3, 2)])
def test_shares_of_a_softmax_over_all(groups, kept):
    gates = SoftmaxRouting(2, groups, kept, 1.7)(LOGITS)[0]
    for row, found in zip(LOGITS, gates, strict=True):
        picked = chosen_by_hand(list(row), 2, groups, kept)
        total = sum(math.exp(x) for x in row)
        expected = [1.7 * math.exp(x) / total if i in picked else 0.0 for i, x in enumerate(row)]
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_the_gradients_are_those_of_the_formula():
    """Each entry of the Jacobian, from the quotient rule written out."""
    chosen, dgates = route_of().chosen(LOGITS), RNG.normal(size=LOGITS.shape)
    for normalized in (True, False):
        found = sigmoid_gates(LOGITS, chosen, 2.5, normalized)[1](dgates)
        for row, picked, upstream, dlogits in zip(LOGITS, chosen, dgates, found, strict=True):
            s = [sigmoid(x) for x in row]
            total = sum(s[i] for i in range(6) if picked[i])
            for j in range(6):
                slopes = [2.5 * ((i == j) / total - s[i] / total**2 if normalized else float(i == j)) for i in range(6)]
                through = sum(upstream[i] * slopes[i] for i in range(6) if picked[i])
                assert abs(dlogits[j] - picked[j] * through * s[j] * (1.0 - s[j])) < 1e-14
    found = softmax_gates(LOGITS, chosen, 1.7)[1](dgates)
    for row, picked, upstream, dlogits in zip(LOGITS, chosen, dgates, found, strict=True):
        p = [math.exp(x) / sum(map(math.exp, row)) for x in row]
        for j in range(6):
            through = sum(1.7 * upstream[i] * p[i] * ((i == j) - p[j]) for i in range(6) if picked[i])
            assert abs(dlogits[j] - through) < 1e-14


def test_large_logits_and_float16():
    gates, backward = sigmoid_gates(np.array([[800.0, -800.0, 0.0]]), np.array([True, False, True]))
    np.testing.assert_allclose(gates, [[2 / 3, 0.0, 1 / 3]], rtol=1e-15)
    assert np.isfinite(backward(np.ones((1, 3)))).all()
    for dtype in ("float16", "float32"):
        for f in (sigmoid_gates, softmax_gates):
            y, backward = f(LOGITS.astype(dtype), best_in_groups(LOGITS, 2), 1.5)
            assert {y.dtype.name, backward(y).dtype.name} == {dtype}


def test_the_bias_gets_no_gradient_and_evens_out_the_loads():
    route = route_of()
    gates, backward = route(LOGITS)
    backward(RNG.normal(size=gates.shape))
    assert not route.bias.grad.any()
    many = np.random.default_rng(0).normal(size=(400, 6)) + np.array([1.5, 0.0, 0.0, 0.0, 0.0, -1.5])

    def spread():
        return np.ptp(route.chosen(many).mean(axis=0))

    before = spread()
    for _ in range(300):
        route.adjust(many, 0.01)
    assert before > 0.5 and spread() < 0.05


def test_shared_experts_are_a_sum():
    shared, routed = ideas.GatedFeedForward(4, 3, bias=False), ideas.MixtureOfExperts(4, 5, 3)
    x = RNG.normal(size=(2, 5, 4)).astype(np.float32)
    np.testing.assert_allclose(SharedExperts(shared, routed)(x)[0], shared(x)[0] + routed(x)[0], rtol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="SigmoidRouting: k must be greater than 0"):
        SigmoidRouting(6, 0)
    with pytest.raises(ValueError, match="k must be at most n_experts, got 3 of 2"):
        ideas.MixtureOfExperts(4, 5, 2, route=SoftmaxRouting(3))
    with pytest.raises(ValueError, match="6 experts cannot form 4 groups"):
        SoftmaxRouting(2, 4)(LOGITS)
    with pytest.raises(ValueError, match="does not broadcast to"):
        sigmoid_gates(LOGITS, np.ones((7, 5), bool))


@rejects("sigmoid-routing-bias-ignored")
def the_bias_takes_part_in_the_choice():
    by_hand = [chosen_by_hand([sigmoid(x) + b for x, b in zip(row, BIAS, strict=True)], 2) for row in LOGITS]
    expected = [[i in picked for i in range(6)] for picked in by_hand]
    np.testing.assert_array_equal(route_of().chosen(LOGITS), expected)


@rejects("groups-all-open")
def only_the_best_groups_take_part():
    by_hand = [chosen_by_hand(list(row), 2, 3, 1) for row in LOGITS]
    expected = [[i in picked for i in range(6)] for picked in by_hand]
    np.testing.assert_allclose(1.0 * best_in_groups(LOGITS, 2, 3, 1), 1.0 * np.array(expected), **CLOSE)


def test_the_exercise_takes_what_the_op_does():
    def by_the_op(logits, bias, k, factor, dgates):
        return sigmoid_gates(logits, best_in_groups(1.0 / (1.0 + np.exp(-logits)) + bias, k), factor)[1](dgates)

    assert course.check(LESSON.name, by_the_op).right
