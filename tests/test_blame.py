"""Which values inside a function of others are blamed for a wrong gradient, and which are not."""

from typing import Any

import numpy as np
import pytest
from common import draw

from minitransformer import verify


def wrong_rows(report: verify.Report) -> tuple[set[str], list[str]]:
    """The names of the wrong inputs, and those of the values to blame, in order."""
    inside = [row.name.partition(".")[2] for row in report.of_kind("intermediate") if not row.ok]
    return {row.name for row in report.of_kind("input") if not row.ok}, inside


ATTENTION = """
def forward(q, k, v):
    scale = 1.0 / np.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * scale
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    p = exponentials / exponentials.sum(-1, keepdims=True)
    return p @ v, (q, k, v, p, scale)

def backward(dout, cache):
    q, k, v, p, scale = cache
    dv = p.swapaxes(-1, -2) @ dout
    dp = dout @ v.swapaxes(-1, -2)
    dscores = p * (dp - (dp * p).sum(-1, keepdims=True))
    SCALED
    dq = dscores @ k
    dk = dscores.swapaxes(-1, -2) @ q
    return dq, dk, dv
"""
QKV = (draw(3, 4), draw(5, 4, seed=1), draw(5, 2, seed=2))
SCALINGS = {"rebound": "dscores = dscores * scale", "in place": "dscores *= scale", "named": "ds = dscores * scale"}


def attention(how: str, *edits: tuple[str, str]) -> Any:
    """Attention whose dscores are scaled in one of three ways, right or with mistakes."""
    source = ATTENTION.replace("SCALED", SCALINGS[how])
    if how == "named":
        source = source.replace("dscores @ k", "ds @ k").replace("dscores.swap", "ds.swap")
    for old, new in edits:
        assert source.count(old) == 1
        source = source.replace(old, new)
    scope: dict[str, Any] = {"np": np}
    exec(compile(source, "attention_of_a_user.py", "exec"), scope)
    return verify.from_pair(scope["forward"], scope["backward"])


NO_SUM = ("p * (dp - (dp * p).sum(-1, keepdims=True))", "p * dp")
TOO_LARGE = ("dp = dout @ v.swapaxes(-1, -2)", "dp = 1.5 * dout @ v.swapaxes(-1, -2)")


@pytest.mark.few(1)
@pytest.mark.parametrize("how", SCALINGS)
def test_what_is_scaled_afterwards_is_blamed_only_if_it_is_wrong(how: str) -> None:
    """After the scaling, dscores is the gradient of the scores before theirs, which have no name."""
    verify.gradients(attention(how), *QKV).assert_ok()
    q_alone = "ds @ k" if how == "named" else "dscores @ k"
    assert wrong_rows(verify.gradients(attention(how, (q_alone, f"2.0 * {q_alone}")), *QKV)) == ({"q"}, [])
    report = verify.gradients(attention(how, NO_SUM), *QKV)
    assert wrong_rows(report) == ({"q", "k"}, ["scores"])
    row = report["forward.scores"]  # with the numbers before the scaling, which are compared with it
    difference = abs(row.hand - row.numerical)
    assert difference > 0.05 and row.checked


def test_the_first_wrong_value_comes_first() -> None:
    """In backward dp comes before dscores, which inherits its mistake; in forward p comes after the scores."""
    with pytest.raises(AssertionError, match=r"dq, dk are wrong; the gradient of forward.p, forward.scores is wrong\n"):
        verify.check_gradients(attention("rebound", TOO_LARGE), *QKV)


def test_two_mistakes_in_a_row_blame_nobody_falsely() -> None:
    report = verify.gradients(attention("named", NO_SUM, ("ds @ k", "2.0 * ds @ k")), *QKV)
    assert wrong_rows(report) == ({"q", "k"}, ["scores"])  # dk shows it
    report = verify.gradients(
        attention("rebound", ("dq = dscores", "dq = 2.0 * dscores"), ("@ q\n", "@ q * 3.0\n")), *QKV
    )
    assert wrong_rows(report) == ({"q", "k"}, [])
    why = "not checked: its d... or grad_... may belong to something else: it explains no wrong gradient of an input"
    assert report["forward.scores"].problem == why


def test_a_gradient_that_is_not_used_is_not_to_blame() -> None:
    """dk is 0; dscores is right, and it was zeros before it was filled."""
    filled = ("dscores = p *", "dscores = np.zeros_like(p)\n    dscores[...] = p *")
    report = verify.gradients(attention("named", filled, ("dk = ds.swapaxes(-1, -2) @ q", "dk = 0.0 * k")), *QKV)
    assert wrong_rows(report) == ({"k"}, [])


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def lstm() -> Any:
    """Its di, df, dg and do belong to what goes into the gates, as most write it; it forgets what later steps add."""

    def forward(xs: np.ndarray, weights: np.ndarray) -> Any:
        n = weights.shape[1]
        h, c, tape, hs = np.zeros(n), np.zeros(n), [], []
        for x in xs:
            z = np.concatenate([h, x])
            i, f, g, o = *sigmoid(weights[:3] @ z), np.tanh(weights[3] @ z)
            before, c = c, f * c + i * g
            h = o * np.tanh(c)
            tape.append((z, i, f, g, o, before, c))
            hs.append(h)
        return np.stack(hs), (tape, weights, xs.shape)

    def backward(dhs: np.ndarray, cache: Any) -> Any:
        tape, weights, shape = cache
        n = weights.shape[1]
        dweights, dxs = np.zeros_like(weights), np.zeros(shape)
        for t in reversed(range(len(tape))):
            z, i, f, g, o, before, c = tape[t]
            dh = dhs[t]
            dc = dh * o * (1.0 - np.tanh(c) ** 2)
            do = dh * np.tanh(c) * o * (1.0 - o)
            dg = dc * i * (1.0 - g**2)
            di = dc * g * i * (1.0 - i)
            df = dc * before * f * (1.0 - f)
            all_gates = np.stack([di, df, dg, do])
            dweights += all_gates[:, :, None] * z
            dz = np.einsum("gn,gnz->z", all_gates, weights)
            dxs[t] = dz[n:]
        return dxs, dweights

    return verify.from_pair(forward, backward)


def test_gradients_before_the_activation_are_not_to_blame() -> None:
    arrays = (draw(2, 1), draw(4, 2, 3, seed=1))
    report = verify.gradients(lstm(), *arrays)
    assert wrong_rows(report) == ({"xs", "weights"}, [])
    assert {"forward.i[1]", "forward.g[1]", "forward.o[1]"} <= {row.name for row in report.rows}


def test_the_steps_of_a_loop_explain_an_error_together() -> None:
    def forward(x: np.ndarray) -> Any:
        tiles = []
        for i in range(0, len(x), 2):
            s = 2.0 * x[i : i + 2]
            tiles.append(np.tanh(s))
        return np.concatenate(tiles), tiles

    def backward(dout: np.ndarray, tiles: Any) -> Any:
        dx = []
        for i in reversed(range(len(tiles))):
            ds = dout[2 * i : 2 * i + 2] * (1.0 - tiles[i])
            dx.append(2.0 * ds)
        return np.concatenate(dx[::-1])

    report = verify.gradients(verify.from_pair(forward, backward), draw(6, 3))
    assert wrong_rows(report) == ({"x"}, ["s[2]", "s[1]", "s[0]"])


def rotated(x: np.ndarray, back: float = 1.0) -> np.ndarray:
    a, b = x[..., :2], x[..., 2:]
    return np.concatenate([0.6 * a - 0.8 * back * b, 0.6 * b + 0.8 * back * a], -1)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "more"), [(1.0, ""), (2.0, "; dq is wrong")])
def test_a_forward_that_writes_into_its_input_says_so_first(factor: float, more: str) -> None:
    def forward(q: np.ndarray) -> Any:
        q[...] = rotated(q)
        return q, None

    def backward(dy: np.ndarray, cache: None) -> Any:
        return factor * rotated(dy, -1.0)

    with pytest.raises(AssertionError) as raised:
        verify.check_gradients((forward, backward), draw(3, 4))
    first, *rest = str(raised.value).splitlines()
    assert first == f"forward: q was changed in place{more}"
    assert "dthe" not in str(raised.value) and "transposed" not in str(raised.value)
    assert more or rest[1] == "worst: q: was changed in place"


def test_nan_in_a_masked_row_stays_a_mistake_in_an_answer() -> None:
    def softmax(x: np.ndarray) -> Any:
        with np.errstate(invalid="ignore"):
            exponentials = np.exp(x - x.max(-1, keepdims=True))
        y = exponentials / exponentials.sum(-1, keepdims=True)
        return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True))

    x = draw(3, 4)
    x[1] = -np.inf
    found = verify.diagnose(softmax, "softmax", x)
    assert [mistake.name for mistake in found.mistakes] == ["softmax-nan-where-all-is-masked"] and not found.right
