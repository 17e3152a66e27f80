"""Every op, forward and backward, against the same formulas in 60 digits, over its whole range.

An error is counted in units u, the spacing of the floating-point numbers at 1. The bounds come from the formulas: each
rounded operation adds one unit of its result, each library function a few, a sum of n terms n units of the sum of
their sizes; and an argument of exp or erfc that is wrong by δ makes the result wrong by δ relatively. So for each
result two things are stated: `size`, the sum of the sizes of its terms (where these cancel, digits of the result go),
and how many units of that it may be off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import rounding
from all_ops import TABLED
from rounding import Rounded, join

from minitransformer import fast, later
from minitransformer import ops as as_written
from minitransformer.fast.blocks import numpy_only

Bound = tuple[Any, Any, Any]  # the exact result, its size, and the number of units
FUNCTION = 4.0  # units that exp, log, erfc and sqrt of the libraries may be off
exp, log, sqrt, erfc, cos, sin, hyperbolic = (
    np.frompyfunc(getattr(mpmath, name), 1, 1) for name in "exp log sqrt erfc cos sin tanh".split()
)


class _Ops:
    """The ops in the form that a test asks for, found by name when they are called."""

    form: Any = as_written

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *inputs, **options: getattr(_Ops.form, name)(*inputs, **options)


ops = _Ops()


@contextlib.contextmanager
def in_form(form: Any, context: Callable[[], Any] = contextlib.nullcontext) -> Iterator[None]:
    _Ops.form = form
    try:
        with context():
            yield
    finally:
        _Ops.form = as_written


FORMS: dict[str, Callable[[], Any]] = {
    "as written": lambda: in_form(as_written),
    "numpy": lambda: in_form(fast.ops, numpy_only),
    "compiled": lambda: in_form(fast.ops),
}


@pytest.fixture(autouse=True)
def digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


def exact(x: Any) -> Any:
    return np.vectorize(lambda number: mpmath.mpf(float(number)), otypes=[object])(x)


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=shape)


def hold(dtype: str, got: Any, want: Any, size: Any, units: Any) -> None:
    """An exp below the smallest normal number may be 0; times x above -745, and dy, that may be 10⁴ times as much."""
    floor = 1e4 * float(np.finfo(dtype).tiny)
    error = abs(exact(got) - want) - floor
    allowed = float(np.finfo(dtype).eps) * size * units
    assert got.dtype == dtype and np.shape(got) == np.shape(want)
    worst = np.max(error / (allowed + floor))
    assert worst <= 1.0, f"{float(worst):.3g} times what rounding explains"


# ------------------------------------------------------------------------------------------------------ element-wise


def logistic(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def relu(x: Any, dy: Any) -> list[Bound]:
    y = np.where(x > 0, x, 0 * x)
    return [(y, abs(y), 0.0), (np.where(x > 0, dy, 0 * dy), abs(dy), 0.0)]


def silu(x: Any, dy: Any) -> list[Bound]:
    """exp, a sum, a quotient, a product; the argument of exp is exact. 1 - σ is off by half a unit, until it is 0."""
    s = logistic(x)
    terms = s, x * s * logistic(-x)
    units = 2 * FUNCTION + 6.0 + 0.5 * np.where(x > 0, np.minimum(x, 40), 0)
    return [(x * s, abs(x * s), FUNCTION + 3.0), (dy * sum(terms), abs(dy) * sum(map(abs, terms)), units)]


def gelu(x: Any, dy: Any) -> list[Bound]:
    """The argument of erfc is rounded twice, and erfc(z) goes like exp(-z²): 2 z² δ; inside, z² is rounded again."""
    phi, density = erfc(-x / sqrt(mpmath.mpf(2))) / 2, exp(-x * x / 2) / sqrt(2 * mpmath.pi)
    units = 2 * FUNCTION + 4.0 + 2.0 * x * x
    return [(x * phi, abs(x * phi), units), (dy * (phi + x * density), abs(dy) * (phi + abs(x) * density), units)]


def gelu_tanh(x: Any, dy: Any) -> list[Bound]:
    """2u is the product of five factors, and the argument of exp."""
    root, cubic = sqrt(2 / mpmath.pi), mpmath.mpf("0.044715")
    twice = 2 * root * (x + cubic * x**3)
    phi = logistic(twice)
    density = 2 * phi * logistic(-twice) * root * (1 + 3 * cubic * x * x)
    units = 2 * FUNCTION + 10.0 + 6.0 * abs(twice)
    return [(x * phi, abs(x * phi), units), (dy * (phi + x * density), abs(dy) * (phi + abs(x) * density), units)]


def tanh(x: Any, dy: Any) -> list[Bound]:
    """1 - y² cancels where y is near 1."""
    y = hyperbolic(x)
    return [(y, abs(y), FUNCTION), (dy * (1 - y * y), abs(dy) * (1 + y * y), 2 * FUNCTION + 4.0)]


def points(dtype: str) -> np.ndarray:
    """From far left, where the results end below the smallest number, to far right; and both sides of 0."""
    largest = {"float32": 1e4, "float64": 1e5}[dtype]
    sizes = np.concatenate([np.geomspace(1e-30, largest, 120), np.linspace(0.01, 40.0, 160)])
    return np.concatenate([-sizes, [0.0], sizes]).astype(dtype)


ELEMENTWISE: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[..., list[Bound]]]] = {
    "relu": (ops.relu, {}, relu),
    "silu": (ops.silu, {}, silu),
    "gelu": (ops.gelu, {}, gelu),
    "tanh": (ops.tanh, {}, tanh),
    "gelu by tanh": (ops.gelu, {"approximate": "tanh"}, gelu_tanh),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str, dtype: str, form: str) -> None:
    op, options, reference = ELEMENTWISE[name]
    x = points(dtype)
    dy = draw(x.size).astype(dtype)
    with FORMS[form](), np.errstate(under="ignore"):
        y, backward = op(x, **options)
        results = y, backward(dy)
    for got, bound in zip(results, reference(exact(x), exact(dy)), strict=True):
        hold(dtype, got, *bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_silu_keeps_its_digits_far_left(dtype: str) -> None:
    """-17 σ(-17) = -7.0376e-7 and -37 σ(-37) = -3.1573e-15: with 1 + tanh they were off by 44 % and 35 %."""
    y, _ = ops.silu(np.array([-17.0, -37.0], dtype))
    np.testing.assert_allclose(y, [-17.0 / (1.0 + np.exp(17.0)), -37.0 / (1.0 + np.exp(37.0))], rtol=1e-6)


# ---------------------------------------------------------------------------------------------- sums, rows, attention


def of_product(a: Any, b: Any) -> Bound:
    return a @ b, abs(a) @ abs(b), a.shape[-1] + 2.0


def linear(x: Any, w: Any, bias: Any, dy: Any) -> list[Bound]:
    y, size, units = of_product(x, w)
    gradients = [of_product(dy, w.T), of_product(x.T, dy), (dy.sum(axis=0), abs(dy).sum(axis=0), len(dy))]
    return [(y + bias, size + abs(bias), units + 1.0), *gradients]


def low_rank(x: Any, down: Any, up: Any, dy: Any) -> list[Bound]:
    def product(a: Any, b: Any, c: Any) -> Bound:
        return a @ b @ c, abs(a) @ abs(b) @ abs(c), a.shape[-1] + b.shape[-1] + 4.0

    return [product(x, down, up), product(dy, up.T, down.T), product(x.T, dy, up.T), product(down.T, x.T, dy)]


def softmax_parts(x: Any, temperature: Any) -> tuple[Any, Any]:
    """The weights, and how many units each may be off: of the argument of exp two, and n of the sum."""
    distance = (x - x.max(axis=-1, keepdims=True)) / temperature
    e = exp(distance)
    return e / e.sum(axis=-1, keepdims=True), 2 * FUNCTION + x.shape[-1] + 4.0 + 2.0 * abs(distance).max()


def softmax(x: Any, dy: Any, temperature: float = 1.0) -> list[Bound]:
    y, units = softmax_parts(x, mpmath.mpf(temperature))
    inner, inner_size = (dy * y).sum(axis=-1, keepdims=True), abs(dy * y).sum(axis=-1, keepdims=True)
    dx, size = y * (dy - inner) / temperature, y * (abs(dy) + inner_size) / temperature
    return [(y, y, units), (dx, size, 2 * units + x.shape[-1] + 4.0)]


def cross_entropy(logits: Any, targets: np.ndarray, smoothing: float) -> list[Bound]:
    """The loss is a difference of logits and a logarithm; p has the error of log p relatively."""
    n, v = logits.shape
    p, units = softmax_parts(logits, 1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    target = np.full((n, v), mpmath.mpf(smoothing) / v)
    target[np.arange(n), targets] += 1 - mpmath.mpf(smoothing)
    size = (abs(shifted).max(axis=-1) + log(mpmath.mpf(v)) + 1).sum() / n
    return [(-(target * log(p)).sum() / n, size, units + n + v), ((p - target) / n, (p + target) / n, 2 * units)]


def norm(x: Any, gamma: Any, beta: Any, dy: Any, eps: float) -> list[Bound]:
    """LayerNorm; RMSNorm where beta is None. The mean is off by units of the largest x, which `scale` measures."""
    d = x.shape[-1]

    def mean(a: Any) -> Any:
        return a.sum(axis=-1, keepdims=True) / d

    centred = x if beta is None else x - mean(x)
    s = 1 / sqrt(mean(centred * centred) + mpmath.mpf(eps))
    scale = 1 if beta is None else 1 + abs(x).max(axis=-1, keepdims=True) * s
    n, dn = centred * s, dy * gamma
    shift = 0 if beta is None else mean(dn)
    dx = s * (dn - shift - n * mean(dn * n))
    size = s * scale * (abs(dn) + mean(abs(dn)) + (abs(n) + 1) * (mean(abs(dn * n)) + mean(abs(dn))))
    units = 2 * d + 2 * FUNCTION + 12.0
    n_size = (abs(n) + 1) * scale if beta is not None else abs(n)
    found = [
        (n * gamma + (0 if beta is None else beta), n_size * abs(gamma) + (0 if beta is None else abs(beta)), units)
    ]
    found += [(dx, size, units), ((dy * n).sum(axis=0), (abs(dy) * n_size).sum(axis=0), units + len(x))]
    return found if beta is None else [*found, (dy.sum(axis=0), abs(dy).sum(axis=0), len(x))]


def attention(q: Any, k: Any, v: Any, dy: Any) -> list[Bound]:
    return biased_attention(q, k, v, exact(np.zeros((len(q), len(k)))), dy)[:-1]


def biased_attention(q: Any, k: Any, v: Any, bias: Any, dy: Any) -> list[Bound]:
    """A score is off by d + 3 units of its terms' sizes, and so is, relatively, a weight."""
    scale = 1 / sqrt(mpmath.mpf(q.shape[-1]))
    w, units = softmax_parts(q @ k.T * scale + bias, 1)
    units += (q.shape[-1] + 4.0) * 2.0 * float((abs(q) @ abs(k).T * scale + abs(bias)).max())
    dw, dw_size = dy @ v.T, abs(dy) @ abs(v).T
    ds = w * (dw - (dw * w).sum(axis=-1, keepdims=True))
    ds_size = w * (dw_size + (dw_size * w).sum(axis=-1, keepdims=True))
    units_of_gradients = 3 * units + 2.0 * sum(q.shape + k.shape + v.shape)
    return [
        (w @ v, w @ abs(v), units + len(k)),
        (ds @ k * scale, ds_size @ abs(k) * scale, units_of_gradients),
        (ds.T @ q * scale, ds_size.T @ abs(q) * scale, units_of_gradients),
        (w.T @ dy, w.T @ abs(dy), units_of_gradients),
        (ds, ds_size, units_of_gradients),
    ]


def relative_bias(table: Any, dy: Any) -> list[Bound]:
    """Of 8 buckets up to distance 128, for 4 queries and 6 keys: one each for 0 and 1, one for 2 to 5, on each side."""
    ahead = np.arange(6)[None, :] - np.arange(2, 6)[:, None]
    bucket = np.minimum(abs(ahead), 2) + 4 * (ahead > 0)
    bias = np.moveaxis(table[bucket], -1, 0)
    one_hot = exact(np.eye(8)[bucket].reshape(-1, 8))
    return [(bias, abs(bias), 0.0), of_product(one_hot.T, dy.reshape(2, -1).T)]


def alibi(slopes: Any, dy: Any) -> list[Bound]:
    distance = exact(abs(np.arange(2, 6)[:, None] - np.arange(6)[None, :]))
    bias = -slopes[:, None, None] * distance
    return [(bias, abs(bias), 1.0), of_product(dy.reshape(2, -1), -distance.reshape(-1))]


def running(reference: Callable[..., list[Rounded]]) -> Callable[..., list[Bound]]:
    """A reference that counts units as it goes; see rounding.py."""
    return lambda *inputs: [result.bound() for result in reference(*map(Rounded, inputs))]


def rnn_cell(inputs: Rounded, h: Rounded, w: Rounded, dy: Rounded) -> list[Rounded]:
    y = rounding.tanh(inputs + h @ w)
    da = dy * (1 - y * y)
    return [y, da, da @ w.T, h.T @ da]


def lstm_cell(inputs: Rounded, state: Rounded, w: Rounded, dy: Rounded) -> list[Rounded]:
    n = w.value.shape[0]
    h, c = state[:, :n], state[:, n:]
    sums = inputs + h @ w
    i, f, o = (rounding.logistic(sums[:, k * n : (k + 1) * n]) for k in (0, 1, 3))
    g = rounding.tanh(sums[:, 2 * n : 3 * n])
    new_c = f * c + i * g
    shown = rounding.tanh(new_c)
    dh, dc = dy[:, :n], dy[:, n:] + dy[:, :n] * o * (1 - shown * shown)
    slopes = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * shown * o * (1 - o)]
    dsums = join(slopes)
    return [join([o * shown, new_c]), dsums, join([dsums @ w.T, dc * f]), h.T @ dsums]


def gru_cell(inputs: Rounded, h: Rounded, w: Rounded, bias: Rounded, dy: Rounded) -> list[Rounded]:
    n = w.value.shape[0]
    carried = h @ w + bias
    r, z = (rounding.logistic(inputs[:, k * n : (k + 1) * n] + carried[:, k * n : (k + 1) * n]) for k in (0, 1))
    recalled = carried[:, 2 * n :]
    g = rounding.tanh(inputs[:, 2 * n :] + r * recalled)
    dg = dy * (1 - z) * (1 - g * g)
    of_r, of_z = dg * recalled * r * (1 - r), dy * (h - g) * z * (1 - z)
    dcarried = join([of_r, of_z, dg * r])
    gradients = [join([of_r, of_z, dg]), dcarried @ w.T + dy * z, h.T @ dcarried, dcarried.sum(axis=0)]
    return [(1 - z) * g + z * h, *gradients]


def convolution(x: Any, w: Any, bias: Any, dy: Any) -> list[Bound]:
    """Five positions, windows of three: a product with the matrix of all windows, of which most entries are 0."""
    t, (k, d, e) = len(x), w.shape
    spread = exact(np.zeros((t * d, t * e)))
    for i in range(t):
        for j in range(k):
            if 0 <= i + j - 1 < t:
                spread[(i + j - 1) * d : (i + j) * d, i * e : (i + 1) * e] = w[j]
    y, size, units = of_product(x.reshape(1, -1), spread)
    zeros = exact(np.zeros((1, d)))
    padded = np.concatenate([zeros, x, zeros])
    dw = [of_product(padded[j : j + t].T, dy) for j in range(k)]
    gradients = [tuple(part.reshape(x.shape) for part in of_product(dy.reshape(1, -1), spread.T)[:2])]
    gradients += [tuple(np.stack([part[i] for part in dw]) for i in (0, 1)), (dy.sum(axis=0), abs(dy).sum(axis=0))]
    output = (y.reshape(t, e) + bias, size.reshape(t, e) + abs(bias))
    return [(value, size, units + 1.0) for value, size in (output, *gradients)]


def additive_attention(q: Rounded, k: Rounded, v: Rounded, w: Rounded, dy: Rounded) -> list[Rounded]:
    match = rounding.tanh(q[:, None] + k[None])
    weights = rounding.softmax(match @ w)
    dweights = dy @ v.T
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dsums = dscores[..., None] * w * (1 - match * match)
    dw = (dscores[..., None] * match).sum(axis=(0, 1))
    return [weights @ v, dsums.sum(axis=1), dsums.sum(axis=0), weights.T @ dy, dw]


def local_attention(q: Rounded, k: Rounded, v: Rounded, dy: Rounded) -> list[Rounded]:
    """Five positions that see two on either side; the scores are halved, d_k being 4."""
    seen = abs(np.arange(5)[:, None] - np.arange(5)[None, :]) <= 2
    half = mpmath.mpf(0.5)
    weights = rounding.softmax(q @ k.T * half, seen)
    dweights = dy @ v.T
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    return [weights @ v, dscores @ k * half, dscores.T @ q * half, weights.T @ dy]


def sink_attention(q: Rounded, k: Rounded, v: Rounded, sink: Rounded, dy: Rounded) -> list[Rounded]:
    """One head; the scores are halved, d_k being 4, and the sink is a key of its own whose value is 0."""
    half = mpmath.mpf(0.5)
    q, k, v, dy = q[0], k[0], v[0], dy[0]
    weights = rounding.softmax(join([q @ k.T * half, q[:, :1] * 0 + sink]))
    of_keys, dweights = weights[:, :6], dy @ v.T
    inner = (dweights * of_keys).sum(axis=-1, keepdims=True)
    dscores = of_keys * (dweights - inner)
    results = [of_keys @ v, dscores @ k * half, dscores.T @ q * half, of_keys.T @ dy]
    dsink = (weights[:, 6:] * inner).sum(axis=(0, 1), keepdims=True)[0]
    return [*(result[None] for result in results), 0 - dsink]


def linear_attention(q: Rounded, k: Rounded, v: Rounded, dy: Rounded) -> list[Rounded]:
    """Five positions; the product under a causal mask."""
    (queries, slope_q), (keys, slope_k) = (rounding.elu_plus_one(x) for x in (q, k))
    past = exact(np.tril(np.ones((5, 5))))
    products = queries @ keys.T * past
    total = products.sum(axis=-1, keepdims=True)
    share = rounding.inverse(total)
    output = products @ v * share
    dproducts = ((dy * share) @ v.T - (dy * output).sum(axis=-1, keepdims=True) * share) * past
    return [output, dproducts @ keys * slope_q, dproducts.T @ queries * slope_k, products.T @ (dy * share)]


def rotate(x: Rounded, c: Rounded, s: Rounded, dy: Rounded) -> list[Rounded]:
    """Two of six numbers are left alone."""
    (a, b, rest), (da, db, drest) = ((z[:, :2], z[:, 2:4], z[:, 4:]) for z in (x, dy))
    back = [da * c + db * s, db * c - da * s, drest]
    return [join([a * c - b * s, a * s + b * c, rest]), join(back), da * a + db * b, db * a - da * b]


def gru_cell_reset_first(inputs: Rounded, h: Rounded, w: Rounded, dy: Rounded) -> list[Rounded]:
    n = w.value.shape[0]
    r, z = (rounding.logistic(inputs[:, p] + h @ w[:, p]) for p in (slice(n), slice(n, 2 * n)))
    g = rounding.tanh(inputs[:, 2 * n :] + (r * h) @ w[:, 2 * n :])
    da = dy * (1 - z) * (1 - g * g)
    dremembered = da @ w[:, 2 * n :].T
    dgates = join([dremembered * h * r * (1 - r), dy * (h - g) * z * (1 - z)])
    dh = dgates @ w[:, : 2 * n].T + dremembered * r + dy * z
    return [(1 - z) * g + z * h, join([dgates, da]), dh, join([h.T @ dgates, (r * h).T @ da])]


def gated_delta(q: Rounded, k: Rounded, v: Rounded, decay: Rounded, beta: Rounded, dy: Rounded) -> list[Rounded]:
    """One position with a width of 4: nothing is remembered, so the value is written under its key and read again."""
    match = (q * k).sum(axis=-1, keepdims=True) * 0.5
    dmatch = (dy * v).sum(axis=-1, keepdims=True)
    dq, dk = (x * dmatch * beta[:, None] * 0.5 for x in (k, q))
    nothing = Rounded(0 * decay.value)
    return [v * match * beta[:, None], dq, dk, dy * match * beta[:, None], nothing, (match * dmatch)[:, 0]]


def over_axes(x: Any, gamma: Any, beta: Any, dy: Any, eps: float) -> list[Bound]:
    """The norm of rows of six numbers, which stand in two axes."""
    flat = (z if z is None else z.reshape(*z.shape[:-2], 6) for z in (x, gamma, beta, dy))
    shapes = (x.shape, x.shape, gamma.shape, gamma.shape)
    return [
        tuple(np.reshape(part, shape) if np.size(part) == np.prod(shape) else part for part in bound)
        for bound, shape in zip(norm(*flat, eps), shapes, strict=False)
    ]


def top_k_gates(x: Rounded, dy: Rounded) -> list[Rounded]:
    """The two largest of each row share the weight."""
    gates = rounding.softmax(x, x.value >= np.sort(x.value, axis=-1)[..., -2:-1])
    return [gates, gates * (dy - (gates * dy).sum(axis=-1, keepdims=True))]


def load_balance(x: Rounded, dloss: Rounded) -> list[Rounded]:
    n, n_experts = x.value.shape
    part = mpmath.mpf(1) / n
    shares = (x.value >= np.sort(x.value, axis=-1)[..., -2:-1]).sum(axis=0) * part
    p = rounding.softmax(x)
    dp = dloss * (n_experts * part * shares)
    return [((p.sum(axis=0) * part) * shares).sum() * n_experts, p * (dp - (p * dp).sum(axis=-1, keepdims=True))]


def mean_pool(x: Any, dy: Any) -> list[Bound]:
    t = x.shape[-2]
    dx = np.broadcast_to(dy / t, x.shape)
    return [(x.sum(axis=-2) / t, abs(x).sum(axis=-2) / t, t + 2.0), (dx, abs(dx), 2.0)]


def gated(gate: Any, x: Any, dy: Any) -> list[Bound]:
    (y, y_size, units), (slope, slope_size, slope_units) = silu(gate, dy * x)
    of_x = dy * y, abs(dy) * y_size, units + 1.0
    return [(y * x, y_size * abs(x), units + 1.0), (slope, slope_size, slope_units + 1.0), of_x]


def moves(move: Callable[[Any], Any], back: Callable[[Any], Any], units: float = 0.0) -> Callable[..., list[Bound]]:
    """An op that only moves numbers to other places."""
    return lambda x, dy: [(move(x), abs(move(x)), units), (back(dy), abs(back(dy)), units)]


# Op, what it is called with, the shapes of its differentiable inputs, and its reference; in sizes from tiny to huge.
Call = tuple[Callable[..., Any], list[tuple[int, ...]], Callable[..., list[Bound]]]
IDS = np.array([2, 0, 2])
ONE_HOT = np.eye(4)[IDS]
CALLS: dict[str, Call] = {
    "linear": (ops.linear, [(5, 7), (7, 3), (3,)], linear),
    "low_rank_linear": (later.low_rank_linear, [(5, 7), (7, 2), (2, 3)], low_rank),
    "softmax": (ops.softmax, [(4, 9)], softmax),
    "softmax, cold": (lambda x: ops.softmax(x, temperature=0.125), [(4, 9)], lambda *a: softmax(*a, 0.125)),
    "layer_norm": (lambda *a: ops.layer_norm(*a, 1e-5), [(4, 9), (9,), (9,)], lambda *a: norm(*a, 1e-5)),
    "rms_norm": (lambda *a: ops.rms_norm(*a, 1e-6), [(4, 9), (9,)], lambda x, g, dy: norm(x, g, None, dy, 1e-6)),
    "attention": (ops.attention, [(3, 4), (6, 4), (6, 5)], attention),
    "attention, biased": (
        lambda q, k, v, bias: ops.attention(q, k, v, bias=bias), [(3, 4), (6, 4), (6, 5), (3, 6)], biased_attention,
    ),
    "rnn_cell": (later.rnn_cell, [(4, 3), (4, 3), (3, 3)], running(rnn_cell)),
    "lstm_cell": (later.lstm_cell, [(4, 12), (4, 6), (3, 12)], running(lstm_cell)),
    "gru_cell": (later.gru_cell, [(4, 9), (4, 3), (3, 9), (9,)], running(gru_cell)),
    "rotate": (later.rotate, [(3, 6), (3, 2), (3, 2)], running(rotate)),
    "gru_cell_reset_first": (later.gru_cell_reset_first, [(4, 9), (4, 3), (3, 9)], running(gru_cell_reset_first)),
    "gated_delta": (later.gated_delta, [(1, 4), (1, 4), (1, 3), (1, 4), (1,)], running(gated_delta)),
    "layer_norm_over_axes": (
        lambda *a: later.layer_norm_over_axes(*a, 1e-5), [(4, 2, 3), (2, 3), (2, 3)], lambda *a: over_axes(*a, 1e-5),
    ),
    "rms_norm_over_axes": (
        lambda *a: later.rms_norm_over_axes(*a, 1e-6), [(4, 2, 3), (2, 3)],
        lambda x, gamma, dy: over_axes(x, gamma, None, dy, 1e-6),
    ),
    "convolution": (later.convolution, [(5, 2), (3, 2, 3), (3,)], convolution),
    "additive_attention": (later.additive_attention, [(3, 4), (6, 4), (6, 5), (4,)], running(additive_attention)),
    "local_attention": (lambda *a: later.local_attention(*a, 2), [(5, 4), (5, 4), (5, 3)], running(local_attention)),
    "top_k_gates": (later.top_k_gates, [(4, 5)], running(top_k_gates)),
    "load_balance": (later.load_balance, [(6, 5)], running(load_balance)),
    "mean_pool": (ops.mean_pool, [(6, 5)], mean_pool),
    "repeat_heads": (
        lambda x: later.repeat_heads(x, 3), [(2, 3, 4)],
        lambda x, dy: [
            (np.repeat(x, 3, axis=0), abs(np.repeat(x, 3, axis=0)), 0.0),
            (dy.reshape(2, 3, 3, 4).sum(axis=1), abs(dy).reshape(2, 3, 3, 4).sum(axis=1), 3.0),
        ],
    ),
    "relative_bias": (lambda table: later.relative_bias(table, 4, 6), [(8, 2)], relative_bias),
    "flash_attention": (lambda *a: later.flash_attention(*a, tile=2), [(3, 4), (6, 4), (6, 5)], attention),
    "sink_attention": (later.sink_attention, [(1, 3, 4), (1, 6, 4), (1, 6, 5), (1,)], running(sink_attention)),
    "linear_attention": (
        lambda *a: later.linear_attention(*a, block=2), [(5, 4), (5, 4), (5, 3)], running(linear_attention),
    ),
    "alibi": (lambda slopes: later.alibi(slopes, 4, 6), [(2,)], alibi),
    "gated": (later.gated, [(4, 5), (4, 5)], gated),
    "split_heads": (
        lambda x: ops.split_heads(x, 2), [(3, 4)],
        moves(lambda x: x.reshape(3, 2, 2).swapaxes(0, 1), lambda dy: dy.swapaxes(0, 1).reshape(3, 4)),
    ),
    "merge_heads": (
        ops.merge_heads, [(2, 3, 2)],
        moves(lambda x: x.swapaxes(0, 1).reshape(3, 4), lambda dy: dy.reshape(3, 2, 2).swapaxes(0, 1)),
    ),
    "embedding": (
        lambda table: ops.embedding(IDS, table), [(4, 5)],
        lambda table, dy: [(table[IDS], abs(table[IDS]), 0.0), of_product(exact(ONE_HOT.T), dy)],
    ),
    "learned_positions": (
        lambda table: ops.learned_positions(table, 3, start=1), [(5, 2)],
        moves(lambda t: t[1:4], lambda dy: np.concatenate([0 * dy[:1], dy, 0 * dy[:1]])),
    ),
    "dropout": (lambda x: ops.dropout(x, 0.5, np.random.default_rng(0)), [(40,)], lambda x, dy: dropped(x, dy)),
}  # fmt: skip
SIZES = {"tiny": 1e-12, "small": 1e-3, "ordinary": 1.0, "large": 30.0, "huge": 1e4}


def dropped(x: Any, dy: Any) -> list[Bound]:
    """At the rate 1/2 each number is doubled, which is exact, or dropped."""
    factor = exact(ops.dropout(np.ones(x.shape), 0.5, np.random.default_rng(0))[0])
    assert set(map(float, factor)) == {0.0, 2.0}
    return [(x * factor, abs(x), 0.0), (dy * factor, abs(dy), 0.0)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_sums_rows_and_attention(name: str, size: str, dtype: str, form: str) -> None:
    op, shapes, reference = CALLS[name]
    scale = min(SIZES[size], 30.0) if "attention" in name else SIZES[size]
    inputs = [draw(*shape, seed=i, scale=scale if i == 0 else 1.0).astype(dtype) for i, shape in enumerate(shapes)]
    hold_call(dtype, form, op, inputs, reference)


@pytest.mark.few(18)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [1e2, -1e4, 1e6])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_rows_with_an_offset(name: str, offset: float, dtype: str, form: str) -> None:
    """Softmax does not feel it; LayerNorm by the rounding of the mean, as it would by the rounding of x itself."""
    op, shapes, reference = CALLS[name]
    inputs = [(draw(*shape, seed=i) + (offset if i == 0 else 0.0)).astype(dtype) for i, shape in enumerate(shapes)]
    hold_call(dtype, form, op, inputs, reference)


def hold_call(dtype: str, form: str, op: Any, inputs: list[np.ndarray], reference: Any) -> None:
    with FORMS[form](), np.errstate(under="ignore"):
        y, backward = op(*inputs)
        dy = draw(*y.shape, seed=9).astype(dtype)
        gradients = backward(dy)
    results = [y, *(gradients if isinstance(gradients, tuple) else [gradients])]
    for got, bound in zip(results, reference(*map(exact, inputs), exact(dy)), strict=True):
        hold(dtype, got, *bound)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("smoothing", [0.0, 0.125, 1.0])
def test_cross_entropy(smoothing: float, size: str, dtype: str, form: str) -> None:
    logits, targets = draw(4, 9, scale=SIZES[size]).astype(dtype), np.array([3, 0, 8, 3])
    with FORMS[form](), np.errstate(under="ignore"):
        loss, backward = ops.cross_entropy(logits, targets, label_smoothing=smoothing)
        results = loss, backward()
    for got, bound in zip(results, cross_entropy(exact(logits), targets, smoothing), strict=True):
        hold(dtype, got, *bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_weighted_cross_entropy(size: str, dtype: str) -> None:
    """All weights the same power of two: the mean is that of cross_entropy, the sum that times the weight, exactly."""
    logits, targets = draw(4, 9, scale=SIZES[size]).astype(dtype), np.array([3, 0, 8, 3])
    weights = np.full(9, 0.25, dtype)
    with np.errstate(under="ignore"):
        loss, backward = later.weighted_cross_entropy(logits, targets, weights, label_smoothing=0.125)
        results = loss, backward()[0]
    for got, bound in zip(results, cross_entropy(exact(logits), targets, 0.125), strict=True):
        hold(dtype, got, *bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sinusoidal_positions(dtype: str) -> None:
    """The angle has an error of a few units of float64, so far along in units of the position; then it is rounded."""
    table = ops.sinusoidal_positions(3000, 6, dtype=dtype)
    for position in (0, 1, 17, 2999):
        angles = [position / mpmath.mpf(10000) ** (mpmath.mpf(2 * i) / 6) for i in range(3)]
        want = np.array([part(angle) for angle in angles for part in (mpmath.sin, mpmath.cos)])
        units = 2.0 + (4.0 * position + 4.0) * float(np.finfo(np.float64).eps / np.finfo(dtype).eps)
        hold(dtype, table[position], want, 1.0, units)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("start", [0, 7, 900_000])
def test_rotary(start: int, dtype: str) -> None:
    """The angle has an error of a few units of float64; cos and sin are rounded, then two products and a sum."""
    x, dy = draw(3, 6).astype(dtype), draw(3, 6, seed=1).astype(dtype)
    y, backward = later.rotary(x, start)
    angles = [[p / mpmath.mpf(10000) ** (mpmath.mpf(2 * i) / 6) for i in range(3)] for p in range(start, start + 3)]
    c, s = cos(angles), sin(angles)
    units = 5.0 + (4.0 * (start + 3) + 4.0) * float(np.finfo(np.float64).eps / np.finfo(dtype).eps)
    for got, given, back in ((y, exact(x), -1), (backward(dy), exact(dy), 1)):
        a, b = given[:, :3], given[:, 3:]
        want = np.concatenate([a * c + back * b * s, b * c - back * a * s], axis=1)
        hold(dtype, got, want, np.concatenate([abs(a) + abs(b)] * 2, axis=1), units)


def test_every_op_is_held() -> None:
    held = {name.partition(",")[0].partition(" ")[0] for name in [*ELEMENTWISE, *CALLS]}
    assert held | {"cross_entropy", "rotary", "weighted_cross_entropy"} == TABLED
