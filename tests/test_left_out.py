"""No silent pass: numbers that hide terms are drawn anew, gradients and outputs found, or the first line says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw
from tiers import in_one

from minitransformer import ops, verify
from minitransformer.check.referee.from_pair import from_pair
from minitransformer.layers import Module, Parameter

X = draw(3, 4)


def first_line(report: verify.Report) -> str:
    return str(report).split("\n", 1)[0]


def wrong_in(report: verify.Report) -> set[str]:
    """The names of the inputs and parameters whose gradients are wrong."""
    return {row.name for row in report.rows if not row.ok and row.kind != "intermediate"}


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> Any:
    r = 1.0 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    h = (x - x.mean(-1, keepdims=True)) * r
    return gamma * h + beta, (r, h, gamma)


def norm_backward(right: bool) -> Callable[..., Any]:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        r, h, gamma = cache
        g = dy * gamma if right else dy
        dx = r * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
        return dx if right else dx * gamma, (dy * h).sum(0), dy.sum(0)

    return backward


class LayerNorm:
    """γ and β as layers are built; γ stands outside the sums if it is not right."""

    def __init__(self, right: bool) -> None:
        self.gamma, self.beta, self.right = np.ones(4), np.zeros(4), right

    def forward(self, x: np.ndarray) -> np.ndarray:
        y, self.cache = norm(x, self.gamma, self.beta)
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        dx, self.dgamma, self.dbeta = norm_backward(self.right)(dy, self.cache)
        return dx


class LowRank:
    """B = 0 as built: then nothing flows through A."""

    def __init__(self, right: bool) -> None:
        self.A, self.B, self.factor = draw(4, 2, seed=1), np.zeros((2, 3)), 1.0 if right else 7.0
        self.dA = self.dB = None

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.A @ self.B

    def backward(self, dy: np.ndarray) -> np.ndarray:
        self.dB, self.dA = (self.x @ self.A).T @ dy, self.factor * self.x.T @ (dy @ self.B.T)
        return self.factor * dy @ self.B.T @ self.A.T


class Scaled(Module):
    """A module of ours: y = x · gain², with the slope of gain alone if it is not right."""

    def __init__(self, right: bool, only_ones: bool = False) -> None:
        self.gain, self.right, self.only_ones = Parameter(np.ones(4, np.float32)), right, only_ones

    def __call__(self, x: np.ndarray) -> Any:
        gain = self.gain.value
        if self.only_ones and abs(gain - 1.0).max() > 0.1:
            raise RuntimeError("only ones")

        def backward(dy: np.ndarray) -> np.ndarray:
            self.gain.grad += 2.0 * (dy * x * gain).sum(0)
            return dy * (gain * gain if self.right else gain)

        return x * gain * gain, backward


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(("make", "wrong", "hiding"), [
    (lambda right: (from_pair(LayerNorm(right)), X), {"x"}, "gamma, beta are"),
    (lambda right: (from_pair(norm, norm_backward(right)), X, np.ones(4), np.zeros(4)), {"x"}, "gamma, beta are"),
    (lambda right: (from_pair(LowRank(right)), X), {"x", "A"}, "B is"),
    (lambda right: (Scaled(right), X), {"x"}, "gain is"),
    (lambda right: (Scaled(right).__call__, X), {"x"}, "gain is"),
], ids=["object", "arrays", "low rank", "module", "method"])  # fmt: skip
def test_a_mistake_that_ones_and_zeros_hide_is_seen(make: Any, wrong: set[str], hiding: str, right: bool) -> None:
    report = verify.gradients(*make(right))
    assert wrong_in(report) == (set() if right else wrong)
    assert (hiding in report.note) is not right and report.unchecked == ()


def test_a_wrong_function_of_one_hot_rows_is_seen_and_targets_stay_targets() -> None:
    """W = 1 hides a forgotten transpose. Targets sum to 1 also when drawn anew, as p - t asks for."""

    def product(right: bool) -> Any:
        return from_pair(lambda x, w: (x @ w, (x, w)), lambda d, c: (d @ (c[1].T if right else c[1]), c[0].T @ d))

    verify.gradients(product(True), X, np.eye(4)).assert_ok()
    assert wrong_in(verify.gradients(product(False), X, np.eye(4))) == {"x"}

    def entropy(logits: np.ndarray, targets: np.ndarray) -> Any:
        p = ops.softmax(logits)[0]
        return np.array(-(targets * np.log(p)).sum()), (p, targets)

    f = from_pair(entropy, lambda d, c: (d * (c[0] - c[1]), -d * np.log(c[0])))
    for targets in (np.eye(4)[[0, 2, 1]], np.full((3, 4), 0.25)):
        report = verify.gradients(f, X, targets)
        report.assert_ok(everything=True)


def pooled(right: bool) -> Any:
    """The mean of the first positions of each row; wrong: the gradient reaches the others, too."""

    def forward(x: np.ndarray, mask: np.ndarray) -> Any:
        if mask.ndim == 1:
            mask = np.arange(x.shape[1]) < mask[:, None]
        share = (mask / mask.sum(1, keepdims=True))[:, :, None]
        return (x * share).sum(1), np.broadcast_to(share if right else share.max(1, keepdims=True), x.shape)

    return from_pair(forward, lambda dy, share: dy[:, None] * share)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("mask", [np.ones((2, 3), bool), np.ones((2, 3), int), np.full(2, 3)], ids=["bool", "1", "3"])
def test_a_mask_that_hides_nothing_is_no_mask(mask: np.ndarray, right: bool) -> None:
    """Only positions that are left out show that their gradients are wrong. Ones beside them are drawn as well."""
    for report in (
        verify.gradients(pooled(right), draw(2, 3, 4), mask),
        verify.gradients(pooled(right), draw(2, 3, 4), mask=mask),
    ):
        assert report.ok is right and ("mask is constant" in report.note) is not right

    def scaled(x: np.ndarray, gamma: np.ndarray, n: np.ndarray) -> Any:
        assert (n == 3).all()
        y, cache = norm(x, gamma, np.zeros(4))
        return y, cache

    f = from_pair(scaled, lambda dy, cache: norm_backward(right)(dy, cache)[:2])
    report = verify.gradients(f, X, np.ones(4), np.full(2, 3))
    assert report.ok is right and "what n hides (constant or" in first_line(report)


def test_ids_that_are_all_different_hide_that_gradients_are_added() -> None:
    """Rows of places that must differ may be written, not added: so it is told, and wrong only where an op is named."""

    def rows(added: bool) -> Any:
        def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
            ids, dtable = cache[0], np.zeros(cache[1])
            np.add.at(dtable, ids, dy) if added else dtable.__setitem__(ids, dy)
            return dtable

        return from_pair(lambda ids, table: (table[ids], (ids, table.shape)), backward)

    ids, order = np.array([3, 0, 1]), np.array([3, 0, 2, 1])
    verify.check_gradients(rows(True), ids, draw(5, 2), op="embedding", everything=True)
    verify.gradients(rows(False), order, draw(4, 2)).assert_ok(everything=True)
    report = verify.gradients(rows(False), ids, draw(5, 2))
    assert report.ok and "not checked: repeated ids (where one occurs twice, dtable is wrong)" in first_line(report)
    with pytest.raises(AssertionError, match="where one occurs twice, dtable is wrong"):
        verify.check_gradients(rows(False), ids, draw(5, 2), op="embedding")


def affine(db: Callable[[np.ndarray], np.ndarray]) -> Any:
    return lambda x, w, b: (x @ w + b, lambda dy: (dy @ w.T, x.T @ dy, db(dy)))


def test_an_axis_of_length_one_hides_sums_and_what_is_wrong_beyond_is_told() -> None:
    """dy[0] is the gradient of a bias as long as there is one row. A row per example, or for all, looks alike."""
    one, w, b = X[:1], draw(4, 3), draw(3)
    verify.gradients(affine(lambda dy: dy.sum(0)), one, w, b).assert_ok(everything=True)
    report = verify.check_gradients(affine(lambda dy: dy[0]), one, w, b)
    assert first_line(report).endswith("not checked: a length above 1 of axis 0 (of x; with 2 there, db is wrong)")
    for told, sums in ((), True), (("whether db is a sum along axis 0",), False):
        f = affine(lambda dy: dy.sum(0, keepdims=True) if sums else dy)  # noqa: B023
        assert verify.gradients(f, one, w, b[None]).unchecked == told
    only = draw(4, 1), draw(1)  # one output: w and b are longer together
    verify.gradients(affine(lambda dy: dy.sum(0)), X, *only).assert_ok(everything=True)
    squares = from_pair(lambda y: ((y**2).mean(), y), lambda d, y: 2.0 * d * y / len(y))
    verify.gradients(squares, X[:, :1]).assert_ok(everything=True)  # one output is meant
    ids = np.array([[2, 0, 2]])
    f = from_pair(lambda w, ids: (w[ids], w.shape), lambda d, shape: ids_added(shape, ids[0], d[0]))
    assert "of ids; with 2 there, dw is wrong" in first_line(verify.gradients(f, w, ids))
    alone = from_pair(lambda x: (x[0].sum(0), x.shape), lambda dy, shape: np.broadcast_to(dy, shape[1:])[None])
    verify.gradients(alone, X[None]).assert_ok(everything=True)  # a function of one sequence

    def turned(sign: float) -> Any:
        def turn(x: np.ndarray, way: float) -> np.ndarray:
            angle = way * np.arange(x.shape[1])[:, None]
            return np.concatenate([np.cos(angle) * x[..., :2] - np.sin(angle) * x[..., 2:],
                                   np.sin(angle) * x[..., :2] + np.cos(angle) * x[..., 2:]], -1)  # fmt: skip

        return lambda x: (turn(x, 1.0), lambda dy: turn(dy, sign))

    verify.gradients(turned(-1.0), X[:, None]).assert_ok(everything=True)
    assert "of x; with 2 there, dx is wrong" in first_line(verify.gradients(turned(1.0), X[:, None]))
    losses = [lambda z, t, n=n: _entropy(z, t, n) for n in (len, lambda z: 1)]  # type: ignore[misc]
    found = [verify.gradients(loss, one, np.eye(4)[:1]).unchecked for loss in losses]
    assert found == [("whether dt is a sum along axis 0",), ("a length above 1 of axis 0",)]


def ids_added(shape: Any, ids: np.ndarray, d: np.ndarray) -> np.ndarray:
    dtable = np.zeros(shape)
    np.add.at(dtable, ids, d)
    return dtable


def _entropy(z: np.ndarray, t: np.ndarray, n: Callable[[np.ndarray], int]) -> Any:
    """A mean over rows, of which backward takes the number to be n."""
    p = ops.softmax(z)[0]
    return np.array(-(t * np.log(p)).sum() / len(z)), lambda d: (d * (p - t) / n(z), -d * np.log(p) / n(z))


def test_parameters_are_as_before_even_if_nothing_else_runs() -> None:
    module = Scaled(True, only_ones=True)
    value, grad = module.gain.value, module.gain.grad
    report = verify.gradients(module, X)
    assert module.gain.value is value and module.gain.grad is grad and (value == 1.0).all() and not grad.any()
    assert report.ok and "; not checked: what gain hides (constant or one-hot, and f does not run" in first_line(report)
    with pytest.raises(AssertionError, match="Scaled: not everything was checked: what gain hides\nScaled: all 2"):
        report.assert_ok(everything=True)
    layer = LayerNorm(False)
    verify.gradients(from_pair(layer), X)
    assert (layer.gamma == 1.0).all() and not layer.beta.any() and not hasattr(layer, "dgamma")


def test_inputs_that_must_be_what_they_are_do_not_keep_parameters_from_being_drawn() -> None:
    class Masked(LayerNorm):
        def forward(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:  # type: ignore[override]
            if abs(mask - 1.0).max() > 0.1:
                raise ValueError("neither hidden nor seen")
            self.mask, self.product = mask, x
            return super().forward(x * mask)

        def backward(self, dy: np.ndarray) -> Any:
            dx = super().backward(dy)
            return dx * self.mask, dx * self.product

    assert wrong_in(verify.gradients(from_pair(Masked(False)), X, np.ones((3, 4)))) == {"x", "mask"}
    report = verify.gradients(from_pair(Masked(True)), X, np.ones((3, 4)))
    assert report.ok and report.unchecked == ("what mask hides",)
    with pytest.raises(AssertionError, match="not everything was checked: what mask hides"):
        verify.check_gradients(Masked(True), X, np.ones((3, 4)), everything=True)


def test_a_mistake_that_was_hidden_has_its_name() -> None:
    with pytest.raises(AssertionError, match="layer-norm-gamma-outside-means"):
        verify.check_gradients((norm, norm_backward(False)), X, np.ones(4), np.zeros(4))


class Dense:
    """Keeps the gradients under names of its own."""

    def __init__(self, factor: float = 1.0, n: int = 3) -> None:
        self.kernel, self.offset, self.factor = draw(4, n, seed=1), np.zeros(n), factor
        self.moments = [np.zeros((4, n))]  # of an optimiser: forward does not use it
        self.kept: dict[str, np.ndarray] = {}

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return np.tanh(x @ self.kernel + self.offset)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        dz = dy * (1.0 - np.tanh(self.x @ self.kernel + self.offset) ** 2)
        self.kept["dLdW"], self.slope = self.factor * self.x.T @ dz, dz.sum(0)
        self.all_slopes = [self.slope]
        return dz @ self.kernel.T


class Stack:
    """Equal layers: shapes alone do not tell their gradients apart."""

    def __init__(self, *factors: float) -> None:
        self.layers = [Dense(factor, 4) for factor in factors]

    def forward(self, x: np.ndarray) -> np.ndarray:
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, dy: np.ndarray) -> np.ndarray:
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy


def test_gradients_are_found_by_what_backward_leaves() -> None:
    report = verify.check_gradients(Dense(), X, everything=True)
    assert {row.name for row in report.of_kind("parameter")} == {"kernel", "offset"}
    assert (
        report.note == "Gradients found by what backward left: that of kernel in kept['dLdW'], that of offset in slope."
    )
    with pytest.raises(AssertionError, match="dkernel is wrong"):
        verify.check_gradients(Dense(2.0), X)
    verify.check_gradients(Stack(1.0, 1.0), X, everything=True)
    assert wrong_in(verify.gradients(from_pair(Stack(1.0, 2.0)), X)) == {"layers[1].kernel"}


class Late:
    """Makes its weights when it first runs."""

    def __init__(self, factor: float) -> None:
        self.factor, self.layer = factor, dict[str, np.ndarray]()

    def forward(self, x: np.ndarray) -> np.ndarray:
        if not self.layer:
            self.layer = {"W": np.random.default_rng().normal(size=(x.shape[1], 3))}
        self.x = x
        return np.tanh(x @ self.layer["W"])

    def backward(self, dy: np.ndarray) -> np.ndarray:
        dz = dy * (1.0 - np.tanh(self.x @ self.layer["W"]) ** 2)
        self.left = self.factor * self.x.T @ dz
        return dz @ self.layer["W"].T


class LateNamed(Late):
    def backward(self, dy: np.ndarray) -> np.ndarray:
        dx = super().backward(dy)
        self.dlayer = {"W": self.left}
        return dx


class Slotted:
    """Its attributes are in no dict."""

    __slots__ = ("W", "dW", "factor", "x")

    def __init__(self, factor: float) -> None:
        self.W, self.factor = draw(4, 3), factor

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.W

    def backward(self, dy: np.ndarray) -> np.ndarray:
        self.dW = self.factor * self.x.T @ dy
        return dy @ self.W.T


@pytest.mark.parametrize(("make", "name"), [(Late, "layer['W']"), (LateNamed, "layer['W']"), (Slotted, "W")])
def test_parameters_that_come_late_or_in_slots_are_checked(make: Any, name: str) -> None:
    """They went unchecked, and nothing said so."""
    report = verify.check_gradients(make(1.0), X, everything=True)
    assert [row.name for row in report.of_kind("parameter")] == [name]
    assert wrong_in(verify.gradients(from_pair(make(2.0)), X)) == {name}


class TwoLayers:
    """Two matrices of one shape, and gradients under other keys."""

    def __init__(self, names: Any, keys: Any) -> None:
        self.matrices, self.names, self.keys = dict(zip(names, draw(2, 4, 4, seed=1), strict=True)), names, keys
        self.slopes: dict[Any, np.ndarray] = {}

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x, self.h = x, x @ self.matrices[self.names[0]]
        return self.h @ self.matrices[self.names[1]]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        dh = dy @ self.matrices[self.names[1]].T
        self.slopes |= dict(zip(self.keys, (self.x.T @ dh, self.h.T @ dy), strict=False))
        return dh @ self.matrices[self.names[0]].T


@pytest.mark.parametrize(("names", "keys"), [((0, 1), (0, 1)), (("W1", "W2"), ("of W1", "of W2"))])
def test_gradients_of_one_shape_are_told_apart_by_place_and_name(names: Any, keys: Any) -> None:
    verify.gradients(from_pair(TwoLayers(names, keys)), X).assert_ok(everything=True)


def test_what_is_not_found_stands_in_the_first_line() -> None:
    said = first_line(verify.gradients(from_pair(TwoLayers((0, 1), "ab")), X))
    assert "; not checked: matrices[0], matrices[1] (its gradient may be slopes['a'] or slopes['b']; call it d" in said
    said = first_line(verify.gradients(from_pair(TwoLayers((0, 1), "a")), X))
    assert said.endswith(
        "matrices[0], matrices[1] (slopes['a'] may be its gradient or that of another; call it d and its name)"
    )

    class Forgotten(Dense):
        def backward(self, dy: np.ndarray) -> np.ndarray:
            dx = super().backward(dy)
            self.kept.clear()
            return dx

    said = first_line(verify.gradients(from_pair(Forgotten()), X))
    assert said.endswith("; not checked: kernel (backward leaves no gradient of it)")

    class Learns(Dense):
        def backward(self, dy: np.ndarray) -> np.ndarray:
            dx = super().backward(dy)
            self.offset -= 0.1 * self.slope
            del self.slope
            return dx

    assert "; not checked: offset (backward changes it; let" in first_line(verify.gradients(from_pair(Learns()), X))


def test_what_belongs_to_another_is_not_taken_for_a_gradient() -> None:
    """m has the shape of the input, of its gradient and of the upstream gradient."""

    class Drop:
        def __init__(self) -> None:
            self.m = (draw(3, 4, seed=1) > 0.0) * 2.0

        def forward(self, inputs: np.ndarray) -> np.ndarray:
            return inputs * self.m

        def backward(self, dvalues: np.ndarray) -> None:
            self.dvalues, self.dinputs = dvalues.copy(), dvalues * self.m

    report = verify.gradients(from_pair(Drop()), X)
    assert report.ok and report.unchecked == ("m",)


class Silent:
    """Returns nothing: the output and the gradient of the input are attributes."""

    def __init__(self, factor: float = 1.0) -> None:
        self.weights, self.biases, self.factor = draw(4, 4, seed=1), np.zeros((1, 4)), factor

    def forward(self, inputs: np.ndarray) -> None:
        self.inputs, self.before = inputs, inputs @ self.weights + self.biases
        self.output, self.dinputs = np.tanh(self.before), np.zeros_like(inputs)

    def backward(self, dvalues: np.ndarray) -> None:
        self.dbefore = dvalues * (1.0 - self.output**2)
        self.dweights, self.dbiases = self.inputs.T @ self.dbefore, self.dbefore.sum(0, keepdims=True)
        self.dinputs[...] = self.factor * self.dbefore @ self.weights.T  # the array of every call


def test_objects_that_return_nothing_are_checked() -> None:
    report = verify.check_gradients(Silent(), X, everything=True)
    assert {row.name for row in report.rows if row.kind != "intermediate"} == {"inputs", "weights", "biases"}
    assert wrong_in(verify.gradients(from_pair(Silent(2.0)), X)) == {"inputs"}

    class Nothing(Silent):
        def forward(self, inputs: np.ndarray) -> None:
            super().forward(inputs)
            self.result = self.output
            del self.output

    with pytest.raises(TypeError, match="got NoneType; let forward return it, as in `return self"):
        verify.check_gradients(Nothing(), X)


def weights_and_logsumexp(x: np.ndarray) -> Any:
    log = np.log(np.exp(x).sum(-1))
    return np.exp(x - log[:, None]), log


def backward_of_both(dp: np.ndarray, dlog: Any, p: np.ndarray) -> np.ndarray:
    dx = p * (dp - (dp * p).sum(-1, keepdims=True))
    return dx if dlog is None else dx + dlog[:, None] * p


def three(x: np.ndarray) -> Any:
    p, log = weights_and_logsumexp(x)
    return p, log, p


def pair_of_outputs(x: np.ndarray) -> Any:
    p, log = weights_and_logsumexp(x)
    return (p, log), p


class Both:
    """Forward returns two arrays; backward takes two gradients."""

    forgets = False

    def forward(self, x: np.ndarray) -> Any:
        self.p, log = weights_and_logsumexp(x)
        return self.p, log

    def backward(self, dp: np.ndarray, dlog: Any = None) -> np.ndarray:
        return backward_of_both(dp, None if self.forgets else dlog, self.p)


class BothInOne(Both):
    """Backward takes a tuple."""

    def backward(self, d: Any) -> np.ndarray:  # type: ignore[override]
        dp, dlog = d
        return super().backward(dp, dlog)


class Forgets(Both):
    forgets = True


class ForgetsInOne(BothInOne):
    forgets = True


@in_one("f, right", [
    ((three, lambda dp, dlog, cache: backward_of_both(dp, dlog, cache)), True),
    ((three, lambda dp, dlog, cache: backward_of_both(dp, None, cache)), False),
    ((three, lambda cache, dp, dlog: backward_of_both(dp, dlog, cache)), True),
    ((pair_of_outputs, lambda d, cache: backward_of_both(*d, cache)), True),
    ((pair_of_outputs, lambda d, cache: backward_of_both(d[0], None, cache)), False),
    ((pair_of_outputs, lambda dp, dlog, cache: backward_of_both(dp, dlog, cache)), True),
    (Both(), True),
    (Forgets(), False),
    (BothInOne(), True),
    (ForgetsInOne(), False),
])  # fmt: skip
def test_functions_of_several_outputs_are_checked_whole(f: Any, right: bool) -> None:
    report = verify.gradients(from_pair(*f) if isinstance(f, tuple) else from_pair(f), X)
    assert wrong_in(report) == (set() if right else {"x"}) and report.unchecked == ()


def test_an_output_whose_gradient_nothing_takes_is_named() -> None:
    class First(Both):
        def backward(self, dp: np.ndarray) -> np.ndarray:  # type: ignore[override]
            return super().backward(dp)

    for f in (from_pair(First()), from_pair(three, lambda dp, cache: backward_of_both(dp, None, cache))):
        report = verify.gradients(f, X)
        assert report.ok and first_line(report).endswith("; not checked: output[1] (backward takes no gradient of it)")
    with pytest.raises(AssertionError, match=r"not everything was checked: output\[1\]"):
        verify.check_gradients(First(), X, everything=True)


def test_the_first_of_several_outputs_is_compared_with_the_op() -> None:
    f = (three, lambda dp, dlog, cache: backward_of_both(dp, dlog, cache))
    verify.check_gradients(f, X, op="softmax")
    verify.check_gradients(Both(), X, op="softmax")
    wrong = (three, lambda dp, dlog, cache: dp * cache + dlog[:, None] * cache)
    with pytest.raises(AssertionError, match=r"does what softmax does with a known mistake: .*\(softmax-no-sum\)"):
        verify.check_gradients(wrong, X, op="softmax")


def heads(x: np.ndarray, n_heads: int = 2) -> np.ndarray:
    return x.reshape(len(x), n_heads, -1).swapaxes(0, 1)


def in_heads(x: np.ndarray, n_heads: int = 2, right: bool = True) -> Any:
    """The softmax of each head's numbers, each head times another number."""
    e = np.exp(heads(x, n_heads))
    factors = np.arange(1.0, n_heads + 1)[:, None, None]
    w = e / e.sum(-1, keepdims=True)

    def backward(dy: np.ndarray) -> np.ndarray:
        dw = factors * (heads(dy, n_heads) if right else dy.reshape(n_heads, len(x), -1))
        return (w * (dw - (dw * w).sum(-1, keepdims=True))).swapaxes(0, 1).reshape(x.shape)

    return (factors * w).swapaxes(0, 1).reshape(x.shape), backward


def test_what_a_single_head_hides_is_told() -> None:
    """One head has no order of axes. An odd width cannot be divided by 2, so nothing is told."""
    assert "not checked" not in first_line(verify.gradients(in_heads, X, n_heads=1))
    assert "not checked" not in first_line(verify.gradients(in_heads, draw(3, 5), n_heads=1, right=False))
    told = "not checked: n_heads above 1 (with 2, dx is wrong)"
    assert told in first_line(verify.gradients(in_heads, X, 1, False))
    assert told in first_line(verify.gradients(in_heads, X, n_heads=1, right=False))
    assert wrong_in(verify.gradients(in_heads, X, n_heads=2, right=False)) == {"x"}
