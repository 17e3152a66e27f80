"""What the ops compute, against values computed independently.

The references below are written from the formulas with Python's floats, lists and loops. Sizes differ wherever they can
(T 3, d_k 2, d_v 4), because equal sizes hide a missing transpose, or √T in the place of √d_k.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_ops import IDEAS, TABLED
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer import later, ops
from minitransformer.arrays.masks import causal_mask, local_mask, padding_mask
from minitransformer.ops.positions import shift_of_positions

EXACT = {"rtol": 1e-13, "atol": 1e-13}  # two float64 computations of one formula


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------------------------------------------------------
# The worked example: a 3 × 4 input projected with 4 × 3 matrices; its numbers can be had by mental arithmetic.

X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=np.float64)
W_Q = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=np.float64)
W_K = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=np.float64)
W_V = np.array([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=np.float64)


def worked_example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k, v = (ops.linear(X, weight)[0] for weight in (W_Q, W_K, W_V))
    return q, k, v


def test_worked_example_projections_and_scores() -> None:
    q, k, v = worked_example()
    np.testing.assert_array_equal(q, [[1, 0, 2], [2, 2, 2], [2, 1, 3]])
    np.testing.assert_array_equal(k, [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    np.testing.assert_array_equal(v, [[1, 2, 3], [2, 8, 0], [2, 6, 3]])
    np.testing.assert_array_equal(ops.linear(q, k.T)[0], [[2, 4, 4], [4, 16, 12], [4, 12, 10]])


def test_worked_example_unscaled() -> None:
    output, _ = ops.attention(*worked_example(), scale=1.0)
    np.testing.assert_allclose(
        output, [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]], atol=5e-5, rtol=0
    )


def test_worked_example_with_weights_rounded_first() -> None:
    """Weights rounded to one digit, as a reader does on paper: [0.06, 0.47, 0.47] counts as [0, 0.5, 0.5]."""
    weights = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.9, 0.1]])
    exact, _ = ops.softmax(np.array([[2.0, 4.0, 4.0], [4.0, 16.0, 12.0], [4.0, 12.0, 10.0]]))
    np.testing.assert_allclose(exact, weights, atol=0.07, rtol=0)
    output, _ = ops.linear(weights, worked_example()[2])
    np.testing.assert_allclose(output, [[2, 7, 1.5], [2, 8, 0], [2, 7.8, 0.3]], **EXACT)


def test_worked_example_scaled() -> None:
    """Row 1 by hand: scores 2/√3, 4/√3, 4/√3, so the weights are 1 : e^(2/√3) : e^(2/√3)."""
    share = math.exp(2 / math.sqrt(3))
    total = 1 + 2 * share
    first_row = [(1 + 4 * share) / total, (2 + 14 * share) / total, (3 + 3 * share) / total]
    output, _ = ops.attention(*worked_example())
    np.testing.assert_allclose(output[0], first_row, **EXACT)


# ---------------------------------------------------------------------------------------------------------------------
# Each op's forward pass against loops over Python floats.


def loop_softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    exponentials = [math.exp(score / temperature) for score in row]
    return [exponential / sum(exponentials) for exponential in exponentials]


def loop_matmul(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    return [[sum(row[i] * b[i][j] for i in range(len(b))) for j in range(len(b[0]))] for row in a]


def loop_attention(q: Any, k: Any, v: Any, scale: float, may_attend: Callable[[int, int], bool]) -> list[list[float]]:
    output = []
    for i, query in enumerate(q):
        keys = [j for j in range(len(k)) if may_attend(i, j)]
        scores = [scale * sum(a * b for a, b in zip(query, k[j], strict=True)) for j in keys]
        weights = loop_softmax(scores)
        output.append([sum(w * v[j][c] for w, j in zip(weights, keys, strict=True)) for c in range(len(v[0]))])
    return output


def loop_layer_norm(row: list[float], gamma: list[float], beta: list[float], eps: float) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    return [g * (x - mean) / math.sqrt(variance + eps) + b for x, g, b in zip(row, gamma, beta, strict=True)]


def loop_rms_norm(row: list[float], gamma: list[float], eps: float) -> list[float]:
    mean_square = sum(x * x for x in row) / len(row)
    return [g * x / math.sqrt(mean_square + eps) for x, g in zip(row, gamma, strict=True)]


def loop_cross_entropy(logits: Any, targets: list[int], ignore_index: int, smoothing: float, reduction: str) -> float:
    losses = []
    for row, target in zip(logits, targets, strict=True):
        if target != ignore_index:
            wanted = [smoothing / len(row) + (1 - smoothing if v == target else 0) for v in range(len(row))]
            losses.append(-sum(w * math.log(p) for w, p in zip(wanted, loop_softmax(row), strict=True)))
    return sum(losses) / (len(losses) if reduction == "mean" else 1)


def test_linear() -> None:
    x, weight, bias = random(3, 2), random(2, 4, seed=1), random(4, seed=2)
    product = loop_matmul(x.tolist(), weight.tolist())
    np.testing.assert_allclose(ops.linear(x, weight)[0], product, **EXACT)
    with_bias = [[p + b for p, b in zip(row, bias.tolist(), strict=True)] for row in product]
    np.testing.assert_allclose(ops.linear(x, weight, bias)[0], with_bias, **EXACT)


def test_low_rank_linear() -> None:
    x, down, up = random(3, 4), random(4, 2, seed=1), random(2, 5, seed=2)
    expected = loop_matmul(loop_matmul(x.tolist(), down.tolist()), up.tolist())
    np.testing.assert_allclose(later.low_rank_linear(x, down, up)[0], expected, **EXACT)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_softmax(temperature: float) -> None:
    x = random(3, 4)
    by_rows = [loop_softmax(row, temperature) for row in x.tolist()]
    np.testing.assert_allclose(ops.softmax(x, temperature=temperature)[0], by_rows, **EXACT)
    by_columns = np.transpose([loop_softmax(column, temperature) for column in x.T.tolist()])
    np.testing.assert_allclose(ops.softmax(x, axis=0, temperature=temperature)[0], by_columns, **EXACT)


@pytest.mark.parametrize(
    ("options", "may_attend"),
    [
        ({}, lambda i, j: True),
        ({"causal": True}, lambda i, j: j <= i),
        ({"mask": np.array([[True, False, True], [False, True, False], [True, True, True]])},
         lambda i, j: (i, j) not in [(0, 1), (1, 0), (1, 2)]),
    ],
    ids=["plain", "causal", "mask"],
)  # fmt: skip
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(options: dict[str, Any], may_attend: Callable[[int, int], bool], scale: float | None) -> None:
    """d_k is 2 and T is 3: a scale of 1/√T, or of 1/√(H d_k), gives other numbers."""
    q, k, v = 2 * random(3, 2), random(3, 2, seed=1), random(3, 4, seed=2)
    expected = loop_attention(q.tolist(), k.tolist(), v.tolist(), scale or 1 / math.sqrt(2), may_attend)
    np.testing.assert_allclose(ops.attention(q, k, v, scale=scale, **options)[0], expected, **EXACT)


def test_attention_of_a_few_queries_to_more_keys() -> None:
    q, k, v = random(2, 3, 2), random(2, 5, 2, seed=1), random(2, 5, 4, seed=2)
    output, _ = ops.attention(q, k, v, causal=True)
    for b in range(2):  # the three queries are the last of five positions
        expected = loop_attention(q[b].tolist(), k[b].tolist(), v[b].tolist(), 2**-0.5, lambda i, j: j <= i + 2)
        np.testing.assert_allclose(output[b], expected, **EXACT)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_recurrent_cells() -> None:
    """One unit, so that every product is one of two numbers; then a state of zeros, where only the inputs count."""
    h, c, w = 0.5, -0.8, 0.3
    one = np.array
    np.testing.assert_allclose(later.rnn_cell(one([0.7]), one([h]), one([[w]]))[0], [math.tanh(0.7 + h * w)], **EXACT)
    i, f, g, o = (x + h * v for x, v in ((0.1, 0.2), (-0.4, 0.6), (0.9, -1.1), (0.3, 0.5)))
    new_c = sigma(f) * c + sigma(i) * math.tanh(g)
    new, _ = later.lstm_cell(one([0.1, -0.4, 0.9, 0.3]), one([h, c]), one([[0.2, 0.6, -1.1, 0.5]]))
    np.testing.assert_allclose(new, [sigma(o) * math.tanh(new_c), new_c], **EXACT)
    r, z, n = (h * v + b for v, b in ((0.2, 0.1), (0.6, -0.2), (-1.1, 0.3)))
    candidate, keep = math.tanh(0.9 + sigma(0.1 + r) * n), sigma(-0.4 + z)
    new, _ = later.gru_cell(one([0.1, -0.4, 0.9]), one([h]), one([[0.2, 0.6, -1.1]]), one([0.1, -0.2, 0.3]))
    np.testing.assert_allclose(new, [(1 - keep) * candidate + keep * h], **EXACT)
    new, _ = later.rnn_cell(random(4, 3), np.zeros((4, 3)), random(3, 3, seed=1))
    np.testing.assert_allclose(new, np.tanh(random(4, 3)), **EXACT)


def test_an_open_forget_gate_keeps_the_cell_and_its_gradient() -> None:
    """i = 0, f = 1: c' = c, and dc = dc' without a matrix, which is the point of the cell."""
    gates = np.array([-800.0, 800.0, 0.0, -800.0])
    new, backward = later.lstm_cell(gates, np.array([0.3, 5.0]), np.zeros((1, 4)))
    np.testing.assert_array_equal(new, [0.0, 5.0])
    np.testing.assert_array_equal(backward(np.array([0.0, 1.0]))[1], [0.0, 1.0])


@pytest.mark.parametrize(("kernel", "dilation", "causal"), [(3, 1, False), (5, 2, False), (2, 1, True), (3, 2, True)])
def test_convolution(kernel: int, dilation: int, causal: bool) -> None:
    x, weight, bias = random(6, 2), random(kernel, 2, 3, seed=1), random(3, seed=2)
    before = (kernel - 1) * dilation // (1 if causal else 2)
    for t, c in np.ndindex(6, 3):
        places = [(j, t + j * dilation - before) for j in range(kernel)]
        inside = [(j, s) for j, s in places if 0 <= s < 6]
        wanted = bias[c] + sum(x[s, i] * weight[j, i, c] for j, s in inside for i in range(2))
        np.testing.assert_allclose(later.convolution(x, weight, bias, dilation, causal)[0][t, c], wanted, **EXACT)


def test_additive_attention() -> None:
    q, k, v, w = random(3, 2), random(4, 2, seed=1), random(4, 5, seed=2), random(2, seed=3)
    rows = []
    for query in q:
        scores = [sum(w[c] * math.tanh(query[c] + key[c]) for c in range(2)) for key in k]
        rows.append([sum(p * v[j][c] for j, p in enumerate(loop_softmax(scores))) for c in range(5)])
    np.testing.assert_allclose(later.additive_attention(q, k, v, w)[0], rows, **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("radius", [0, 1, 2, 3, 5, 6, 20])
def test_local_attention_is_attention_under_a_local_mask(radius: int, causal: bool) -> None:
    """Values and gradients, also with padding in the middle, where some queries see nothing."""
    q, k, v, dy = random(2, 7, 3), random(2, 7, 3, seed=1), random(2, 7, 4, seed=2), random(2, 7, 4, seed=3)
    real = np.array([[1, 1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1]], dtype=bool)
    y, backward = later.local_attention(q, k, v, radius, real, causal)
    mask = local_mask(7, radius) & real[:, None, :]
    expected, expected_backward = ops.attention(q, k, v, mask, causal)
    np.testing.assert_allclose(y, expected, **EXACT)
    for mine, theirs in zip(backward(dy), expected_backward(dy), strict=True):
        np.testing.assert_allclose(mine, theirs, **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tile", [1, 3, 64])
@pytest.mark.parametrize("lengths", [(5, 7), (7, 7), (7, 5)], ids=str)
def test_flash_attention_is_attention(lengths: tuple[int, int], tile: int, causal: bool) -> None:
    """Of unequal lengths, with keys hidden, all keys of the second sequence, and queries before every key."""
    t_q, t_k = lengths
    q, k, v = random(2, t_q, 3), random(2, t_k, 3, seed=1), random(2, t_k, 4, seed=2)
    real = np.stack([np.arange(t_k) % 4 != 1, np.zeros(t_k, bool)])
    y, backward = later.flash_attention(q, 30 * k, v, real, causal, tile=tile)  # where exp would overflow
    wanted, wanted_backward = ops.attention(q, 30 * k, v, real[:, None], causal)
    np.testing.assert_allclose(y, wanted, rtol=1e-9, atol=1e-12)
    assert not y[1].any()
    dy = random(*y.shape, seed=3)
    for gradient, expected in zip(backward(dy), wanted_backward(dy), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-10)


def test_flash_attention_keeps_one_number_for_each_query() -> None:
    """Beside its output, which the pullback reads as well; attention keeps 256² weights."""
    x = random(256, 8).astype(np.float32)
    kept = {}
    for op in (later.flash_attention, ops.attention):
        op(x, x, x)  # what only a first call keeps does not count
        tracemalloc.start()
        result = op(x, x, x)
        kept[op.__name__] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del result
    assert 256 * 9 * 4 <= kept["flash_attention"] < 256 * 9 * 4 + 4000
    assert kept["attention"] > 256 * 256 * 4


def test_linear_attention_is_the_same_as_recurrence_and_as_product() -> None:
    q, k, v, dy = random(2, 7, 3), random(2, 7, 3, seed=1), random(2, 7, 4, seed=2), random(2, 7, 4, seed=3)
    runs = [later.linear_attention(q, k, v, block=block) for block in (1, 3, 7, 64)]
    for y, backward in runs[1:]:
        np.testing.assert_allclose(y, runs[0][0], rtol=1e-12)
        for gradient, expected in zip(backward(dy), runs[0][1](dy), strict=True):
            np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_linear_attention_of_padding_is_zero() -> None:
    x = random(2, 5, 3)
    y, backward = later.linear_attention(x, x, x, np.array([[False] * 5, [False, True, True, False, True]]))
    assert not y[0].any() and not y[1, 0].any() and y[1, 1:].all()
    assert not any(gradient[0].any() for gradient in backward(x))


def test_a_sink_takes_weight_and_gives_nothing() -> None:
    """With scores of 0 for two keys and a sink of log 2 half of the weight is left; a hidden row outputs zeros."""
    q, k, v = np.zeros((1, 2, 3)), random(1, 2, 3), random(1, 2, 4, seed=1)
    y, _ = later.sink_attention(q, k, v, np.log([2.0]), np.array([[True, True], [False, False]]))
    np.testing.assert_allclose(y[0], [v[0].mean(axis=0) / 2, np.zeros(4)])


def test_local_attention_computes_no_score_that_is_far_away() -> None:
    """A sequence of 20,000 tokens has 4·10⁸ pairs, 3.2 GB as float64; its blocks of 8 x 24 take 4 MB."""
    x = random(20_000, 2)
    tracemalloc.start()
    later.local_attention(x, x, x, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize("k", [1, 2, 4])
def test_top_k_gates(k: int) -> None:
    """A softmax over the k largest; the others get 0, and no gradient."""
    logits, dgates = random(5, 4), random(5, 4, seed=1)
    gates, backward = later.top_k_gates(logits, k)
    for row, got, of_row in zip(logits, gates, backward(dgates), strict=True):
        best = sorted(range(4), key=lambda i, row=row: -row[i])[:k]
        shared = dict(zip(best, loop_softmax([row[i] for i in best]), strict=True))
        np.testing.assert_allclose(got, [shared.get(i, 0.0) for i in range(4)], **EXACT)
        assert all(of_row[i] == 0.0 for i in range(4) if i not in best)


def test_of_equal_scores_the_first_is_chosen() -> None:
    gates, _ = later.top_k_gates(np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0]]), 2)
    expected = [[0.5, 0.5, 0.0, 0.0], [*loop_softmax([0.0, 2.0]), 0.0, 0.0]]
    np.testing.assert_allclose(gates, expected, **EXACT)


def test_one_expert_alone_teaches_the_router_nothing() -> None:
    gates, backward = later.top_k_gates(random(3, 4), 1)
    assert sorted(gates[0]) == [0.0, 0.0, 0.0, 1.0]
    assert not backward(random(3, 4, seed=1)).any()


def test_load_balance() -> None:
    """By the formula; k where all shares are equal; k·E/k, which is E, where all tokens choose the same k for sure."""
    logits = random(6, 3)
    best = [sorted(range(3), key=lambda i, row=row: -row[i])[:2] for row in logits]
    shares = [sum(i in chosen for chosen in best) / 6 for i in range(3)]
    means = [sum(loop_softmax(row)[i] for row in logits.tolist()) / 6 for i in range(3)]
    expected = 3 * sum(f * p for f, p in zip(shares, means, strict=True))
    np.testing.assert_allclose(later.load_balance(logits)[0], expected, **EXACT)
    np.testing.assert_allclose(later.load_balance(10 * np.eye(4)[[0, 1, 2, 3]], 1)[0], 1.0, **EXACT)
    np.testing.assert_allclose(later.load_balance(np.array([[800.0, 0.0, -800.0]] * 5), 2)[0], 3.0, **EXACT)


@pytest.mark.parametrize("k", [0, 1, 7, 100, -3])
@pytest.mark.parametrize(("width", "base"), [(2, 10.0), (8, 10000.0), (64, 100.0)])
def test_a_shift_of_positions_is_a_linear_map(k: int, width: int, base: float) -> None:
    """One matrix for all positions; it is a rotation, and two shifts are one."""
    shift = shift_of_positions(k, width, base)
    table = ops.sinusoidal_positions(300, width, base)
    first = max(0, -k)
    np.testing.assert_allclose(table[first:150] @ shift, table[first + k : 150 + k], rtol=0, atol=1e-12)
    np.testing.assert_allclose(shift @ shift.T, np.eye(width), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        shift @ shift_of_positions(5, width, base), shift_of_positions(k + 5, width, base), rtol=0, atol=1e-12
    )
    with pytest.raises(ValueError, match=r"shift_of_positions: width must be even .* got 5"):
        shift_of_positions(1, 5)


def test_layer_norm() -> None:
    x, gamma, beta = random(3, 4), random(4, seed=1), random(4, seed=2)
    expected = [loop_layer_norm(row, gamma.tolist(), beta.tolist(), 0.1) for row in x.tolist()]
    np.testing.assert_allclose(ops.layer_norm(x, gamma, beta, eps=0.1)[0], expected, **EXACT)


@pytest.mark.parametrize(
    ("norm", "epsilon"),
    [("layer_norm", 1e-5), ("layer_norm_over_axes", 1e-5), ("rms_norm", 1e-6), ("rms_norm_over_axes", 1e-6)],
)
def test_epsilon_unless_given_is_that_of_the_docstring(norm: str, epsilon: float) -> None:
    """In a row as small as √ε it is half of what is below the root: PyTorch has 1e-5, Llama 1e-6."""
    a, gamma = math.sqrt(epsilon), np.ones(2)
    y, _ = getattr(later if "axes" in norm else ops, norm)(
        np.array([[a, -a]]), gamma, *([np.zeros(2)] if "layer" in norm else [])
    )
    np.testing.assert_allclose(y, [[math.sqrt(0.5), -math.sqrt(0.5)]], **EXACT)


def test_layer_norm_of_a_row_of_two() -> None:
    """The row (1, 3) has mean 2 and variance 1 (dividing by n, not n - 1); ε is added inside the root."""
    y, _ = ops.layer_norm(np.array([[1.0, 3.0]]), np.array([1.0, 1.0]), np.array([0.0, 0.0]))
    np.testing.assert_allclose(y, [[-1 / math.sqrt(1.00001), 1 / math.sqrt(1.00001)]], **EXACT)


def test_rms_norm() -> None:
    x, gamma = random(3, 4), random(4, seed=1)
    expected = [loop_rms_norm(row, gamma.tolist(), 0.1) for row in x.tolist()]
    np.testing.assert_allclose(ops.rms_norm(x, gamma, eps=0.1)[0], expected, **EXACT)
    y, _ = ops.rms_norm(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(y, [3 / math.sqrt(12.500001), 8 / math.sqrt(12.500001)], **EXACT)


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        (ops.relu, lambda x: x if x > 0 else 0.0),
        (ops.gelu, lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2))),
        (lambda x: ops.gelu(x, approximate="tanh"),
         lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        (ops.silu, lambda x: x / (1 + math.exp(-x))),
    ],
    ids=["relu", "gelu", "gelu tanh", "silu"],
)  # fmt: skip
def test_activations(op: Callable[..., Any], formula: Callable[[float], float]) -> None:
    x = [-30.0, -3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 30.0]
    np.testing.assert_allclose(op(np.array(x))[0], [formula(value) for value in x], rtol=1e-12, atol=1e-15)


def test_gated() -> None:
    gate, x = random(3, 4), random(3, 4, seed=1)
    pairs = [list(zip(*rows, strict=True)) for rows in zip(gate.tolist(), x.tolist(), strict=True)]
    with_silu = [[g / (1 + math.exp(-g)) * value for g, value in row] for row in pairs]
    np.testing.assert_allclose(later.gated(gate, x)[0], with_silu, **EXACT)
    with_relu = [[max(g, 0.0) * value for g, value in row] for row in pairs]
    np.testing.assert_allclose(later.gated(gate, x, activation=ops.relu)[0], with_relu, **EXACT)


def test_split_and_merge_heads() -> None:
    x = random(2, 3, 8)  # B 2, T 3, two heads of four
    heads, _ = ops.split_heads(x, 2)
    assert heads.shape == (2, 2, 3, 4)
    for b, h, t, c in np.ndindex(heads.shape):
        assert heads[b, h, t, c] == x[b, t, 4 * h + c]
    assert np.shares_memory(heads, x)
    merged, _ = ops.merge_heads(heads)
    np.testing.assert_array_equal(merged, x)
    assert np.shares_memory(merged, x), "merging what was split needs no copy"


def test_repeat_heads() -> None:
    x, dy = random(2, 3, 4, 5), random(2, 6, 4, 5, seed=1)
    y, backward = later.repeat_heads(x, 2)
    for b, head in np.ndindex(2, 6):
        np.testing.assert_array_equal(y[b, head], x[b, head // 2])
    np.testing.assert_allclose(backward(dy), dy[:, ::2] + dy[:, 1::2], **EXACT)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved: bool) -> None:
    """Each pair as a complex number, times a complex number of length 1."""
    x, positions = random(2, 3, 6), np.array([[4, 5, 6], [0, 0, 9]])
    y, _ = later.rotary(x, base=100.0, interleaved=interleaved, positions=positions)
    for b, t, pair in np.ndindex(2, 3, 3):
        one, two = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 3)
        angle = positions[b, t] / 100 ** (2 * pair / 6)
        turned = complex(x[b, t, one], x[b, t, two]) * complex(math.cos(angle), math.sin(angle))
        np.testing.assert_allclose([y[b, t, one], y[b, t, two]], [turned.real, turned.imag], **EXACT)
    np.testing.assert_array_equal(later.rotary(x, 4)[0], later.rotary(x, positions=np.arange(4, 7))[0])


def test_products_of_rotated_vectors_depend_on_their_distance_alone() -> None:
    q, k = random(1, 8), random(1, 8, seed=1)
    products = [(later.rotary(q, m)[0] * later.rotary(k, m + 3)[0]).sum() for m in (0, 5, 40)]
    np.testing.assert_allclose(products, products[0], rtol=1e-12)


@pytest.mark.parametrize(
    "both_ways, buckets",
    [
        # of 8 buckets up to distance 16, by the formula of the paper's code: one each for 0 and 1 (0 to 3 back only)
        (True, {-40: 3, -16: 3, -6: 3, -5: 2, -3: 2, -2: 2, -1: 1, 0: 0, 1: 5, 2: 6, 5: 6, 6: 7, 16: 7}),
        (False, {-40: 7, -16: 7, -12: 7, -11: 6, -8: 6, -7: 5, -6: 5, -5: 4, -4: 4, -3: 3, -1: 1, 0: 0, 1: 0, 9: 0}),
    ],
)
def test_relative_bias(both_ways: bool, buckets: dict[int, int]) -> None:
    table = random(8, 3)
    bias, backward = later.relative_bias(table, 50, 50, both_ways, 16)
    for distance, bucket in buckets.items():
        i, j = max(0, -distance), max(0, distance)
        np.testing.assert_array_equal(bias[:, i, j], table[bucket], err_msg=str(distance))
    last, _ = later.relative_bias(table, 1, 50, both_ways, 16)
    np.testing.assert_array_equal(last[:, 0], bias[:, -1])
    counts = backward(np.ones_like(bias))
    assert counts.sum() == 3 * 50 * 50
    assert counts[0, 0] == (50 if both_ways else 50 * 51 / 2)  # distance 0, and looking back only also all ahead


def test_bias_of_attention() -> None:
    """A bias of -inf is a mask; one that is the same for every key changes nothing."""
    q, k, v = random(2, 4, 3), random(2, 5, 3, seed=1), random(2, 5, 6, seed=2)
    hidden = np.where(SEEN, 0.0, -np.inf)
    np.testing.assert_allclose(ops.attention(q, k, v, bias=hidden)[0], ops.attention(q, k, v, mask=SEEN)[0], rtol=1e-12)
    same, _ = ops.attention(q, k, v, bias=random(4, 1, seed=3))
    np.testing.assert_allclose(same, ops.attention(q, k, v)[0], rtol=1e-12)


def test_embedding() -> None:
    table = random(5, 3)
    y, backward = ops.embedding(np.array([[1, 4, 1], [0, 1, 4]]), table)
    np.testing.assert_array_equal(y, [[table[1], table[4], table[1]], [table[0], table[1], table[4]]])
    dy = random(2, 3, 3, seed=1)
    by_token = [dy[1, 0], dy[0, 0] + dy[0, 2] + dy[1, 1], 0 * dy[0, 0], 0 * dy[0, 0], dy[0, 1] + dy[1, 2]]
    np.testing.assert_allclose(backward(dy), by_token, **EXACT)


def test_learned_positions() -> None:
    table = random(5, 3)
    y, backward = ops.learned_positions(table, 2, start=1)
    np.testing.assert_array_equal(y, [table[1], table[2]])
    dy = random(2, 3, seed=1)
    np.testing.assert_array_equal(backward(dy), [[0, 0, 0], dy[0], dy[1], [0, 0, 0], [0, 0, 0]])


def test_sinusoidal_positions() -> None:
    table = ops.sinusoidal_positions(100, 6)
    assert table.shape == (100, 6) and table.dtype == np.float64
    for position in (0, 1, 7, 99):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(table[position, [2 * i, 2 * i + 1]], [math.sin(angle), math.cos(angle)], **EXACT)


def test_sinusoidal_positions_with_base_100() -> None:
    """Width 4 and base 100: the second pair turns at a tenth of the first one's speed."""
    by_hand = [
        [0.0, 1.0, 0.0, 1.0],
        [0.84147098, 0.54030231, 0.09983342, 0.99500417],
        [0.90929743, -0.41614684, 0.19866933, 0.98006658],
        [0.14112001, -0.98999250, 0.29552021, 0.95533649],
    ]
    np.testing.assert_allclose(ops.sinusoidal_positions(4, 4, base=100), by_hand, atol=5e-9, rtol=0)
    assert ops.sinusoidal_positions(4, 4, base=100, dtype="float32").dtype == np.float32


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignore_index", [-100, 0])
def test_cross_entropy(ignore_index: int, smoothing: float, reduction: str) -> None:
    logits, targets = 2 * random(5, 4), [0, 3, ignore_index, 2, 0]
    expected = loop_cross_entropy(logits.tolist(), targets, ignore_index, smoothing, reduction)
    loss, _ = ops.cross_entropy(logits, np.array(targets), ignore_index, smoothing, reduction)
    assert loss.shape == ()
    np.testing.assert_allclose(loss, expected, **EXACT)


def test_cross_entropy_of_equal_logits_is_log_of_their_number() -> None:
    loss, backward = ops.cross_entropy(np.zeros((2, 3, 8)), np.array([[0, 1, 2], [5, 6, 7]]))
    np.testing.assert_allclose(loss, math.log(8), **EXACT)
    dlogits = backward()
    np.testing.assert_allclose(dlogits[0, 1], np.array([1, -7, 1, 1, 1, 1, 1, 1]) / 8 / 6, **EXACT)


def test_cross_entropy_where_no_position_counts() -> None:
    loss, backward = ops.cross_entropy(random(3, 4), np.full(3, -100))
    assert loss == 0.0
    assert not backward(1.0).any()


def test_mean_pool() -> None:
    x = random(2, 3, 4)
    by_hand = [[sum(x[b, t, c].item() for t in range(3)) / 3 for c in range(4)] for b in range(2)]
    np.testing.assert_allclose(ops.mean_pool(x)[0], by_hand, **EXACT)
    y, backward = ops.mean_pool(x, mask=np.array([[True, False, True], [False, False, False]]))
    np.testing.assert_allclose(y, [(x[0, 0] + x[0, 2]) / 2, [0, 0, 0, 0]], **EXACT)
    dy = random(2, 4, seed=1)
    half, none = dy[0] / 2, np.zeros(4)
    np.testing.assert_allclose(backward(dy), [[half, none, half], [none, none, none]], **EXACT)


# ---------------------------------------------------------------------------------------------------------------------
# Extremes.


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax_of_extreme_scores(dtype: str) -> None:
    x = np.array([[1e4, 0, -1e4], [-1e4, -1e4, -1e4], [-np.inf, 2, 2], [-np.inf, -np.inf, -np.inf]], dtype=dtype)
    y, backward = ops.softmax(x)
    third = np.array(1, dtype) / 3
    np.testing.assert_array_equal(y, np.array([[1, 0, 0], [third] * 3, [0, 0.5, 0.5], [0, 0, 0]], dtype=dtype))
    dx = backward(np.array([[1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 2, 3]], dtype=dtype))
    tolerance = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(dx, [[0, 0, 0], [-1 / 3, 0, 1 / 3], [0, -0.5, 0.5], [0, 0, 0]], atol=tolerance, rtol=0)


def test_cross_entropy_of_huge_logits() -> None:
    logits = np.array([[1e4, 0.0], [-1e4, 1e4]])
    loss, backward = ops.cross_entropy(logits, np.array([1, 1]), reduction="sum")
    assert loss == 1e4
    np.testing.assert_array_equal(backward(), [[1, -1], [0, 0]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_query_with_no_key_gives_zeros_and_zero_gradients(dtype: str) -> None:
    q, k, v = (random(2, t, d, seed=t).astype(dtype) for t, d in [(3, 2), (5, 2), (5, 4)])
    doutput = random(2, 3, 4, seed=9).astype(dtype)
    mask = np.ones((2, 3, 5), dtype=bool)
    mask[0, 1] = False  # one query of the first sequence
    mask[1] = False  # every query of the second
    mask[:, :, 4] = False  # and a key that nobody sees
    output, backward = ops.attention(q, k, v, mask=mask)
    dq, dk, dv = backward(doutput)
    for array in (output, dq, dk, dv):
        assert array.dtype == dtype
        assert np.isfinite(array).all()
        assert not array[1].any()
        assert array[0].any()
    assert not output[0, 1].any() and not dq[0, 1].any()
    assert not dk[0, 4].any() and not dv[0, 4].any()
    assert output[0, [0, 2]].all() and dv[0, :4].all()

    alone, alone_backward = ops.attention(q[:1, [0, 2]], k[:1, :4], v[:1, :4])  # what was masked, taken away
    tolerance = 10 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(output[:1, [0, 2]], alone, rtol=tolerance, atol=tolerance)
    for whole, rest in zip((dq[:1, [0, 2]], dk[:1, :4], dv[:1, :4]), alone_backward(doutput[:1, [0, 2]]), strict=True):
        np.testing.assert_allclose(whole, rest, rtol=tolerance, atol=tolerance)


def test_causal_queries_before_the_first_key_give_zeros() -> None:
    output, backward = ops.attention(random(5, 2), random(3, 2, seed=1), random(3, 4, seed=2), causal=True)
    dq, _, _ = backward(random(5, 4, seed=3))
    assert not output[:2].any() and not dq[:2].any()
    assert output[2:].all() and dq[3:].all()


# ---------------------------------------------------------------------------------------------------------------------
# Who depends on whom: move one input, see which outputs move.


@pytest.mark.parametrize(
    "mask",
    [
        causal_mask(6),
        local_mask(6, 1),
        np.broadcast_to(padding_mask([4], t_k=6)[0], (6, 6)),
        causal_mask(6) & local_mask(6, 2) & padding_mask([5], t_k=6)[0],
        causal_mask(3, 6),
        np.random.default_rng(5).random((4, 6)) < 0.5,
    ],
    ids=["causal", "local", "padding", "all three", "causal with a cache", "any"],
)
def test_only_allowed_keys_matter(mask: np.ndarray) -> None:
    t_q, t_k = mask.shape
    q, k, v = random(t_q, 2), random(t_k, 2, seed=1), random(t_k, 4, seed=2)
    output, backward = ops.attention(q, k, v, mask=mask)
    moved = np.zeros((t_q, t_k), dtype=bool)
    for j in range(t_k):
        other_k, other_v = k.copy(), v.copy()
        other_k[j] += 1.0
        other_v[j] -= 1.0
        moved[:, j] = (ops.attention(q, other_k, other_v, mask=mask)[0] != output).any(axis=-1)
    np.testing.assert_array_equal(moved, mask)

    reached = np.zeros((t_q, t_k), dtype=bool)
    for i in range(t_q):  # and the gradient of query i's output reaches exactly the keys it saw
        doutput = np.zeros_like(output)
        doutput[i] = [1.0, -2.0, 3.0, 0.5]
        dq, _, dv = backward(doutput)
        reached[i] = dv.any(axis=-1)
        assert not np.delete(dq, i, axis=0).any()
    np.testing.assert_array_equal(reached, mask)


@pytest.mark.parametrize(("t_q", "t_k"), [(4, 4), (2, 5), (5, 2)])
def test_causal_option_is_the_causal_mask(t_q: int, t_k: int) -> None:
    q, k, v = random(2, t_q, 3), random(2, t_k, 3, seed=1), random(2, t_k, 4, seed=2)
    padding = padding_mask([t_k, t_k - 1])
    by_option, _ = ops.attention(q, k, v, mask=padding, causal=True)
    by_mask, _ = ops.attention(q, k, v, mask=padding & causal_mask(t_q, t_k))
    np.testing.assert_array_equal(by_option, by_mask)


def test_a_token_meets_those_of_other_positions_in_its_own_head() -> None:
    """Splitting by reshape alone would cut the sequence: head 0 would hold the first tokens, head 1 the last."""
    x = random(4, 6)
    heads, _ = ops.split_heads(x, 2)
    merged, _ = ops.merge_heads(ops.attention(heads, heads, heads)[0])
    x[3, :3] += 1.0  # the last token's share of head 0
    heads, _ = ops.split_heads(x, 2)
    moved = ops.merge_heads(ops.attention(heads, heads, heads)[0])[0] != merged
    np.testing.assert_array_equal(moved, np.array([[True] * 3 + [False] * 3] * 4))


# ---------------------------------------------------------------------------------------------------------------------
# Dropout.


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_expected_value(rate: float) -> None:
    n = 200_000
    y, backward = ops.dropout(np.ones(n), rate, np.random.default_rng(0))
    kept = y != 0.0
    np.testing.assert_allclose(y[kept], 1 / (1 - rate), **EXACT)
    assert abs(kept.mean() - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / n)  # four standard deviations
    dy = random(n)
    np.testing.assert_allclose(backward(dy), dy * kept / (1 - rate), **EXACT)


def test_dropout_follows_the_generator() -> None:
    x = random(50, 20)
    rng = np.random.default_rng(3)
    first, first_backward = ops.dropout(x, 0.5, rng)
    second, _ = ops.dropout(x, 0.5, rng)
    again, _ = ops.dropout(x, 0.5, np.random.default_rng(3))
    np.testing.assert_array_equal(first, again)
    assert (first != second).any(), "a second call draws its own mask"
    np.testing.assert_array_equal(first_backward(x), first)  # its pullback still holds the first call's mask


@pytest.mark.parametrize(("rate", "rng"), [(0.5, None), (0.0, np.random.default_rng(0)), (0.0, None)])
def test_no_dropout(rate: float, rng: np.random.Generator | None) -> None:
    x, dy = random(3, 4), random(3, 4, seed=1)
    y, backward = ops.dropout(x, rate, rng)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(backward(dy), dy)
    q, k, v, doutput = random(3, 2), random(3, 2, seed=1), random(3, 4, seed=2), random(3, 4, seed=3)
    output, backward = ops.attention(q, k, v, dropout=rate, rng=rng)
    plain, plain_backward = ops.attention(q, k, v)
    np.testing.assert_array_equal(output, plain)
    for gradient, plain_gradient in zip(backward(doutput), plain_backward(doutput), strict=True):
        np.testing.assert_array_equal(gradient, plain_gradient)


def test_attention_drops_whole_weights_not_outputs() -> None:
    """With values of one and one key alone, an output is 0 or 1 / (1 - rate), the same in every column."""
    q, k, v = random(40, 2), random(1, 2, seed=1), np.ones((1, 4))
    output, _ = ops.attention(q, k, v, dropout=0.75, rng=np.random.default_rng(0))
    assert set(output.ravel().tolist()) == {0.0, 4.0}
    assert (output == output[:, :1]).all()


# ---------------------------------------------------------------------------------------------------------------------
# Promises that every op keeps.

IDS = np.array([[1, 0, 3], [1, 1, 2]])
TARGETS = np.array([[1, -100, 3], [0, 2, 2]])
REAL = np.array([[True, False, True], [False, False, False]])
SEEN = np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=bool)

# name: (shapes of the differentiable inputs, call). Options are float64 scalars of NumPy wherever an op takes a number.
CALLS: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any]]] = {
    "linear": ([(2, 3, 4), (4, 5), (5,)], ops.linear),
    "linear without bias": ([(2, 3, 4), (4, 5)], ops.linear),
    "low_rank_linear": ([(2, 3, 4), (4, 2), (2, 5)], later.low_rank_linear),
    "softmax": ([(2, 3, 4)], lambda x: ops.softmax(x, 1, np.float64(2))),
    "attention": ([(2, 2, 3), (2, 3, 3), (2, 3, 4)], ops.attention),
    "attention with everything": (
        [(2, 4, 3), (2, 5, 3), (2, 5, 6)],
        lambda q, k, v: ops.attention(
            q, k, v, SEEN, causal=True, scale=1 / np.sqrt(64), dropout=np.float64(0.5), rng=np.random.default_rng(0)
        ),
    ),
    "split_heads": ([(2, 3, 4)], lambda x: ops.split_heads(x, 2)),
    "merge_heads": ([(2, 3, 4, 5)], ops.merge_heads),
    "attention with a bias": (
        [(2, 2, 3), (2, 3, 3), (2, 3, 4), (2, 3)],
        lambda q, k, v, b: ops.attention(q, k, v, bias=b),
    ),
    "repeat_heads": ([(2, 3, 4, 5)], lambda x: later.repeat_heads(x, 2)),
    "rotary": ([(2, 3, 4)], lambda x: later.rotary(x, 2, np.float64(100))),
    "rotate": ([(2, 3, 4), (3, 1), (3, 1)], later.rotate),
    "gru_cell_reset_first": ([(2, 9), (2, 3), (3, 9)], later.gru_cell_reset_first),
    "gated_delta": (
        [(2, 3, 4), (2, 3, 4), (2, 3, 5), (2, 3, 4), (2, 3)],
        lambda q, k, v, decay, beta: later.gated_delta(q, k, v, -abs(decay), beta, scale=1 / np.sqrt(64)),
    ),
    "layer_norm_over_axes": ([(3, 2, 4), (2, 4), (2, 4)], lambda *a: later.layer_norm_over_axes(*a, np.float64(1e-5))),
    "rms_norm_over_axes": ([(3, 2, 4), (2, 4)], lambda *a: later.rms_norm_over_axes(*a, np.float64(1e-6))),
    "weighted_cross_entropy": (
        [(2, 3, 5), (5,)],
        lambda x, w: later.weighted_cross_entropy(x, np.array([[1, -100, 4], [4, 0, 2]]), w**2),
    ),
    "relative_bias": ([(8, 3)], lambda table: later.relative_bias(table, 3, 5)),
    "alibi": ([(3,)], lambda slopes: later.alibi(slopes, 3, 5)),
    "rnn_cell": ([(2, 3), (2, 3), (3, 3)], later.rnn_cell),
    "lstm_cell": ([(2, 12), (2, 6), (3, 12)], later.lstm_cell),
    "gru_cell": ([(2, 9), (2, 3), (3, 9), (9,)], later.gru_cell),
    "convolution": ([(2, 5, 3), (3, 3, 4), (4,)], lambda x, w, b: later.convolution(x, w, b, dilation=2)),
    "additive_attention": (
        [(2, 4, 3), (2, 5, 3), (2, 5, 6), (3,)],
        lambda q, k, v, w: later.additive_attention(q, k, v, w, SEEN),
    ),
    "local_attention": (
        [(2, 5, 3), (2, 5, 3), (2, 5, 4)],
        lambda q, k, v: later.local_attention(
            q, k, v, 2, scale=1 / np.sqrt(64), dropout=np.float64(0.5), rng=np.random.default_rng(0)
        ),
    ),
    "flash_attention": (
        [(2, 4, 3), (2, 5, 3), (2, 5, 6)],
        lambda q, k, v: later.flash_attention(q, k, v, causal=True, scale=1 / np.sqrt(64), tile=2),
    ),
    "linear_attention": ([(2, 5, 3), (2, 5, 3), (2, 5, 4)], lambda q, k, v: later.linear_attention(q, k, v, block=2)),
    "sink_attention": (
        [(2, 4, 3), (2, 5, 3), (2, 5, 6), (2,)],
        lambda q, k, v, sink: later.sink_attention(q, k, v, sink, SEEN, scale=1 / np.sqrt(64)),
    ),
    "top_k_gates": ([(2, 3, 4)], later.top_k_gates),
    "load_balance": ([(2, 3, 4)], later.load_balance),
    "layer_norm": ([(2, 3, 4), (4,), (4,)], lambda x, gamma, beta: ops.layer_norm(x, gamma, beta, np.float64(1e-5))),
    "rms_norm": ([(2, 3, 4), (4,)], lambda x, gamma: ops.rms_norm(x, gamma, eps=np.float64(1e-6))),
    "relu": ([(2, 3)], ops.relu),
    "gelu": ([(2, 3)], ops.gelu),
    "gelu tanh": ([(2, 3)], lambda x: ops.gelu(x, approximate="tanh")),
    "silu": ([(2, 3)], ops.silu),
    "tanh": ([(2, 3)], ops.tanh),
    "gated": ([(2, 3), (2, 3)], lambda gate, x: later.gated(gate, x, activation=ops.gelu)),
    "embedding": ([(4, 5)], lambda table: ops.embedding(IDS, table)),
    "learned_positions": ([(4, 5)], lambda table: ops.learned_positions(table, 2, start=1)),
    "dropout": ([(2, 3, 4)], lambda x: ops.dropout(x, np.float64(0.5), np.random.default_rng(0))),
    "dropout without a generator": ([(2, 3, 4)], lambda x: ops.dropout(x, np.float64(0.5), None)),
    "cross_entropy": ([(2, 3, 4)], lambda x: ops.cross_entropy(x, TARGETS, label_smoothing=np.float64(0.1))),
    "cross_entropy sum": ([(2, 3, 4)], lambda x: ops.cross_entropy(x, TARGETS, reduction="sum")),
    "mean_pool": ([(2, 3, 4)], ops.mean_pool),
    "mean_pool with a mask": ([(2, 3, 4)], lambda x: ops.mean_pool(x, REAL)),
}


def frozen(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Arrays that raise when anything writes to them."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def test_every_op_has_a_call() -> None:
    assert {name.split()[0] for name in CALLS} == TABLED


def test_every_idea_in_a_folder_has_tests_of_its_own_that_call_its_ops() -> None:
    assert {"softcap", "softcapped_attention"} <= IDEAS.keys()
    for name, folder in IDEAS.items():
        tests = Path(__file__).with_name(f"test_{folder}.py")
        assert tests.is_file(), f"{name}: {tests.name} is missing"
        assert f"{name}(" in tests.read_text(encoding="utf-8"), f"{tests.name} does not call {name}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_promises(name: str, dtype: str) -> None:
    """The dtype stays, gradients have their inputs' shapes, nothing is written to, a pullback may be called twice."""
    shapes, call = CALLS[name]
    inputs = frozen([random(*shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)])
    before = [x.copy() for x in inputs]

    y, backward = call(*inputs)
    y_before = y.copy()
    assert y.dtype == dtype
    (dy,) = frozen([np.array(random(*y.shape, seed=9), dtype=dtype)])
    gradients = backward(dy)
    gradients = list(gradients) if isinstance(gradients, tuple) else [gradients]
    assert [gradient.shape for gradient in gradients] == shapes
    assert [gradient.dtype for gradient in gradients] == [dtype] * len(shapes)
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in gradients)

    first = [gradient.copy() for gradient in gradients]
    backward(np.array(-2 * dy))  # another gradient in between must leave no trace
    again = backward(dy)
    again = again if isinstance(again, tuple) else (again,)
    for gradient, kept, repeated in zip(gradients, first, again, strict=True):
        np.testing.assert_array_equal(gradient, kept)
        np.testing.assert_array_equal(repeated, kept)
    np.testing.assert_array_equal(y, y_before)
    for x, kept in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(x, kept)


# ---------------------------------------------------------------------------------------------------------------------
# Properties over random sizes.

sizes = st.integers(1, 5)
leading = st.lists(st.integers(1, 3), max_size=3).map(tuple)
dtypes = st.sampled_from(["float32", "float64"])
seeds = st.integers(0, 2**32 - 1)
examples = settings(max_examples=40, derandomize=True)


def draw(seed: int, dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def assert_fits(gradients: Any, inputs: list[np.ndarray]) -> None:
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert [(g.shape, g.dtype) for g in gradients] == [(x.shape, x.dtype) for x in inputs]


@examples
@given(leading, sizes, sizes, dtypes, seeds)
def test_linear_is_linear(batch: tuple[int, ...], d_in: int, d_out: int, dtype: str, seed: int) -> None:
    x, weight, bias, dy = draw(seed, dtype, (*batch, d_in), (d_in, d_out), (d_out,), (*batch, d_out))
    y, backward = ops.linear(x, weight, bias)
    assert y.shape == (*batch, d_out) and y.dtype == dtype
    assert_fits(backward(dy), [x, weight, bias])
    tolerance = 200 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(ops.linear(2 * x, weight)[0], 2 * (y - bias), atol=tolerance, rtol=tolerance)


@examples
@given(leading, sizes, sizes, dtypes, seeds, st.data())
def test_softmax_is_a_distribution(
    batch: tuple[int, ...], rows: int, n: int, dtype: str, seed: int, data: st.DataObject
) -> None:
    x, dy = draw(seed, dtype, (*batch, rows, n), (*batch, rows, n))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    y, backward = ops.softmax(x, axis)
    dx = backward(dy)
    assert y.shape == x.shape and y.dtype == dtype
    assert_fits(dx, [x])
    tolerance = 20 * float(np.finfo(dtype).eps)
    assert (y >= 0).all()
    np.testing.assert_allclose(y.sum(axis), 1.0, rtol=tolerance)
    np.testing.assert_allclose(dx.sum(axis), 0.0, atol=5 * tolerance)  # the scores can be shifted at no cost


@examples
@given(leading, st.tuples(sizes, sizes, sizes, sizes), st.booleans(), dtypes, seeds)
def test_attention_takes_means_of_values(
    batch: tuple[int, ...], dims: tuple[int, int, int, int], causal: bool, dtype: str, seed: int
) -> None:
    t_q, t_k, d_k, d_v = dims
    t_k += t_q * causal  # so that every query sees a key
    q, k, v, doutput = draw(seed, dtype, (*batch, t_q, d_k), (*batch, t_k, d_k), (*batch, t_k, d_v), (*batch, t_q, d_v))
    output, backward = ops.attention(q, k, v, causal=causal)
    assert output.shape == (*batch, t_q, d_v) and output.dtype == dtype
    assert_fits(backward(doutput), [q, k, v])
    margin = 20 * float(np.finfo(dtype).eps) * (1 + abs(v).max())
    assert (output <= v.max(axis=-2, keepdims=True) + margin).all()
    assert (output >= v.min(axis=-2, keepdims=True) - margin).all()
    if not causal:  # keys have no order of their own
        shuffled, _ = ops.attention(q, np.flip(k, axis=-2), np.flip(v, axis=-2))
        np.testing.assert_allclose(shuffled, output, atol=margin)


@examples
@given(leading, sizes, sizes, sizes, dtypes, seeds)
def test_heads_are_each_others_inverse_and_adjoint(
    batch: tuple[int, ...], t: int, n_heads: int, d: int, dtype: str, seed: int
) -> None:
    (x,) = draw(seed, dtype, (*batch, t, n_heads * d))
    heads, split_backward = ops.split_heads(x, n_heads)
    merged, merge_backward = ops.merge_heads(heads)
    assert heads.shape == (*batch, n_heads, t, d) and heads.dtype == dtype
    np.testing.assert_array_equal(merged, x)
    np.testing.assert_array_equal(split_backward(heads), x)
    np.testing.assert_array_equal(merge_backward(x), heads)


@examples
@given(leading, st.integers(2, 6), dtypes, seeds)
def test_norms_normalize(batch: tuple[int, ...], width: int, dtype: str, seed: int) -> None:
    x, gamma, beta, dy = draw(seed, dtype, (*batch, width), (width,), (width,), (*batch, width))
    ones, zeros = np.ones(width, dtype), np.zeros(width, dtype)
    assert_fits(ops.layer_norm(x, gamma, beta)[1](dy), [x, gamma, beta])
    assert_fits(ops.rms_norm(x, gamma)[1](dy), [x, gamma])
    x += 100 * np.arange(1, width + 1, dtype=dtype)  # rows of nearly equal numbers would lose digits to cancellation
    normalized, _ = ops.layer_norm(x, ones, zeros, eps=1e-12)
    tolerance = 200 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(normalized.mean(axis=-1), 0.0, atol=tolerance)
    np.testing.assert_allclose((normalized**2).mean(axis=-1), 1.0, atol=tolerance)
    np.testing.assert_allclose((ops.rms_norm(x, ones, eps=1e-12)[0] ** 2).mean(axis=-1), 1.0, atol=tolerance)


@examples
@given(leading, sizes, st.integers(2, 6), dtypes, seeds)
def test_embedding_loses_no_gradient(batch: tuple[int, ...], t: int, vocabulary: int, dtype: str, seed: int) -> None:
    table, dy = draw(seed, dtype, (vocabulary, 3), (*batch, t, 3))
    ids = np.random.default_rng(seed).integers(0, vocabulary, (*batch, t))
    y, backward = ops.embedding(ids, table)
    dtable = backward(dy)
    assert y.shape == (*batch, t, 3) and y.dtype == dtype
    assert_fits(dtable, [table])
    tolerance = 50 * float(np.finfo(dtype).eps)
    for token in range(vocabulary):
        np.testing.assert_allclose(dtable[token], dy[ids == token].sum(axis=0), rtol=tolerance, atol=tolerance)


@examples
@given(leading, st.integers(2, 6), dtypes, st.floats(0, 1), seeds)
def test_cross_entropy_is_never_negative(
    batch: tuple[int, ...], vocabulary: int, dtype: str, smoothing: float, seed: int
) -> None:
    (logits,) = draw(seed, dtype, (*batch, vocabulary))
    targets = np.random.default_rng(seed).integers(0, vocabulary, batch)
    loss, backward = ops.cross_entropy(logits, np.asarray(targets), label_smoothing=smoothing)
    dlogits = backward()
    assert loss.shape == () and loss.dtype == dtype and loss >= 0
    assert_fits(dlogits, [logits])
    np.testing.assert_allclose(dlogits.sum(axis=-1), 0.0, atol=20 * float(np.finfo(dtype).eps))
