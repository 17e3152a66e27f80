"""What is known about the ops apart from their formulas, which test_precision_of_ops.py has: examples by hand, one op
in the place of another, extremes, who depends on whom, and the promises that every op keeps in every case.
"""

from __future__ import annotations

import copy
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_ops import CALLS, FIRST, IDEAS, LAYOUTS, OPS, arguments_of, floats, in_dtype, laid_out, results
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import softmax
from tiers import in_one

from minitransformer import ideas, ops
from minitransformer.core.arrays.masks import causal_mask, local_mask, padding_mask
from minitransformer.core.ops.positions import shift_of_positions

EXACT = {"rtol": 1e-13, "atol": 1e-13}  # two float64 computations of one formula


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------------------------------------------------------
# What is known about single ops.


def test_an_open_forget_gate_keeps_the_cell_and_its_gradient() -> None:
    """i = 0, f = 1: c' = c, and dc = dc' without a matrix, which is the point of the cell."""
    gates = np.array([-800.0, 800.0, 0.0, -800.0])
    new, backward = ideas.lstm_cell(gates, np.array([0.3, 5.0]), np.zeros((1, 4)))
    np.testing.assert_array_equal(new, [0.0, 5.0])
    np.testing.assert_array_equal(backward(np.array([0.0, 1.0]))[1], [0.0, 1.0])


@in_one("causal, radius", [False, True], [0, 1, 2, 3, 5, 6, 20])
def test_local_attention_is_attention_under_a_local_mask(radius: int, causal: bool) -> None:
    """Values and gradients, also with padding in the middle, where some queries see nothing."""
    q, k, v, dy = random(2, 7, 3), random(2, 7, 3, seed=1), random(2, 7, 4, seed=2), random(2, 7, 4, seed=3)
    real = np.array([[1, 1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1]], dtype=bool)
    y, backward = ideas.local_attention(q, k, v, radius, real, causal)
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
    y, backward = ideas.flash_attention(q, 30 * k, v, real, causal, tile=tile)  # where exp would overflow
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
    for op in (ideas.flash_attention, ops.attention):
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
    runs = [ideas.linear_attention(q, k, v, block=block) for block in (1, 3, 7, 64)]
    for y, backward in runs[1:]:
        np.testing.assert_allclose(y, runs[0][0], rtol=1e-12)
        for gradient, expected in zip(backward(dy), runs[0][1](dy), strict=True):
            np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_linear_attention_of_padding_is_zero() -> None:
    x = random(2, 5, 3)
    y, backward = ideas.linear_attention(x, x, x, np.array([[False] * 5, [False, True, True, False, True]]))
    assert not y[0].any() and not y[1, 0].any() and y[1, 1:].all()
    assert not any(gradient[0].any() for gradient in backward(x))


def test_a_sink_takes_weight_and_gives_nothing() -> None:
    """With scores of 0 for two keys and a sink of log 2 half of the weight is left; a hidden row outputs zeros."""
    q, k, v = np.zeros((1, 2, 3)), random(1, 2, 3), random(1, 2, 4, seed=1)
    y, _ = ideas.sink_attention(q, k, v, np.log([2.0]), np.array([[True, True], [False, False]]))
    np.testing.assert_allclose(y[0], [v[0].mean(axis=0) / 2, np.zeros(4)])


def test_local_attention_computes_no_score_that_is_far_away() -> None:
    """A sequence of 20,000 tokens has 4·10⁸ pairs, 3.2 GB as float64; its blocks of 8 x 24 take 4 MB."""
    x = random(20_000, 2)
    tracemalloc.start()
    ideas.local_attention(x, x, x, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_of_equal_scores_the_first_is_chosen() -> None:
    gates, _ = ideas.top_k_gates(np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0]]), 2)
    expected = [[0.5, 0.5, 0.0, 0.0], [*softmax([0.0, 2.0]), 0.0, 0.0]]
    np.testing.assert_allclose(gates, expected, **EXACT)


def test_one_expert_alone_teaches_the_router_nothing() -> None:
    gates, backward = ideas.top_k_gates(random(3, 4), 1)
    assert sorted(gates[0]) == [0.0, 0.0, 0.0, 1.0]
    assert not backward(random(3, 4, seed=1)).any()


@in_one("k, width, base", [0, 1, 7, 100, -3], [(2, 10.0), (8, 10000.0), (64, 100.0)])
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


@in_one(
    "norm, epsilon",
    [("layer_norm", 1e-5), ("layer_norm_over_axes", 1e-5), ("rms_norm", 1e-6), ("rms_norm_over_axes", 1e-6)],
)
def test_epsilon_unless_given_is_that_of_the_docstring(norm: str, epsilon: float) -> None:
    """In a row as small as √ε it is half of what is below the root: PyTorch has 1e-5, Llama 1e-6."""
    a, gamma = math.sqrt(epsilon), np.ones(2)
    y, _ = getattr(ideas if "axes" in norm else ops, norm)(
        np.array([[a, -a]]), gamma, *([np.zeros(2)] if "layer" in norm else [])
    )
    np.testing.assert_allclose(y, [[math.sqrt(0.5), -math.sqrt(0.5)]], **EXACT)


@in_one("real, mean", [([1, 1, 1], 5), ([0, 1, 1], 7), ([0, 1, 0], 6), ([0, 0, 0], 0)])
def test_the_mean_counts_the_real_tokens_also_if_there_is_one_or_none(real: list[int], mean: float) -> None:
    x, mask = np.array([[1.0], [6.0], [8.0]]), np.array(real, dtype=bool)
    assert ops.mean_pool(x, mask)[0] == [mean]
    assert ops.mean_pool(x[1:2])[0] == [6.0]


def test_heads_are_views() -> None:
    x = random(2, 3, 8)  # B 2, T 3, two heads of four
    heads, _ = ops.split_heads(x, 2)
    assert heads.shape == (2, 2, 3, 4)
    assert np.shares_memory(heads, x)
    merged, _ = ops.merge_heads(heads)
    np.testing.assert_array_equal(merged, x)
    assert np.shares_memory(merged, x), "merging what was split needs no copy"


def test_products_of_rotated_vectors_depend_on_their_distance_alone() -> None:
    q, k = random(1, 8), random(1, 8, seed=1)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        return ideas.rotary(x, positions=np.array([position]))[0]

    products = [(turned(q, m) * turned(k, m + 3)).sum() for m in (0, 5, 40, -40)]
    np.testing.assert_allclose(products, products[0], rtol=1e-12)


def test_with_a_scale_of_zero_attention_is_a_plain_mean() -> None:
    q, k, v = random(3, 4), random(5, 4, seed=1), random(5, 2, seed=2)
    np.testing.assert_allclose(ops.attention(q, k, v, scale=0.0)[0], np.tile(v.mean(axis=0), (3, 1)), rtol=1e-12)


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
    bias, backward = ideas.relative_bias(table, 50, 50, both_ways, 16)
    for distance, bucket in buckets.items():
        i, j = max(0, -distance), max(0, distance)
        np.testing.assert_array_equal(bias[:, i, j], table[bucket], err_msg=str(distance))
    last, _ = ideas.relative_bias(table, 1, 50, both_ways, 16)
    np.testing.assert_array_equal(last[:, 0], bias[:, -1])
    counts = backward(np.ones_like(bias))
    assert counts.sum() == 3 * 50 * 50
    assert counts[0, 0] == (50 if both_ways else 50 * 51 / 2)  # distance 0, and looking back only also all ahead


def test_bias_of_attention() -> None:
    """A bias of -inf is a mask; one that is the same for every key changes nothing."""
    q, k, v = random(2, 4, 3), random(2, 5, 3, seed=1), random(2, 5, 6, seed=2)
    seen = random(4, 5, seed=3) < 0.5
    seen[1] = False
    hidden = np.where(seen, 0.0, -np.inf)
    np.testing.assert_allclose(ops.attention(q, k, v, bias=hidden)[0], ops.attention(q, k, v, mask=seen)[0], rtol=1e-12)
    same, _ = ops.attention(q, k, v, bias=random(4, 1, seed=3))
    np.testing.assert_allclose(same, ops.attention(q, k, v)[0], rtol=1e-12)


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


def test_cross_entropy_of_equal_logits_is_log_of_their_number() -> None:
    loss, backward = ops.cross_entropy(np.zeros((2, 3, 8)), np.array([[0, 1, 2], [5, 6, 7]]))
    np.testing.assert_allclose(loss, math.log(8), **EXACT)
    dlogits = backward()
    np.testing.assert_allclose(dlogits[0, 1], np.array([1, -7, 1, 1, 1, 1, 1, 1]) / 8 / 6, **EXACT)


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


# ---------------------------------------------------------------------------------------------------------------------
# Who depends on whom: move one input, see which outputs move.


@in_one(
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


# ---------------------------------------------------------------------------------------------------------------------
# Dropout.


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


def frozen(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Arrays that raise when anybody writes into them."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def test_every_idea_in_a_folder_has_tests_of_its_own_that_call_its_ops() -> None:
    assert {"softcap", "softcapped_attention"} <= IDEAS.keys()
    for name, folder in IDEAS.items():
        tests = Path(__file__).with_name(f"test_{folder}.py")
        assert tests.is_file(), f"{name}: {tests.name} is missing"
        assert f"{name}(" in tests.read_text(encoding="utf-8"), f"{tests.name} does not call {name}"


def as_called(case: str, dtype: str, layout: str = "rows") -> dict[str, Any]:
    """The arguments of a case: arrays that nobody can write to, and NumPy's float64 for Python's floats."""
    arguments = laid_out(in_dtype(arguments_of(case), dtype), LAYOUTS[layout])
    frozen([x for x in arguments.values() if isinstance(x, np.ndarray)])
    return {name: np.float64(x) if isinstance(x, float) else x for name, x in arguments.items()}


def assert_promises_kept(case: str, dtype: str) -> None:
    """The dtype stays, gradients have their inputs' shapes, nothing is written to, a pullback may be called twice, and
    how arrays lie in memory does not matter."""
    op, arguments = CALLS[case], as_called(case, dtype)
    before = {name: copy.copy(x) for name, x in arguments.items()}

    y, backward = OPS[op](**arguments)
    y_before = y.copy()
    assert y.dtype == dtype
    (dy,) = frozen([np.array(random(*y.shape, seed=9), dtype=dtype)])
    found = results(y, backward(dy))
    assert [x.shape for x in found[1:]] == [arguments[name].shape for name in floats(arguments)]
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    assert all(np.isfinite(x).all() and (x.any() or case != FIRST[op]) for x in found)

    first = [x.copy() for x in found]
    backward(np.array(-2 * dy))  # another gradient in between must leave no trace
    for x, kept, repeated in zip(found, first, results(y, backward(dy)), strict=True):
        np.testing.assert_array_equal(x, kept)
        np.testing.assert_array_equal(repeated, kept)
    np.testing.assert_array_equal(y, y_before)
    for name in (name for name, x in arguments.items() if isinstance(x, np.ndarray)):
        np.testing.assert_array_equal(arguments[name], before[name])

    tolerance = 100 * float(np.finfo(dtype).eps)
    for layout in LAYOUTS:
        other, its_backward = OPS[op](**as_called(case, dtype, layout))
        for x, kept in zip(results(other, its_backward(frozen([LAYOUTS[layout](dy)])[0])), first, strict=True):
            np.testing.assert_allclose(x, kept, rtol=tolerance, atol=tolerance * max(1.0, abs(kept).max()))


@in_one("case", FIRST.values())
def test_promises(case: str) -> None:
    assert_promises_kept(case, "float32")
    assert_promises_kept(case, "float64")


@pytest.mark.slow
@in_one("case, dtype", CALLS, ["float32", "float64"])
def test_promises_in_every_case(case: str, dtype: str) -> None:
    assert_promises_kept(case, dtype)


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
