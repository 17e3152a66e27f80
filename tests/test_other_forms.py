"""Functions that others wrote before the checker: pairs of forward and backward, objects, and the fixture for tests."""

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_ops import WRONG as WRONG_OPS
from common import draw, printed
from foreign_functions import FUNCTIONS, PAIR, WRONG, WRONG_NAMES, Function, assert_rejected_rightly, made
from tiers import first_of_each, in_one

import minitransformer
from minitransformer import verify
from minitransformer.check.verify.mistakes import Mistake
from minitransformer.verify import from_pair

ROOT = Path(__file__).parent.parent


def pair(function: Function, wrong: int | None = None) -> Any:
    scope = made(function, PAIR, wrong, xp=np)
    return from_pair(scope[function.name], scope["backward"])


# ------------------------------------------------------------------------------------------ right and wrong functions


def test_there_are_enough_of_them() -> None:
    assert len(FUNCTIONS) >= 30 and len(WRONG) >= 60 and len(OF_OURS) >= 200
    assert sum(bool(function.intermediates) for function in FUNCTIONS) >= 15


@pytest.mark.few(12)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_right_pairs_are_accepted(function: Function) -> None:
    report = verify.gradients(pair(function), *function.inputs())
    report.assert_ok()
    assert {f"{function.name}.{name}" for name in function.intermediates} <= {row.name for row in report.rows}
    assert not [row for row in report.rows if row.problem]


@pytest.mark.few(6)
@pytest.mark.parametrize(("function", "wrong"), WRONG, ids=WRONG_NAMES)
def test_wrong_pairs_are_rejected_at_the_worst_entry(function: Function, wrong: int) -> None:
    assert_rejected_rightly(verify.gradients(pair(function, wrong), *function.inputs()), function, wrong)


def of_ours(op: Any) -> Any:
    """An op of ours as a pair: the cache is its pullback in a list."""

    def forward(*inputs: Any, **options: Any) -> Any:
        y, pullback = op(*inputs, **options)
        return y, [pullback]

    return from_pair(forward, lambda dout, cache: cache[0](dout))


@pytest.mark.few(6)
@pytest.mark.parametrize("case", first_of_each((c for c in verify.CASES.values() if c.kind == "op"), variants=False))
def test_our_ops_as_pairs_are_accepted(case: verify.Case) -> None:
    setup = case.build(np.random.default_rng(0))
    verify.gradients(of_ours(setup.f), *setup.inputs, entrywise=8, **setup.options).assert_ok()


# Scores that are all masked make a NaN, which is refused in words.
OF_OURS = [mistake for mistake in WRONG_OPS if mistake.name != "softmax-nan-where-all-is-masked"]


@pytest.mark.few(1, slow=30)
@pytest.mark.parametrize("mistake", OF_OURS, ids=lambda mistake: mistake.name)
def test_our_ops_with_mistakes_as_pairs_are_rejected(mistake: Mistake) -> None:
    setup = verify.CASES[mistake.cases[0]].build(np.random.default_rng(1))
    f = of_ours(mistake.inside(setup.f))
    with np.errstate(all="ignore"):
        assert not verify.gradients(f, *setup.inputs, entrywise=8, seed=1, **setup.options).ok


# ----------------------------------------------------------------------------------------------------- forms of pairs

X, W = draw(3, 4), draw(4, 2, seed=1)


def test_pairs_inside_a_pair_are_looked_into() -> None:
    scope: dict[str, Any] = {"np": np}
    source = """
def affine_forward(x, w):
    out = x @ w
    return out, (x, w)
def affine_backward(dout, cache):
    x, w = cache
    dx = dout @ w.T
    dw = x.T @ dout
    return dx, dw
def relu_forward(a):
    out = np.maximum(a, 0.0)
    return out, a
def relu_backward(dout, cache):
    da = dout * (cache > 0.0) * FACTOR
    return da
def network(x, w):
    a, first = affine_forward(x, w)
    out, second = relu_forward(a)
    return out, (first, second)
def network_backward(dout, cache):
    first, second = cache
    da = relu_backward(dout, second)
    return affine_backward(da, first)
"""
    exec(compile(source, "<two pairs>", "exec"), scope)  # code of "<string>" is Python's own
    for factor, wrong in ((1.0, set()), (2.0, {"x", "w", "network.a", "relu_forward.a", "affine_forward.out"})):
        scope["FACTOR"] = factor
        report = verify.gradients(from_pair(scope["network"], scope["network_backward"]), X, W)
        wrong = wrong and wrong | {"affine_forward.x", "affine_forward.w"}
        assert {row.name for row in report.rows if not row.ok} == wrong
        assert report["relu_forward.a"].checked == "6 entries"


def test_gradients_may_come_in_a_dict_and_the_cache_first() -> None:
    def forward(x: np.ndarray, w: np.ndarray) -> Any:
        return x @ w, {"x": x, "w": w}

    def backward(cache: dict[str, np.ndarray], dout: np.ndarray) -> Any:
        return {"grad_w": cache["x"].T @ dout, "x": dout @ cache["w"].T}

    verify.gradients(from_pair(forward, backward), X, W).assert_ok()


def test_a_name_used_for_something_else_is_no_mistake() -> None:
    """As in flash attention, where forward calls P what is not yet divided, and backward the weights."""

    def forward(scores: np.ndarray) -> Any:
        p = np.exp(scores)
        output = p / p.sum(-1, keepdims=True)
        return output, (output,)

    def backward(doutput: np.ndarray, cache: Any) -> Any:
        (output,) = cache
        dp = doutput
        return output * (dp - (dp * output).sum(-1, keepdims=True))

    report = verify.gradients(from_pair(forward, backward), X)
    report.assert_ok()
    assert report["forward.p"].problem.startswith("not checked: its d... or grad_...")


def test_float32_says_what_it_cannot_see() -> None:
    for factor, right in ((1.0, True), (1.001, True), (1.1, False)):
        f = from_pair(
            lambda x: (np.tanh(x.astype(np.float32)), x),
            lambda dout, x, factor=factor: dout * (1.0 - np.tanh(x) ** 2) * np.float32(factor),
            dtype="float32",
        )
        report = verify.gradients(f, X)
        assert report.ok is right, str(report)
        assert "It computes in float32: errors below 1% of a gradient are not seen." in str(report)
        assert "float32" in report._repr_html_()


def test_it_can_be_stepped_through() -> None:
    softmax = next(function for function in FUNCTIONS if function.name == "softmax")
    text = str(minitransformer.step(pair(softmax), draw(2, 3)))
    assert "of x" in text and "grown" in text
    assert verify.diagnose(pair(softmax, 0), "softmax", X).mistakes[0].name == "softmax-no-sum"


# ------------------------------------------------------------------------------------------------------------ objects


class Affine:
    """Gradients on dW and db; float32 parameters."""

    def __init__(self) -> None:
        self.W = draw(4, 2, seed=1).astype(np.float32)
        self.b = np.zeros(2)

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.W + self.b

    def backward(self, dout: np.ndarray) -> np.ndarray:
        self.dW = self.x.T @ dout
        self.db = dout.sum(0)
        dx = dout @ self.W.T
        return dx


class Held:
    """A parameter as an object."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.grad = data, np.ones_like(data)


class Scale:
    """Adds to w.grad."""

    def __init__(self) -> None:
        self.w = Held(draw(2))

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x * self.w.data

    def backward(self, grad: np.ndarray) -> np.ndarray:
        self.w.grad += (grad * self.x).sum(0)
        return grad * self.w.data


class Network:
    """Layers, and params beside grads."""

    def __init__(self) -> None:
        self.layers = [Affine(), Scale()]
        self.params = {"shift": draw(2, seed=2)}

    def forward(self, x: np.ndarray) -> np.ndarray:
        for layer in self.layers:
            x = layer.forward(x)
        self.h = x + self.params["shift"]
        return np.tanh(self.h)

    def backward(self, dout: np.ndarray) -> np.ndarray:
        dh = dout * (1.0 - np.tanh(self.h) ** 2)
        self.grads = {"shift": dh.sum(0)}
        for layer in reversed(self.layers):
            dh = layer.backward(dh)
        return dh


def test_objects_are_checked_with_their_parameters() -> None:
    network = Network()
    report = verify.gradients(from_pair(network), X)
    report.assert_ok()
    names = {"params['shift']", "layers[0].W", "layers[0].b", "layers[1].w.data"}
    assert {row.name for row in report.of_kind("parameter")} == names
    assert "Affine.x" in {row.name for row in report.of_kind("intermediate")}
    assert network.layers[0].W.dtype == np.float32 and not hasattr(network, "grads")  # it is as it was


class Named:
    """Gradients on grad_W and b_grad."""

    share = 1.0

    def __init__(self) -> None:
        self.W, self.b = draw(4, 2, seed=1), np.zeros(2)

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.W + self.b

    def backward(self, dout: np.ndarray) -> np.ndarray:
        self.grad_W = self.x.T @ dout
        self.b_grad = self.share * dout.sum(0)
        return dout @ self.W.T


@pytest.mark.parametrize(("share", "wrong"), [(1.0, set()), (0.5, {"b"})])
def test_gradients_may_have_other_usual_names(share: float, wrong: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Named, "share", share)
    report = verify.gradients(from_pair(Named()), X)
    assert {row.name for row in report.of_kind("parameter")} == {"W", "b"}
    assert {row.name for row in report.rows if not row.ok} == wrong


class Normalised(Scale):
    """Its class mentions grad; running has no gradient, though there is a dict; that of U has no usual name."""

    def __init__(self) -> None:
        self.parameters = {"g": draw(2), "running": np.zeros(2)}
        self.gradients = {"g": np.ones(2)}
        self.U = draw(4, 2)

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.U * self.parameters["g"] + self.parameters["running"]

    def backward(self, grad: np.ndarray) -> np.ndarray:
        self.slope_of_u = self.x.T @ (grad * self.parameters["g"])
        self.gradients["g"] += (grad * (self.x @ self.U)).sum(0)
        return (grad * self.parameters["g"]) @ self.U.T


def test_what_has_no_gradient_is_named_as_unchecked() -> None:
    report = verify.gradients(from_pair(Normalised()), X)
    report.assert_ok()
    assert [row.name for row in report.of_kind("parameter")] == ["parameters['g']", "U"]
    assert "; not checked: parameters['running'] (backward leaves no gradient of it)\n" in str(report)


def test_a_wrong_gradient_on_an_attribute_is_rejected() -> None:
    class Mean(Affine):
        def backward(self, dout: np.ndarray) -> np.ndarray:
            dx = super().backward(dout)
            self.db = dout.mean(0)
            return dx

    report = verify.gradients(from_pair(Mean()), X)
    assert {row.name for row in report.rows if not row.ok} == {"b"}


def test_one_array_may_be_returned_and_kept_as_a_gradient() -> None:
    class Sum:
        def __init__(self) -> None:
            self.b = draw(3, 4)

        def forward(self, x: np.ndarray) -> np.ndarray:
            return np.tanh(x + self.b)

        def backward(self, dout: np.ndarray) -> np.ndarray:
            self.db = dout * (1.0 - np.tanh(X + self.b) ** 2)
            return self.db

    verify.gradients(from_pair(Sum()), X).assert_ok()


# ---------------------------------------------------------------------------------------------------------- bad input


GENERATOR = np.random.default_rng(1)


class Elsewhere:
    """As an array on another device is: NumPy cannot read it."""

    device, shape, dtype = "gpu:1", (3, 4), np.dtype(float)


@in_one(
    "backward, said",
    [
        (lambda dout, cache: 2.0 * dout[:2], r"the gradient has shape \(2, 4\), its array \(3, 4\)"),
        (lambda dout, cache: Elsewhere(), "the gradient is a .*[.]Elsewhere of float64 on gpu:1, not a floating-point"),
        (lambda dout, cache: 2.0 * noisy(dout)[0], "when called again; it draws random numbers of its own"),
        (lambda dout, cache: 2.0 * dout * random.random(), "when called again; it draws random numbers of its own"),
        (lambda dout, cache: 2.0 * dout * GENERATOR.random(), "when called again; it keeps state from call to call"),
    ],
    ids=["shape", "device", "random", "random of Python", "state"],
)
def test_a_gradient_that_is_none_is_wrong_and_says_why(backward: Any, said: str) -> None:
    report = verify.gradients(from_pair(lambda x: (2.0 * x, None), backward), X)
    assert not report.ok and re.search(said, str(report)), str(report)


class Narrow(Affine):
    """All gradients are right; differences of its float32 output would call them wrong."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return super().forward(x).astype(np.float32)


def wrong_shape_of_a_parameter() -> Any:
    class Sideways(Affine):
        def backward(self, dout: np.ndarray) -> np.ndarray:
            self.dW, self.db = dout.T @ self.x, dout.sum(0)
            return dout @ self.W.T

    return from_pair(Sideways())


def noisy(x: np.ndarray) -> Any:
    return x + np.random.normal(size=x.shape), x  # noqa: NPY002


def remembering() -> Any:
    calls: list[int] = []

    def counting(x: np.ndarray) -> Any:
        calls.append(1)
        return x * len(calls), x

    return counting


class Forgetful(Affine):
    """Its backward draws anew how much it passes on."""

    def backward(self, dout: np.ndarray) -> np.ndarray:
        return super().backward(dout * np.random.default_rng().random(dout.shape))


class Growing(Affine):
    """The gradient of b is added to those of earlier calls, in an attribute that nobody sets to zero."""

    sums = np.zeros(2)

    def backward(self, dout: np.ndarray) -> np.ndarray:
        dx = super().backward(dout)
        Growing.sums = Growing.sums + self.db
        self.db = Growing.sums
        return dx


def growing() -> Any:
    calls: list[int] = []

    def longer(x: np.ndarray) -> Any:
        calls.append(1)
        return np.ones(len(calls)) * x.sum(), x

    return longer


def failing(x: np.ndarray) -> Any:
    return x[7], x


def passed_on(dout: np.ndarray, cache: Any) -> Any:
    return dout


BAD = [
    (
        lambda: from_pair(lambda x: (Elsewhere(), x), passed_on),
        "must return a floating-point array, or several, got a .*[.]Elsewhere of float64 on gpu:1",
    ),
    (lambda: from_pair(failing, passed_on), "failing: forward does not run: IndexError: index 7 is out of bounds"),
    (lambda: from_pair(lambda x: (x, x), lambda d, c: d[9]), "<lambda>: backward does not run: IndexError"),
    (lambda: from_pair(lambda x: x, passed_on), r"<lambda> must return \(output, cache\), got an array of float64"),
    (lambda: from_pair(lambda x: ([1], x), passed_on), "must return a floating-point array, or several, got list"),
    (
        lambda: from_pair(lambda x: (x.astype(np.float32), x), passed_on),
        r'computes in float32 although its inputs are float64; with from_pair\(f, dtype="float32"\)',
    ),
    (lambda: from_pair(Narrow()), "Narrow computes in float32 although its inputs are float64"),
    (lambda: from_pair(noisy, passed_on), "noisy gives a different output each .* draws random numbers of its own"),
    (
        lambda: from_pair(remembering(), passed_on),
        "counting gives a different output each .* it keeps state from run to",
    ),
    (lambda: from_pair(growing(), passed_on), r"longer gives a different output .* from \(\d+,\) to \(\d+,\)"),
    (lambda: from_pair(Affine), "got the class Affine; make an object first"),
    (
        lambda: from_pair(3),
        "expected two functions, forward and backward, or one object that has them as methods, got 3",
    ),
    (lambda: from_pair(failing, 3), "expected two functions, forward and backward, got .* and 3"),
    (lambda: from_pair(failing, passed_on, dtype="float8"), "dtype must be one of float64, .*, bfloat16, got 'float8'"),
    (
        wrong_shape_of_a_parameter,
        r"left an array of float64 of shape \(2, 4\) as the gradient of W, which has .* \(4, 2\)",
    ),
]


@in_one("make, message", BAD, ids=[str(i) for i in range(len(BAD))])
def test_what_cannot_be_checked_says_why(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        verify.gradients(make(), X)


def test_an_object_whose_backward_is_unlike_itself_says_why() -> None:
    report = verify.gradients(from_pair(Growing()), X)
    assert "called again; it keeps state from call to call" in report["b"].problem
    assert report["x"].ok and report["W"].ok
    assert "; it draws random numbers of its own" in verify.gradients(from_pair(Forgetful()), X)["x"].problem


class Loss:
    """Half the sum of squares, as a number of Python."""

    def __init__(self, wrong: float) -> None:
        self.wrong = wrong

    def forward(self, x: np.ndarray) -> float:
        self.x = x
        return float(0.5 * (x * x).sum())

    def backward(self, dout: float) -> np.ndarray:
        return self.wrong * dout * self.x


class Embedded:
    """Embeddings of places, whose gradient is the array that backward was given."""

    def __init__(self, wrong: float) -> None:
        self.W, self.wrong = draw(3, 4), wrong

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x + self.W

    def backward(self, dout: np.ndarray) -> np.ndarray:
        self.dW = dout if self.wrong == 1.0 else self.wrong * dout
        return dout


class Whole:
    """A model with its loss, the mean square: nobody gives backward a gradient."""

    def __init__(self, wrong: float) -> None:
        self.W, self.wrong = draw(4, 2), wrong

    def forward(self, x: np.ndarray) -> float:
        self.x, self.y = x, x @ self.W
        return float((self.y**2).mean())

    def backward(self) -> np.ndarray:
        dy = 2.0 * self.y / self.y.size
        self.dW = self.wrong * self.x.T @ dy
        return dy @ self.W.T


@pytest.mark.parametrize("make", [Embedded, Whole])
def test_right_objects_of_other_habits_are_right(make: Any) -> None:
    """They were refused, or called wrong."""
    verify.check_gradients(make(1.0), X, everything=True)
    assert [row.name for row in verify.gradients(from_pair(make(2.0)), X).rows if row.is_wrong] == ["W"]


def test_gradients_may_be_none_where_there_is_none_and_numbers_of_numbers() -> None:
    """As in PyTorch, backward returned None for ids and for a bias that was left out; they were called wrong."""

    def look_up(table: np.ndarray, ids: np.ndarray, bias: Any = None) -> Any:
        return table[ids] + (0.0 if bias is None else bias), (table.shape, ids, bias is None)

    def backward(wrong: float) -> Any:
        def gradients(dout: np.ndarray, cache: Any) -> Any:
            dtable = np.zeros(cache[0])
            np.add.at(dtable, cache[1], dout)
            return wrong * dtable, None, None if cache[2] else dout.sum(0)

        return gradients

    for more in ((), (None,), (draw(2),)):
        for wrong in (1.0, 2.0):
            f = from_pair(look_up, backward(wrong))
            assert verify.gradients(f, draw(5, 2), np.array([3, 0, 3]), *more).ok is (wrong == 1.0)
    scaled = from_pair(lambda x, t: (x * t, (x, t)), lambda dy, c: (dy * c[1], float((dy * c[0]).sum())))
    verify.gradients(scaled, X, np.array(2.0)).assert_ok()
    told = verify.gradients(scaled, X, 2.0)["inputs"].problem
    assert told.endswith("make t an array to have its gradient checked: numpy.array(t)")


def test_a_loss_may_be_a_number() -> None:
    """It was refused."""
    for wrong in (1.0, 2.0):
        loss = Loss(wrong)
        pair = from_pair(lambda x: (float(0.5 * (x * x).sum()), x), lambda dout, x: wrong * dout * x)  # noqa: B023
        assert [verify.gradients(f, X).ok for f in (from_pair(loss), pair)] == [wrong == 1.0] * 2


def keeping(key: Any) -> Any:
    """A pair that keeps the slope of tanh under a key of x."""
    kept: dict[Any, np.ndarray] = {}

    def forward(x: np.ndarray) -> Any:
        return np.tanh(x), kept.setdefault(key(x), 1.0 - np.tanh(x) ** 2)

    return from_pair(forward, lambda dout, slope: dout * slope)


class Keeping(Affine):
    """Keeps a table by the number of rows and, where it is stale, what it first saw of x or W."""

    def __init__(self, stale: str, most: int = 10) -> None:
        super().__init__()
        self.stale, self.kept, self.left = stale, dict[Any, np.ndarray](), most

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.left -= 1
        assert self.left >= 0
        self.kept.setdefault("x", x)
        self.kept.setdefault("W", self.W.T.copy())
        table = self.kept.setdefault(len(x), np.cos(np.arange(len(x)))[:, None])
        return super().forward(x + table)

    def backward(self, dout: np.ndarray) -> np.ndarray:
        dx = super().backward(dout)
        if self.stale == "x":
            self.dW = (self.kept["x"] + self.kept[len(dout)]).T @ dout
        return dout @ self.kept["W"] if self.stale == "W" else dx


def test_what_is_kept_of_an_earlier_call_is_seen() -> None:
    """They passed: what they kept first was of the very numbers of the check."""
    assert verify.gradients(keeping(lambda x: x.tobytes()), X).ok
    assert not verify.gradients(keeping(lambda x: x.shape), X).ok
    verify.gradients(from_pair(Keeping("")), X).assert_ok(everything=True)
    verify.gradients(from_pair(Keeping("", most=1)), X).assert_ok(everything=True)  # runs once only
    assert [row.name for row in verify.gradients(from_pair(Keeping("x")), X).rows if row.is_wrong] == ["W"]
    assert [row.name for row in verify.gradients(from_pair(Keeping("W")), X).rows if row.is_wrong] == ["x"]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"verify.from_{name} needs {name}: pip install {name}"):
        getattr(verify, f"from_{name}")(lambda x: x)


# -------------------------------------------------------------------------------------------------------- the fixture

TEST_FILE = """
import numpy as np

Q, K, V = (np.random.default_rng(i).normal(size=shape) for i, shape in enumerate([(5, 4), (7, 4), (7, 3)]))

def forward(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return weights @ v, (q, k, v, weights)

def backward(doutput, cache):
    q, k, v, weights = cache
    dweights = doutput @ v.T
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    return dscores @ k FACTOR, dscores.T @ q / np.sqrt(q.shape[-1]), weights.T @ doutput

def test_attention(check_gradients):
    check_gradients((forward, backward), Q, K, V)

def test_what_cannot_run(check_gradients):
    check_gradients((forward, backward), Q, K, V[:3])
"""


@pytest.mark.slow
def test_test_files_that_know_nothing_else_of_us(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST_FILE.replace("FACTOR", ""))
    right = TEST_FILE.replace("FACTOR", "/ np.sqrt(q.shape[-1])").partition("def test_what_cannot")[0]
    (tmp_path / "test_right.py").write_text(right)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "minitransformer.pytest_plugin", "-p", "no:cacheprovider"]
    command += [word for name in ("anyio", "xdist", "hypothesispytest") for word in ("-p", f"no:{name}")]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "2 failed, 1 passed" in said and "test_right" not in said
    assert re.search(r"E +worst: dq\[\d, \d\] is -?[\d.]+ by hand and -?[\d.]+ by finite differences", said), said
    assert (
        re.search(r"E +k +input +\(7, 4\) +28 entries .* ok\n", said)
        and "AssertionError: forward: dq is wrong\n" in said
    )
    known = "does what attention does with a known mistake: dq lacks the factor 1/√d_k by which the scores were scaled"
    assert known in said and "(attention-dq-not-scaled)" in said
    assert "ValueError: forward: forward does not run: ValueError: matmul: Input operand 1" in said
    assert "expectation.py" not in said  # nothing of our own frames


def test_the_plugin_is_declared_and_imports_nothing_early() -> None:
    declared = re.search(
        r"\[project.entry-points.pytest11\]\n\"(\S+)\" = \"(\S+)\"", (ROOT / "pyproject.toml").read_text()
    )
    assert declared is not None and declared[1] == declared[2] == "minitransformer.pytest_plugin"
    loaded = "print([m for m in sys.modules if 'numpy' == m or '.verify' in m])"
    assert printed(f"import sys, minitransformer.pytest_plugin; {loaded}") == "[]\n"
