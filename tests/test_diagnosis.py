"""Naming a mistake by what it does: each known one is named, and an unknown one never falsely."""

import functools
import inspect
from typing import Any

import numpy as np
import pytest
from all_ops import OPS
from common import draw
from invented_mistakes import invented

from minitransformer import ops
from minitransformer.check.verify.mistakes import MISTAKES, Mistake
from minitransformer.verify import diagnose

# For a mistake in what ops share, the op to look at.
OF_HELPERS = {
    "ideas.before.convolution:_collected": "convolution",
    "ideas.after.local:_collected": "local_attention",
    "ideas.after.linear_attention:causal_sums": "linear_attention",
    "core.arrays.masks:causal_mask": "attention",
    "core.arrays.masks:_distance": "attention",
}
# These do the same on all inputs, so all of them are named.
ALIKE = [
    {"softmax-expects-cross-entropy", "additive-no-softmax-in-backward"},
    {"softmax-expects-cross-entropy", "attention-no-softmax-in-backward"},
    {"softmax-expects-cross-entropy", "balance-softmax-skipped"},
    {"softmax-expects-cross-entropy", "softmax-gates-softmax-skipped"},
    {"softmax-diagonal-only", "attention-softmax-diagonal-only"},
    {"dropout-mask-forgotten", "attention-no-dropout-in-dweights"},
    {"softcapped-cap-left-out-of-backward", "softcap-slope-forgotten"},
    {"linear-weight-reshaped", "rnn-weight-not-transposed"},
    {"embedding-repeated-tokens-lost", "embedding-repeated-tokens-added-once"},
]


def op_with(mistake: Mistake) -> str:
    return OF_HELPERS.get(mistake.target) or mistake.target.partition(":")[2]


def is_of_an_op(mistake: Mistake) -> bool:
    """Whether it is in an op, and not in another function of the same name, such as the linear scaling of angles."""
    module, _, name = mistake.target.partition(":")
    return mistake.target in OF_HELPERS or (name in OPS and inspect.unwrap(OPS[name]).__module__.endswith(module))


KNOWN = [
    mistake
    for mistake in MISTAKES.values()
    if mistake.target.startswith(("core.ops.", "core.arrays.")) or is_of_an_op(mistake)
]


@pytest.mark.few(6, slow=200)
@pytest.mark.parametrize("seeds", [[0], pytest.param(range(1, 20), marks=pytest.mark.sweep)], ids=["1", "19 more"])
@pytest.mark.parametrize("mistake", KNOWN, ids=lambda mistake: mistake.name)
def test_each_mistake_is_named(mistake: Mistake, seeds: list[int]) -> None:
    op = op_with(mistake)
    for seed in seeds:
        found = diagnose(mistake.inside(OPS[op]), op, seed=seed)
        names = {one.name for one in found.mistakes}
        assert mistake.name in names and not found.right, str(found)
        assert names == {mistake.name} or names in ALIKE, str(found)


@pytest.mark.few(6)
@pytest.mark.parametrize("op", OPS)
def test_the_right_op_is_right(op: str) -> None:
    f: Any = OPS[op]
    found = diagnose(lambda *inputs, **options: f(*inputs, **options), op)
    assert found.right and not found.mistakes and "does what" in str(found), str(found)


def test_every_op_that_has_mistakes_is_there() -> None:
    assert {op_with(mistake) for mistake in KNOWN} <= set(OPS)
    assert len(KNOWN) >= 200


# Of the mistakes that were invented without a look at the known ones, these are among them: each was compared by hand.
KNOWN_AFTER_ALL = {
    "dmean_p / n, => dmean_p,": "balance-mean-forgotten",
    "dh = dh_gates + dremembered * reset + dnew * keep => dh = dh_gates + dremembered + dnew * keep": (
        "gru-first-reset-forgotten"
    ),
    "drecalled = of_candidate * reset => drecalled = of_candidate": "gru-reset-forgotten",
    "dnew * (h - candidate) => dnew * h": "gru-update-sees-one-term",
    "product + bias => product - bias": "linear-bias-subtracted",
}


@pytest.mark.slow
def test_of_the_invented_mistakes_of_all_ops_none_is_named_falsely() -> None:
    unknown, seen = 0, set()
    for op, edit, f in invented():
        with np.errstate(all="ignore"):
            found = diagnose(f, op)
        seen.add(op)
        assert not found.right, (op, edit)
        name = KNOWN_AFTER_ALL.get(edit)
        assert [mistake.name for mistake in found.mistakes] == ([name] if name else []), (op, edit)
        unknown += not found.mistakes
    of_ideas = {name for name, op in OPS.items() if op.__module__.endswith(".op")}  # with mistakes of their own
    assert unknown >= 100 and seen >= {*OPS} - of_ideas


def flash(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = True) -> Any:
    """Attention as in a student's flash attention: backward makes the weights again, and forgets the causal mask."""
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    seen = np.tril(np.ones(scores.shape[-2:], bool), scores.shape[-1] - scores.shape[-2])
    logs = np.log(np.exp(np.where(seen, scores, -np.inf)).sum(-1, keepdims=True))
    output = np.exp(np.where(seen, scores, -np.inf) - logs) @ v

    def backward(doutput: np.ndarray) -> tuple[np.ndarray, ...]:
        weights = np.exp(scores - logs)
        dweights = doutput @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (doutput * output).sum(-1, keepdims=True))
        return dscores @ k * scale, dscores.swapaxes(-1, -2) @ q * scale, weights.swapaxes(-1, -2) @ doutput

    return output, backward


QKV = draw(2, 5, 4), draw(2, 7, 4, seed=1), draw(2, 7, 3, seed=2)


def test_flash_attention_whose_causal_mask_is_forgotten_in_backward() -> None:
    found = diagnose(lambda q, k, v: flash(q, k, v), "attention", *QKV, causal=True)
    assert [mistake.name for mistake in found.mistakes] == ["flash-causal-forgotten-in-backward"]
    assert found.differing == ("dq", "dk", "dv")
    assert "The causal mask is forgotten in backward" in str(found)


def test_float32_is_compared_to_four_digits() -> None:
    def f(x: np.ndarray) -> Any:
        y, backward = ops.softmax(x.astype(np.float32))
        return y, lambda dy: backward(dy) if right else y * dy

    right = True
    assert diagnose(f, "softmax", draw(3, 4)).right
    right = False
    assert [mistake.name for mistake in diagnose(f, "softmax", draw(3, 4)).mistakes] == ["softmax-no-sum"]


def test_an_unknown_mistake_says_what_differs() -> None:
    def f(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        output, backward = ops.attention(q, k, v)

        def wrong(doutput: np.ndarray) -> Any:
            dq, dk, dv = backward(doutput)
            return dq, 1.01 * dk, dv

        return output, wrong

    found = diagnose(f, "attention")
    assert found.differing == ("dk",) and not found.mistakes and not found.right
    assert f"f differs from attention in dk; none of the {found.tried} known mistakes does the same" in str(found)
    assert found.as_dict()["differing"] == ["dk"] and found.tried > 40


def test_what_cannot_be_diagnosed_says_so() -> None:
    with pytest.raises(ValueError, match="there is no op 'attentoin'; expected one of additive_attention"):
        diagnose(flash, "attentoin")
    with pytest.raises(ValueError, match="runs on none of the inputs: it takes different arguments from the op"):
        diagnose(lambda: None, "attention")
    with pytest.raises(ValueError, match="runs on none of the inputs: ZeroDivisionError"):
        diagnose(lambda x: (x / (1 // 0), None), "softmax")
    with pytest.raises(TypeError, match=r"must return \(floating-point array, backward\), got int"):
        diagnose(lambda x: 3, "softmax")


def test_options_that_f_lacks_go_to_the_op() -> None:
    assert diagnose(functools.partial(ops.softmax, axis=0), "softmax", draw(3, 4), axis=0).right
    assert diagnose(lambda x: ops.softmax(x, axis=0), "softmax", draw(3, 4), axis=0).right
    assert not diagnose(lambda x: ops.softmax(x, axis=0), "softmax", draw(3, 4)).right


def test_the_rounding_of_a_part_in_float32_makes_no_output_wrong() -> None:
    """RMSNorm in float32 inside, whose backward treats the root mean square as a constant: only that is a mistake."""

    def norm(x: np.ndarray, gamma: np.ndarray) -> Any:
        x32, gamma32 = x.astype(np.float32), gamma.astype(np.float32)
        inverse = 1.0 / np.sqrt((x32 * x32).mean(axis=-1, keepdims=True) + np.float32(1e-6))

        def backward(dy: np.ndarray) -> Any:
            dx = dy.astype(np.float32) * gamma32 * inverse
            dgamma = (dy.astype(np.float32) * x32 * inverse).sum(axis=tuple(range(dy.ndim - 1)))
            return dx.astype(x.dtype), dgamma.astype(gamma.dtype)

        return (x32 * inverse * gamma32).astype(x.dtype), backward

    found = diagnose(norm, "rms_norm")
    assert found.mistakes[0].name == "rms-norm-no-stretch"
    assert found.differing == ("dx",)
