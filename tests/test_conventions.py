"""Code that follows another convention than ours is right, and the report says which; patterns of what is wrong."""

from typing import Any

import numpy as np
import pytest
from kernel_checks import random as draw
from tiers import in_one

from minitransformer import ideas, ops, verify
from minitransformer.check.referee.conventions import _drawing
from minitransformer.check.verify.pattern import apart, pattern


def around(op: Any, to: Any = lambda *x: x, back: Any = lambda *dx: dx, out: Any = lambda y: y, **options: Any) -> Any:
    """An op behind another convention. to: to the op's arguments; back: from its gradients; out: its own inverse."""

    def f(*inputs: np.ndarray) -> Any:
        result, backward = op(*to(*inputs), **options)

        def pullback(upstream: np.ndarray) -> Any:
            found = backward(out(upstream))
            found = back(*(found if isinstance(found, tuple) else (found,)))
            return found if len(found) > 1 else found[0]

        return out(result), pullback

    return f


def swap(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2)


QKV = draw(2, 3, 5, 4), draw(2, 3, 7, 4), draw(2, 3, 7, 6)
MASK = np.random.default_rng(3).random((5, 7)) < 0.6
MASK[:, 0] = True
X, GAMMA, BETA = draw(4, 6), 1.5 + draw(6) ** 2, draw(6)
IDS = np.array([1, 0, 4, 2])
LOGITS = draw(4, 5)


def with_mask(to: Any, mask: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
    return around(ops.attention, lambda q, k, v, m: (q, k, v, to(m))), (*QKV, mask)


def additive(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> Any:
    return ops.attention(q, k, v, bias=bias)


def one_hot(logits: np.ndarray, targets: np.ndarray) -> Any:
    return ops.cross_entropy(logits, targets.argmax(-1))


CASES: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "it is causal": ("attention", around(ops.attention, causal=True), QKV),
    "its mask begins at the first key": ("attention",
     around(ops.attention, lambda q, k, v: (q, k, v, np.tril(np.ones((5, 7), bool)))), QKV),
    "heads come after the positions": ("attention",
     around(ops.attention, lambda *x: map(swap, x), lambda *dx: tuple(map(swap, dx)), swap), tuple(map(swap, QKV))),
    "serves a group": (
        "attention",
        around(
            ops.attention,
            lambda q, k, v: (q, np.repeat(k, 3, 1), np.repeat(v, 3, 1)),
            lambda dq, dk, dv: (dq, dk.sum(1, keepdims=True), dv.sum(1, keepdims=True)),
        ),
        (QKV[0], QKV[1][:, :1], QKV[2][:, :1]),
    ),
    "its mask is 1 where a query may attend": ("attention", *with_mask(lambda m: m > 0, MASK.astype(int))),
    "its mask is True where a query may not attend": ("attention", *with_mask(lambda m: ~m, ~MASK)),
    "its mask is 1 where a query may not attend": ("attention", *with_mask(lambda m: m == 0, (~MASK).astype(int))),
    "its mask is added to the scores": ("attention", additive, (*QKV, np.where(MASK, 0.0, -np.inf))),
    "its mask says how many keys count": (
        "attention", around(ops.attention, lambda q, k, v, n: (q, k, v, np.arange(7) < n[:, None, None, None])),
        (*QKV, np.array([3, 7]))),
    "of attention: its examples are columns": ("attention",
     around(ops.attention, lambda *x: [a.T for a in x], lambda *dx: tuple(a.T for a in dx), np.transpose),
     (draw(4, 5), draw(4, 7), draw(6, 7))),
    "of layer_norm: its examples are columns; it stores its vectors as matrices": ("layer_norm",
     around(ops.layer_norm, lambda x, g, b: (x.T, g[:, 0], b[:, 0]),
            lambda dx, dg, db: (dx.T, dg[:, None], db[:, None]), np.transpose),
     (X.T, GAMMA[:, None], BETA[:, None])),
    "of cross_entropy: its examples are columns": ("cross_entropy",
     around(ops.cross_entropy, lambda z, t: (z.T, t), lambda dz: (dz.T,)), (LOGITS.T, IDS)),
    "its mask is added to the scores; it is causal": (
        "attention", lambda q, k, v, bias: ops.attention(q, k, v, bias=bias, causal=True), (*QKV, draw(5, 7))),
    "stored as (out, in)": ("linear",
     around(ops.linear, lambda x, w, b: (x, w.T, b), lambda dx, dw, db: (dx, dw.T, db)), (X, draw(3, 6), draw(3))),
    "matrices of one row or column": ("layer_norm",
     around(ops.layer_norm, lambda x, g, b: (x, g[0], b[0]), lambda dx, dg, db: (dx, dg[None], db[None])),
     (X, GAMMA[None], BETA[None])),
    "it multiplies by 1 + γ": ("rms_norm", around(ops.rms_norm, lambda x, g: (x, 1.0 + g)), (X, GAMMA)),
    "it has no γ": ("rms_norm", around(ops.rms_norm, lambda x: (x, np.ones(6)), lambda dx, dg: (dx,)), (X,)),
    "its ε is 1e-06": ("layer_norm", around(ops.layer_norm, eps=1e-6), (X, GAMMA, BETA)),
    "GELU by tanh": ("gelu", around(ops.gelu, approximate="tanh"), (X,)),
    "it sums the losses": ("cross_entropy", around(ops.cross_entropy, reduction="sum"), (LOGITS, IDS)),
    "its targets are one-hot": ("cross_entropy", one_hot, (LOGITS, np.eye(5, dtype=int)[IDS])),
    "its classes are the second axis": ("cross_entropy",
     around(ops.cross_entropy, lambda z, t: (swap(z), t), lambda dz: (swap(dz),)),
     (draw(2, 5, 4), IDS.reshape(1, 4).repeat(2, 0))),
    "it ignores another index": ("cross_entropy", around(ops.cross_entropy, ignore_index=-1),
     (LOGITS, np.array([1, -1, 4, 2]))),
    "its pairs are neighbours": ("rotary", around(ideas.rotary, interleaved=True), (X,)),
}  # fmt: skip


@in_one("sentence", CASES)
def test_a_convention_is_read_and_named(sentence: str) -> None:
    op, f, inputs = CASES[sentence]
    assert sentence in verify.check_gradients(f, *inputs, op=op).note


def test_a_mask_given_by_keyword_is_read_in_conventions_too() -> None:
    def f(q: np.ndarray, k: np.ndarray, v: np.ndarray, attn_mask: Any = None) -> Any:
        return ops.attention(q, k, v, attn_mask != 0)

    note = verify.check_gradients(f, *QKV, op="attention", attn_mask=MASK.astype(int)).note
    assert "its mask is 1 where a query may attend" in note
    with pytest.raises(AssertionError, match="its gradients are right for its output, but"):
        verify.check_gradients(f, *QKV, op="attention", attn_mask=MASK * np.arange(1, 8))


def test_dropout_is_compared_under_the_mask_that_it_drew() -> None:
    """A right one was called another function when our dropout came to draw its numbers in another way."""

    def forward(x: np.ndarray, rate: float, rng: np.random.Generator) -> Any:
        keep = rng.random(x.shape) > rate
        return x * keep / (1.0 - rate), (keep, rate)

    drawn = draw(8, 6), 0.3, np.random.default_rng(0)
    scaled, not_scaled = lambda dy, c: dy * c[0] / (1.0 - c[1]), lambda dy, c: dy * c[0]
    assert "the mask that it drew" in verify.check_gradients((forward, scaled), *drawn, op="dropout").note
    with pytest.raises(AssertionError, match="dropout-not-rescaled"):
        verify.check_gradients((forward, not_scaled), *drawn, op="dropout")


def test_dropout_elsewhere_draws_its_own_numbers_meanwhile() -> None:
    """The function of the module was another one for the time of the call, in all threads."""
    x, drawn = draw(8, 6), []

    class Numbers(np.ndarray):
        def __ge__(self, rate: Any) -> Any:
            drawn.append(ops.dropout(x, 0.3, np.random.default_rng(1))[0])
            return np.asarray(self) >= rate

    mask = np.random.default_rng(0).random(x.shape) > 0.3
    y, _ = _drawing(mask.astype(np.float32).view(Numbers), ops.dropout)(x=x, rate=0.3, rng=np.random.default_rng(0))
    assert ((y != 0.0) == mask).all() and len(drawn) == 1
    np.testing.assert_array_equal(drawn[0], ops.dropout(x, 0.3, np.random.default_rng(1))[0])


def test_an_op_has_one_output_and_the_values_of_others_are_named() -> None:
    def forward(x: np.ndarray) -> Any:
        y, pull = ops.softmax(x)
        return (y, np.exp(x).sum(-1)), (pull, x)  # without the logarithm

    def backward(dy: Any, cache: Any) -> np.ndarray:
        return cache[0](dy[0]) + dy[1][:, None] * np.exp(cache[1])

    for n in (1, 3):  # one row is made longer, and the outputs with it
        report = verify.check_gradients((forward, backward), draw(n, 4), op="softmax")
    assert report.unchecked == ("the values of output[1]",) and "softmax has one output" in str(report)


def test_any_slope_at_a_kink_is_that_of_the_op() -> None:
    """With `op` the slope 1 of ReLU at 0 was called wrong, though its gradients were right."""
    x = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, -3.0]])
    verify.check_gradients(lambda x: (np.maximum(x, 0.0), lambda dy: dy * (x >= 0.0)), x, op="relu")
    with pytest.raises(AssertionError, match="its output is not that of relu"):
        verify.check_gradients(lambda x: (abs(x), lambda dy: dy * np.sign(x)), x, op="relu")


def test_without_another_convention_the_note_names_none() -> None:
    assert verify.check_gradients(around(ops.attention), *QKV, op="attention").note == ""


def test_what_differs_is_told_by_how_much_and_where() -> None:
    wide = around(ops.layer_norm, eps=0.5)
    with pytest.raises(AssertionError, match=r"The output is off by up to \d\.\d+: \[\d, \d\] is -?[\d.]+; expected: "):
        verify.check_gradients(wide, X, GAMMA, BETA, op="layer_norm")
    assert verify.check_gradients(wide, X, GAMMA, BETA, op="layer_norm", eps=0.5).ok
    assert verify.check_gradients(wide, X, GAMMA, BETA, op="layer_norm", op_options={"eps": 0.5}).ok


def test_a_scale_that_is_used_as_the_shift_is_no_convention() -> None:
    class Crossed:
        def __init__(self) -> None:
            self.weight, self.bias = GAMMA.copy(), BETA.copy()

        def forward(self, x: np.ndarray) -> np.ndarray:
            y, self.back = ops.layer_norm(x, self.bias, self.weight)
            return y

        def backward(self, upstream: np.ndarray) -> np.ndarray:
            dx, self.dbias, self.dweight = self.back(upstream)
            return dx

    assert verify.check_gradients(Crossed(), X).ok
    with pytest.raises(AssertionError, match="its output is not that of layer_norm"):
        verify.check_gradients(Crossed(), X, op="layer_norm")


def test_an_option_that_the_op_does_not_take_is_an_error() -> None:
    with pytest.raises(ValueError, match="smoothing is no option of op='cross_entropy'"):
        verify.check_gradients(ops.cross_entropy, LOGITS, IDS, op="cross_entropy", op_options={"smoothing": 0.1})
    with pytest.raises(ValueError, match="eps is no option of op=None"):
        verify.check_gradients(ops.layer_norm, X, GAMMA, BETA, op_options={"eps": 0.1})


def test_what_cannot_be_compared_is_said_so_with_the_reason() -> None:
    with pytest.raises(AssertionError, match=r"nothing could be compared with attention: .* attention"):
        verify.check_gradients(ops.relu, X + 5.0, op="attention")


def by_a_table_in_float32(first: int) -> Any:
    """Rotary positions from `first` on, whose table is in float32."""
    angles = np.arange(first, first + 4)[:, None] * 10000.0 ** (-np.arange(0, 6, 2) / 6)
    cos, sin = (table.astype(np.float32).astype(np.float64) for table in (np.cos(angles), np.sin(angles)))

    def f(x: np.ndarray) -> Any:
        y, backward = ideas.rotate(x, cos, sin)
        return y, lambda dy: backward(dy)[0]

    return f


def test_a_table_in_float32_is_right_and_said() -> None:
    report = verify.check_gradients(by_a_table_in_float32(first=0), X, op="rotary")
    assert "something inside computes in float32" in report.note


def test_a_mistake_beside_a_table_in_float32_is_named() -> None:
    with pytest.raises(AssertionError, match="rotary-starts-at-one"):
        verify.check_gradients(by_a_table_in_float32(first=1), X, op="rotary")


def test_two_mistakes_in_two_gradients_are_both_named() -> None:
    def f(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
        y, backward = ops.linear(x, weight, bias)

        def wrong(dy: np.ndarray) -> Any:
            dx, dweight, dbias = backward(dy)
            return dx, dweight / len(x), dbias + dy.sum() - dbias

        return y, wrong

    found = verify.diagnose(f, "linear", X, draw(6, 3), draw(3))
    assert {mistake.name for mistake in found.mistakes} >= {"linear-dweight-mean", "linear-dbias-over-everything"}
    assert found.shared == "each its part"


def test_a_large_array_shows_its_worst_entry_and_the_place() -> None:
    def f(x: np.ndarray) -> Any:
        y, backward = ops.softmax(x)

        def wrong(dy: np.ndarray) -> np.ndarray:
            dx = backward(dy)
            dx[17:] = 0.0  # as if the last tile were left out
            return dx

        return y, wrong

    with pytest.raises(AssertionError) as raised:
        verify.check_gradients(f, draw(20, 5), op="softmax")
    text = str(raised.value)
    assert "dx is wrong only in rows 17 to 19 (the last), where it is zero: [17:20, :]." in text
    assert "along a random direction" not in text


RIGHT = draw(4, 6)
ABOVE = RIGHT * np.tril(np.ones((4, 6)))
PATTERNS = {
    "dx is zero everywhere": 0.0 * RIGHT,
    "dx is the right one with the wrong sign.": -RIGHT,
    "dx is 2.5 times the right one.": 2.5 * RIGHT,
    "dx is off by one number in each row": RIGHT + draw(4, 1),
    "dx is off by a factor in each row, from 2 to 5.": RIGHT * np.arange(2.0, 6.0)[:, None],
    "dx is off by a factor in each column, from 2 to 7.": RIGHT * np.arange(2.0, 8.0),
    "dx is wrong only above the diagonal, where it is zero.": ABOVE,
    "dx is wrong only in column 2: [:, 2].": RIGHT + np.eye(6)[2],
    "dx is wrong only in rows 1 to 2: [1:3, :].": RIGHT + np.array([0.0, 1.0, 1.0, 0.0])[:, None],
    "dx is wrong only in rows 2 to 3 (the last): [2:4, :].": RIGHT + np.array([0.0, 0.0, 1.0, 1.0])[:, None],
    "dx is wrong only in rows 1, 3: [[1, 3], :].": RIGHT + np.array([0.0, 1.0, 0.0, 1.0])[:, None],
    "dx is wrong only in rows 0, 3, columns 1 to 2, in 2 of the 4 entries there: [[0, 3], 1:3].": RIGHT
    + np.array([[0, 1, 0, 0, 0, 0], [0] * 6, [0] * 6, [0, 0, 1, 0, 0, 0]]),
}


@in_one("said", PATTERNS)
def test_a_pattern_in_a_sentence(said: str) -> None:
    assert pattern("dx", PATTERNS[said], RIGHT).startswith(said)


def test_no_pattern_is_no_sentence() -> None:
    assert pattern("dx", draw(4, 6, seed=1), RIGHT) == pattern("dx", RIGHT, RIGHT) == ""
    assert pattern("dx", draw(5, 5).T, draw(5, 5)) == "dx is right but for a transpose of its last two axes."
    assert pattern("dx", RIGHT, 0.0 * RIGHT).startswith(
        "dx should be zero everywhere: no small step changes the output"
    )
    heads = np.stack([RIGHT, RIGHT + 1.0, RIGHT])
    assert pattern("dx", heads, np.stack([RIGHT] * 3)) == "dx is wrong only in index of axis 0 1: [1, :, :]."
    assert apart("it", RIGHT[0], RIGHT).startswith("it has the shape (6,); expected: (4, 6)")


@pytest.mark.parametrize("n", [4, 40])
def test_a_residual_that_does_not_flow_back_is_told(n: int) -> None:
    def block(x: np.ndarray) -> Any:
        y, backward = ops.layer_norm(x, GAMMA, BETA)
        return x + y, lambda dy: backward(dy)[0]

    with pytest.raises(AssertionError, match="dx lacks the upstream gradient itself"):
        verify.check_gradients(block, draw(n, 6))
