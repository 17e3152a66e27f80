"""Every op, forward and backward, against the same formulas in 60 digits, over its whole range.

An error is counted in units u, the spacing of the floating-point numbers at 1. The bounds come from the formulas: each
rounded operation adds one unit of its result, each library function a few, a sum of n terms n units of the sum of
their sizes; and an argument of exp or erfc that is wrong by δ makes the result wrong by δ relatively. rounding.py
counts them as it goes. Where it would count too many, a reference states two things itself: `size`, the sum of the
sizes of the terms (where these cancel, digits of the result go), and how many units of that the result may be off.

Each reference has the name of its op, takes dy and the op's arguments by name, and returns the output and all
gradients. The cases of the catalogue call it. What was dropped comes as `kept`.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import rounding
from all_ops import CALLS, FIRST, OPS, TABLED, arguments_of, floats, in_dtype, results
from common import draw
from rounding import Rounded, constant, inverse, join
from tiers import in_one

from minitransformer import fast, ideas, ops
from minitransformer.run.fast.row_blocks import numpy_only
from minitransformer.verify import CASES

Bound = tuple[Any, Any, Any]  # the exact result, its size, and the number of units
FUNCTION = 4.0  # units that exp, log, erfc and sqrt of the libraries may be off
exp, log, sqrt, erfc, cos, sin, hyperbolic = (
    np.frompyfunc(getattr(mpmath, name), 1, 1) for name in "exp log sqrt erfc cos sin tanh".split()
)


@pytest.fixture(autouse=True)
def digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


def exact(x: Any) -> Any:
    return np.vectorize(lambda number: mpmath.mpf(float(number)), otypes=[object])(x)


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


def relu(dy: Any, x: Any) -> list[Bound]:
    y = np.where(x > 0, x, 0 * x)
    return [(y, abs(y), 0.0), (np.where(x > 0, dy, 0 * dy), abs(dy), 0.0)]


def silu(dy: Any, x: Any) -> list[Bound]:
    """exp, a sum, a quotient, a product; the argument of exp is exact. 1 - σ is off by half a unit, until it is 0."""
    s = logistic(x)
    terms = s, x * s * logistic(-x)
    units = 2 * FUNCTION + 6.0 + 0.5 * np.where(x > 0, np.minimum(x, 40), 0)
    return [(x * s, abs(x * s), FUNCTION + 3.0), (dy * sum(terms), abs(dy) * sum(map(abs, terms)), units)]


def gelu(dy: Any, x: Any, approximate: str = "none") -> list[Bound]:
    """The argument of erfc is rounded twice, and erfc(z) goes like exp(-z²): 2 z² δ; inside, z² is rounded again."""
    if approximate == "tanh":
        return gelu_tanh(dy, x)
    phi, density = erfc(-x / sqrt(mpmath.mpf(2))) / 2, exp(-x * x / 2) / sqrt(2 * mpmath.pi)
    units = 2 * FUNCTION + 4.0 + 2.0 * x * x
    return [(x * phi, abs(x * phi), units), (dy * (phi + x * density), abs(dy) * (phi + abs(x) * density), units)]


def gelu_tanh(dy: Any, x: Any) -> list[Bound]:
    """2u is the product of five factors, and the argument of exp."""
    root, cubic = sqrt(2 / mpmath.pi), mpmath.mpf("0.044715")
    twice = 2 * root * (x + cubic * x**3)
    phi = logistic(twice)
    density = 2 * phi * logistic(-twice) * root * (1 + 3 * cubic * x * x)
    units = 2 * FUNCTION + 10.0 + 6.0 * abs(twice)
    return [(x * phi, abs(x * phi), units), (dy * (phi + x * density), abs(dy) * (phi + abs(x) * density), units)]


def tanh(dy: Any, x: Any) -> list[Bound]:
    """1 - y² cancels where y is near 1."""
    y = hyperbolic(x)
    return [(y, abs(y), FUNCTION), (dy * (1 - y * y), abs(dy) * (1 + y * y), 2 * FUNCTION + 4.0)]


def gated(dy: Any, gate: Any, x: Any, activation: Any = ops.silu) -> list[Bound]:
    (y, y_size, units), (slope, slope_size, slope_units) = REFERENCES[activation.__name__](dy * x, gate)
    of_x = dy * y, abs(dy) * y_size, units + 1.0
    return [(y * x, y_size * abs(x), units + 1.0), (slope, slope_size, slope_units + 1.0), of_x]


# ---------------------------------------------------------------------------------------------- sums, rows, attention


def linear(dy: Rounded, x: Rounded, weight: Rounded, bias: Any = None) -> list[Rounded]:
    product = [x @ weight, dy @ weight.T, x.rows.T @ dy.rows]
    return product if bias is None else [product[0] + bias, *product[1:], dy.rows.sum(axis=0)]


def low_rank_linear(dy: Rounded, x: Rounded, down: Rounded, up: Rounded) -> list[Rounded]:
    dinner = dy @ up.T
    return [x @ down @ up, dinner @ down.T, x.rows.T @ dinner.rows, (x @ down).rows.T @ dy.rows]


def through_softmax(y: Rounded, dy: Rounded) -> Rounded:
    return y * (dy - (y * dy).sum(axis=-1, keepdims=True))


def softmax(dy: Rounded, x: Rounded, axis: int = -1, temperature: float = 1.0) -> list[Rounded]:
    dy, x = (z.moved(lambda a: np.moveaxis(a, axis, -1)) for z in (dy, x))
    seen = x.value != -mpmath.inf
    colder = inverse(constant(temperature))
    y, _ = rounding.shares(rounding.below_largest(Rounded(np.where(seen, x.value, 0)), seen) * colder, seen)
    return [z.moved(lambda a: np.moveaxis(a, -1, axis)) for z in (y, through_softmax(y, dy) * colder)]


def cross_entropy(
    dy: Rounded,
    logits: Rounded,
    targets: Any,
    class_weights: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> list[Rounded]:
    x, at = logits.rows, targets.reshape(-1)
    v = x.shape[-1]
    counts = at != ignore_index
    hit = np.where(counts, at, 0)[:, None] == np.arange(v)
    p, log_p = rounding.shares(rounding.below_largest(x))
    smoothing = mpmath.mpf(label_smoothing)
    target = np.where(counts[:, None], smoothing / v + exact(hit) * (1 - smoothing), 0)
    target = Rounded(target, 3 * target)
    weighted = target if class_weights is None else target * class_weights
    losses = -(weighted * log_p).sum(axis=-1)
    y, share = losses, dy
    if reduction == "none":
        y, share = losses.reshape(targets.shape), dy.reshape(-1)[:, None]
    if reduction == "sum":
        y = losses.sum()
    if reduction == "mean":
        total = Rounded(exact(hit)).where(counts[:, None])
        total = inverse((total if class_weights is None else total * class_weights).sum())
        y, share = losses.sum() * total, dy * total
    found = [y, ((p * weighted.sum(axis=-1, keepdims=True) - weighted) * share).reshape(logits.shape)]
    if class_weights is None:
        return found
    of_weights = -(target * log_p)
    if reduction == "mean":
        of_weights = of_weights - Rounded(exact(hit)).where(counts[:, None]) * y
    return [*found, (of_weights * share).sum(axis=0)]


def layer_norm(dy: Any, x: Any, gamma: Any, beta: Any = None, eps: float = 1e-5) -> list[Bound]:
    """RMSNorm where beta is None. The mean is off by units of the largest x, which `scale` measures. The norm may be
    over several axes."""
    shapes = [x.shape, x.shape, gamma.shape, gamma.shape]
    x, dy, gamma = x.reshape(-1, gamma.size), dy.reshape(-1, gamma.size), gamma.reshape(-1)
    beta, d = beta if beta is None else beta.reshape(-1), x.shape[-1]

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
    offset = 0 if beta is None else beta
    found = [(n * gamma + offset, n_size * abs(gamma) + abs(offset), units), (dx, size, units)]
    found += [((dy * n).sum(axis=0), (abs(dy) * n_size).sum(axis=0), units + len(x))]
    found += [] if beta is None else [(dy.sum(axis=0), abs(dy).sum(axis=0), len(x))]
    return [
        (*(part.reshape(shape) for part in bound[:2]), bound[2]) for bound, shape in zip(found, shapes, strict=False)
    ]


def rms_norm(dy: Any, x: Any, gamma: Any, eps: float = 1e-6) -> list[Bound]:
    return layer_norm(dy, x, gamma, None, eps)


def looks_back(t_q: int, t_k: int) -> Any:
    """Each of the last t_q of t_k positions sees itself and those before it."""
    return np.arange(t_k) <= np.arange(t_k - t_q, t_k)[:, None]


def attention(
    dy: Rounded,
    q: Rounded,
    k: Rounded,
    v: Rounded,
    mask: Any = True,
    causal: bool = False,
    scale: float | None = None,
    bias: Any = None,
    kept: Any = 1.0,
) -> list[Rounded]:
    t_q, t_k = q.shape[-2], k.shape[-2]
    seen = np.broadcast_to(mask & (looks_back(t_q, t_k) | (not causal)), (*q.shape[:-1], t_k))
    factor = constant(1 / sqrt(mpmath.mpf(q.shape[-1])) if scale is None else scale, 3.0)
    scores = q @ k.T * factor
    weights = rounding.softmax(scores if bias is None else scores + bias, seen)
    dscores = through_softmax(weights, dy @ v.T * kept)
    found = [weights * kept @ v, dscores @ k * factor, dscores.T @ q * factor, (weights * kept).T @ dy]
    return found if bias is None else [*found, dscores.summed_to(bias.shape)]


def of_keys(mask: Any) -> Any:
    """A mask of keys as one of pairs."""
    return np.atleast_1d(mask)[..., None, :]


def flash_attention(dy: Any, q: Any, k: Any, v: Any, mask: Any = True, tile: int = 64, **options: Any) -> list[Rounded]:
    return attention(dy, q, k, v, of_keys(mask), **options)


def local_attention(dy: Any, q: Any, k: Any, v: Any, radius: int, mask: Any = True, **options: Any) -> list[Rounded]:
    at = np.arange(q.shape[-2])
    return attention(dy, q, k, v, (abs(at[:, None] - at) <= radius) & of_keys(mask), **options)


def sink_attention(
    dy: Any, q: Any, k: Any, v: Any, sink: Any, mask: Any = True, causal: bool = False, scale: float | None = None
) -> list[Rounded]:
    """The sink is a key of its own, with a score for each head, whose value is 0. A row that sees no key outputs 0."""
    t_q, t_k = q.shape[-2], k.shape[-2]
    seen = np.broadcast_to(mask & (looks_back(t_q, t_k) | (not causal)), (*q.shape[:-1], t_k))
    factor = constant(1 / sqrt(mpmath.mpf(q.shape[-1])) if scale is None else scale, 3.0)
    sinks = q[..., :1] * 0 + sink[:, None, None]
    also = np.concatenate([seen, np.ones_like(seen[..., :1])], axis=-1)
    weights = rounding.softmax(join([q @ k.T * factor, sinks]), also)
    of_keys, dweights = weights[..., :-1], dy @ v.T
    inner = (dweights * of_keys).sum(axis=-1, keepdims=True)
    dscores = of_keys * (dweights - inner)
    dsink = -(weights[..., -1:] * inner).sum(axis=(-2, -1)).summed_to(sink.shape)
    return [of_keys @ v, dscores @ k * factor, dscores.T @ q * factor, of_keys.T @ dy, dsink]


def additive_attention(dy: Rounded, q: Rounded, k: Rounded, v: Rounded, w: Rounded, mask: Any = True) -> list[Rounded]:
    match = rounding.tanh(q[..., :, None, :] + k[..., None, :, :])
    scores = match @ w
    weights = rounding.softmax(scores, np.broadcast_to(mask, scores.shape))
    dscores = through_softmax(weights, dy @ v.T)
    dsums = dscores[..., None] * w * (1 - match * match)
    dw = (dscores[..., None] * match).rows.sum(axis=0)
    return [weights @ v, dsums.sum(axis=-2), dsums.sum(axis=-3), weights.T @ dy, dw]


def linear_attention(dy: Any, q: Any, k: Any, v: Any, mask: Any = True, block: int = 64) -> list[Rounded]:
    """The product under a causal mask; a row without weights is 0."""
    (queries, slope_q), (keys, slope_k) = (rounding.elu_plus_one(x) for x in (q, k))
    past = looks_back(q.shape[-2], q.shape[-2]) & of_keys(mask)
    products = (queries @ keys.T).where(past)
    share = inverse(products.sum(axis=-1, keepdims=True))
    output = products @ v * share
    dproducts = ((dy * share) @ v.T - (dy * output).sum(axis=-1, keepdims=True) * share).where(past)
    return [output, dproducts @ keys * slope_q, dproducts.T @ queries * slope_k, products.T @ (dy * share)]


def gated_delta(
    dy: Any, q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any = None, scale: float | None = None
) -> list[Rounded]:
    """Position by position, forward and then backward, with the memory as a matrix of rows for the entries of a key."""
    n, d_k = q.shape[-2:]
    factor = constant(1 / sqrt(mpmath.mpf(d_k)) if scale is None else scale, 3.0)
    s = Rounded(exact(np.zeros((*q.shape[:-2], d_k, v.shape[-1])))) if state is None else state
    rates, kept = rounding.exp(decay), []

    def at(x: Any, i: int) -> Any:
        return x[..., i, :, None]

    for i in range(n):
        faded = s * at(rates, i)
        error = at(v, i) - faded.T @ at(k, i)
        s = faded + at(k, i) * beta[..., i, None, None] @ error.T
        kept.append((faded, error, s))
    outputs = [(each[2].T @ at(q, i) * factor)[..., 0] for i, each in enumerate(kept)]
    ds, found = s * 0, []
    for i in reversed(range(n)):
        (faded, error, after), key, b = kept[i], at(k, i), beta[..., i, None, None]
        ds = ds + at(q, i) * factor @ at(dy, i).T
        dwritten, derror = ds @ error, ds.T @ key * b
        dfaded = ds - key @ derror.T
        ddecay = (dfaded * faded).sum(axis=-1)
        dk = dwritten * b - faded @ derror
        found.append([(after @ at(dy, i) * factor)[..., 0], dk[..., 0], derror[..., 0], ddecay])
        found[-1].append((key * dwritten).sum(axis=(-2, -1)))
        ds = dfaded * at(rates, i)
    dq, dk, dv, ddecay, dbeta = ([each[j] for each in reversed(found)] for j in range(5))
    whole = [join(each, -2, np.stack) for each in (outputs, dq, dk, dv, ddecay)]
    whole[4] = whole[4].summed_to(decay.shape)
    return [*whole, join(dbeta, -1, np.stack), *([] if state is None else [ds])]


# ------------------------------------------------------------------------------------------- recurrence, convolution


def rnn_cell(dy: Rounded, inputs: Rounded, h: Rounded, weight: Rounded) -> list[Rounded]:
    y = rounding.tanh(inputs + h @ weight)
    da = dy * (1 - y * y)
    return [y, da, da @ weight.T, h.rows.T @ da.rows]


def parts(x: Rounded, n: int) -> list[Rounded]:
    return [x[..., i : i + n] for i in range(0, x.shape[-1], n)]


def lstm_cell(dy: Rounded, inputs: Rounded, state: Rounded, weight: Rounded) -> list[Rounded]:
    n = weight.shape[0]
    (h, c), (dh, dc) = parts(state, n), parts(dy, n)
    a, b, candidate, d = parts(inputs + h @ weight, n)
    i, f, o, g = (*map(rounding.logistic, (a, b, d)), rounding.tanh(candidate))
    new_c = f * c + i * g
    shown = rounding.tanh(new_c)
    dc = dc + dh * o * (1 - shown * shown)
    dsums = join([dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * shown * o * (1 - o)])
    return [join([o * shown, new_c]), dsums, join([dsums @ weight.T, dc * f]), h.rows.T @ dsums.rows]


def gru_cell(dy: Rounded, inputs: Rounded, h: Rounded, weight: Rounded, bias: Rounded) -> list[Rounded]:
    n = weight.shape[0]
    (of_r, of_z, of_g), (r, z, recalled) = parts(inputs, n), parts(h @ weight + bias, n)
    r, z = rounding.logistic(of_r + r), rounding.logistic(of_z + z)
    g = rounding.tanh(of_g + r * recalled)
    dg = dy * (1 - z) * (1 - g * g)
    dr, dz = dg * recalled * r * (1 - r), dy * (h - g) * z * (1 - z)
    dcarried = join([dr, dz, dg * r])
    gradients = [join([dr, dz, dg]), dcarried @ weight.T + dy * z, h.rows.T @ dcarried.rows, dcarried.rows.sum(axis=0)]
    return [(1 - z) * g + z * h, *gradients]


def gru_cell_reset_first(dy: Rounded, inputs: Rounded, h: Rounded, weight: Rounded) -> list[Rounded]:
    (of_r, of_z, of_g), (w_r, w_z, w_g) = (parts(x, weight.shape[0]) for x in (inputs, weight))
    r, z = rounding.logistic(of_r + h @ w_r), rounding.logistic(of_z + h @ w_z)
    g = rounding.tanh(of_g + (r * h) @ w_g)
    da = dy * (1 - z) * (1 - g * g)
    dremembered = da @ w_g.T
    dr, dz = dremembered * h * r * (1 - r), dy * (h - g) * z * (1 - z)
    dweight = join([h.rows.T @ join([dr, dz]).rows, (r * h).rows.T @ da.rows])
    return [(1 - z) * g + z * h, join([dr, dz, da]), dr @ w_r.T + dz @ w_z.T + dremembered * r + dy * z, dweight]


def convolution(
    dy: Rounded, x: Rounded, weight: Rounded, bias: Rounded, dilation: int = 1, causal: bool = False
) -> list[Rounded]:
    """A sum of products: with x moved by as many positions as each place of the window lies away."""
    away = [(j - (weight.shape[0] - 1) / (1 if causal else 2)) * dilation for j in range(weight.shape[0])]

    def moved(z: Rounded, by: float) -> Rounded:
        source = np.arange(z.shape[-2]) + int(by)
        inside = (source >= 0) & (source < len(source))
        return z[..., np.where(inside, source, 0), :].where(inside[:, None])

    windows = [moved(x, by) for by in away]
    y = sum((window @ w for window, w in zip(windows, weight, strict=True)), bias)
    dx = sum((moved(dy, -by) @ w.T for by, w in zip(away, weight, strict=True)), Rounded(0 * x.value))
    dweight = join([window.rows.T @ dy.rows for window in windows], 0, np.stack)
    return [y, dx, dweight, dy.rows.sum(axis=0)]


# ----------------------------------------------------------------------------------------- experts, positions, places


def largest(x: Any, k: int) -> Any:
    return x.value >= np.sort(x.value, axis=-1)[..., -k, None]


def top_k_gates(dy: Rounded, logits: Rounded, k: int = 2) -> list[Rounded]:
    """The k largest of each row share the weight."""
    gates = rounding.softmax(logits, largest(logits, k))
    return [gates, through_softmax(gates, dy)]


def load_balance(dy: Rounded, logits: Rounded, k: int = 2) -> list[Rounded]:
    n, n_experts = logits.rows.shape
    part = mpmath.mpf(1) / n
    shares = largest(logits.rows, k).sum(axis=0) * part
    p = rounding.softmax(logits.rows)
    dlogits = through_softmax(p, dy * (n_experts * part * shares))
    return [((p.sum(axis=0) * part) * shares).sum() * n_experts, dlogits.reshape(logits.shape)]


def clamped_swiglu(dy: Rounded, x: Rounded, alpha: float = 1.702, limit: float = 7.0) -> list[Rounded]:
    """Clamped numbers have no gradient."""
    of_gate, of_up = x[..., ::2], x[..., 1::2]
    gate = of_gate.moved(lambda a: np.minimum(a, limit))
    up = of_up.moved(lambda a: np.clip(a, -limit, limit))
    gate.units, up.units = of_gate.units + abs(gate.value), of_up.units + abs(up.value)
    sigmoid = rounding.logistic(gate * constant(alpha))
    opening = gate * sigmoid
    slope = sigmoid + opening * constant(alpha) * (1 - sigmoid)
    dgate = (dy * (up + 1) * slope).where(of_gate.value <= limit)
    dup = (dy * opening).where(abs(of_up.value) <= limit)
    return [opening * (up + 1), join([dgate, dup], -1, np.stack).reshape(x.shape)]


def mean_pool(dy: Rounded, x: Rounded, mask: Any = True) -> list[Rounded]:
    counted = np.broadcast_to(mask, x.shape[:-1])[..., None]
    share = inverse(Rounded(exact(counted.sum(axis=-2))))
    return [x.where(counted).sum(axis=-2) * share, ((dy * share)[..., None, :] + x * 0).where(counted)]


def dropout(dy: Rounded, x: Rounded, kept: Any = 1.0) -> list[Rounded]:
    return [x * kept, dy * kept]


def rotate(dy: Rounded, x: Rounded, cos: Rounded, sin: Rounded, interleaved: bool = False) -> list[Rounded]:
    """What is not turned is left alone."""
    n = cos.shape[-1]
    order = np.arange(2 * n).reshape(-1, 2).T.ravel() if interleaved else np.arange(2 * n)
    order = np.concatenate([order, np.arange(2 * n, x.shape[-1])])
    (a, b, rest), (da, db, drest) = (
        (z[..., :n], z[..., n : 2 * n], z[..., 2 * n :]) for z in (x[..., order], dy[..., order])
    )
    y, dx = [a * cos - b * sin, a * sin + b * cos, rest], [da * cos + db * sin, db * cos - da * sin, drest]
    back = np.argsort(order)
    of_cos, of_sin = (da * a + db * b).summed_to(cos.shape), (db * a - da * b).summed_to(sin.shape)
    return [join(y)[..., back], join(dx)[..., back], of_cos, of_sin]


def rotary(
    dy: Rounded, x: Rounded, start: int = 0, base: float = 1e4, interleaved: bool = False, positions: Any = None
) -> list[Rounded]:
    """For positions below 10: an angle has an error of 4 units for each; test_rotary has large ones."""
    half = x.shape[-1] // 2
    at = np.arange(start, start + x.shape[-2]) if positions is None else positions
    assert at.max() < 10
    speeds = [1 / mpmath.mpf(base) ** (mpmath.mpf(i) / half) for i in range(half)]
    angles = exact(at)[..., None] * np.array(speeds)
    return rotate(dy, x, Rounded(cos(angles), 41.0), Rounded(sin(angles), 41.0), interleaved)[:2]


def relative_bias(
    dy: Rounded, table: Rounded, t_q: int, t_k: int, both_ways: bool = True, max_distance: int = 128
) -> list[Rounded]:
    """By the formula of the T5 paper's code."""
    n = len(table.value) // (1 + both_ways)

    def bucket(ahead: int) -> int:
        distance = abs(ahead) if both_ways else max(0, -ahead)
        found = distance
        if distance >= n // 2:
            found = n // 2 + int(math.log(distance / (n // 2)) / math.log(max_distance / (n // 2)) * (n - n // 2))
        return min(found, n - 1) + n * (both_ways and ahead > 0)

    places = np.array([[bucket(j - i) for j in range(t_k)] for i in range(t_k - t_q, t_k)])
    one_hot = Rounded(exact(np.eye(len(table.value))[places.ravel()]))
    return [table[places].moved(lambda a: np.moveaxis(a, -1, 0)), one_hot.T @ dy.reshape(table.shape[1], -1).T]


def alibi(dy: Rounded, slopes: Rounded, t_q: int, t_k: int) -> list[Rounded]:
    distance = exact(abs(np.arange(t_k - t_q, t_k)[:, None] - np.arange(t_k)))
    return [-slopes[:, None, None] * distance, (dy * -distance).sum(axis=(-2, -1))]


def repeat_heads(dy: Rounded, x: Rounded, times: int) -> list[Rounded]:
    shape = (*x.shape[:-2], times, *x.shape[-2:])
    return [x.moved(lambda a: np.repeat(a, times, axis=-3)), dy.reshape(shape).sum(axis=-3)]


def apart(x: Rounded, n_heads: int) -> Rounded:
    """The last axis as heads, which come before the positions."""
    return x.reshape(*x.shape[:-1], n_heads, -1).moved(lambda a: a.swapaxes(-2, -3))


def together(x: Rounded) -> Rounded:
    swapped = x.moved(lambda a: a.swapaxes(-2, -3))
    return swapped.reshape(*swapped.shape[:-2], -1)


def split_heads(dy: Rounded, x: Rounded, n_heads: int) -> list[Rounded]:
    return [apart(x, n_heads), together(dy)]


def merge_heads(dy: Rounded, heads: Rounded) -> list[Rounded]:
    return [together(heads), apart(dy, heads.shape[-3])]


def embedding(dy: Rounded, ids: Any, table: Rounded) -> list[Rounded]:
    one_hot = Rounded(exact(np.eye(len(table.value))[ids.ravel()]))
    return [table[ids], one_hot.T @ dy.rows]


def learned_positions(dy: Rounded, table: Rounded, length: int, start: int = 0) -> list[Rounded]:
    dtable = Rounded(0 * table.value)
    dtable.value[start : start + length] = dy.value
    return [table[start : start + length], dtable]


REFERENCES: dict[str, Callable[..., list[Any]]] = {
    **{name: globals()[name] for name in TABLED & globals().keys()},
    "weighted_cross_entropy": cross_entropy,
    "layer_norm_over_axes": layer_norm,
    "rms_norm_over_axes": rms_norm,
}
STATED = {
    "relu",
    "silu",
    "gelu",
    "tanh",
    "gated",
    "layer_norm",
    "rms_norm",
    "layer_norm_over_axes",
    "rms_norm_over_axes",
}


# -------------------------------------------------------------------------------------------------------------- tests

FORMS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "as written": (ops, contextlib.nullcontext),
    "numpy": (fast.ops, numpy_only),
    "compiled": (fast.ops, contextlib.nullcontext),
}


def forms_of(op: str) -> list[str]:
    return list(FORMS) if op in ops.__all__ and getattr(fast.ops, op) is not getattr(ops, op) else ["as written"]


def dropped(op: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with `kept`, what the numbers are multiplied with, in place of the rate and the generator.

    A weight shows in the output if the values are the unit vectors.
    """
    rate = arguments.get("dropout", arguments.get("rate", 0.0))
    rest = {name: x for name, x in arguments.items() if name not in ("dropout", "rate", "rng")}
    if not rate or arguments["rng"] is None:
        return rest
    unit = {"v": np.eye(arguments["k"].shape[-2]) + 0 * arguments["k"][..., :1]} if "k" in arguments else {}
    unit = unit or {"x": np.ones_like(arguments["x"])}
    with np.errstate(under="ignore"):
        shown = OPS[op](**in_dtype(arguments | unit, "float64"))[0] != 0
    assert 0.3 * (1 - rate) < shown.mean() <= min(1.0, 1.5 * (1 - rate))
    factor = 1 / (1 - mpmath.mpf(rate))
    return rest | {"kept": Rounded(exact(shown) * factor, 3 * factor * shown)}


def hold_call(op: str, dtype: str, given: Callable[[], dict[str, Any]]) -> None:
    """Output and gradients of a call in every form. given: makes its arguments."""
    assert op in REFERENCES, f"tests/test_precision_of_ops.py has no function {op}: write the reference of the op {op}"
    found, dy = [], np.array(0.0)
    for form in forms_of(op):
        room, context = FORMS[form]
        with context(), np.errstate(under="ignore"):
            y, backward = getattr(room, op, OPS[op])(**given())
            dy = np.asarray(draw(*y.shape, seed=9)).astype(dtype)
            found.append(results(y, backward(dy)))
    arguments = dropped(op, given())
    wrap: Any = (lambda x: x) if op in STATED else Rounded
    numbers = {name: wrap(exact(arguments[name])) for name in floats(arguments)}
    given_too = {name: x for name, x in arguments.items() if x is not None}
    bounds = REFERENCES[op](wrap(exact(dy)), **given_too | numbers)
    for each in found:
        for got, bound in zip(each, bounds, strict=True):
            hold(
                dtype, got, *(bound if isinstance(bound, tuple) else (bound.value, bound.units, rounding.SECOND_ORDER))
            )


def hold_case(case: str, dtype: str, size: float = 1.0, offset: float = 0.0) -> None:
    """size, offset: of the first array."""

    def given() -> dict[str, Any]:
        return in_dtype(arguments_of(case), dtype, min(size, 30.0) if "attention" in case else size, offset)

    hold_call(CALLS[case], dtype, given)


TABLE = [case for case, op in CALLS.items() if op in TABLED]
WHOLE = [case for case in TABLE if not CASES[case].along_directions]  # these look at every entry


def _tier(case: str, dtype: str) -> Any:
    """Cases that differ from another in the rank of arrays alone are a sweep."""
    return () if is_quick(case, dtype) else pytest.mark.sweep if " of rank " in case else pytest.mark.slow


def is_quick(case: str, dtype: str) -> bool:
    """The first case of each op, in the precision that errs most."""
    return dtype == "float32" and case == FIRST[CALLS[case]]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(case, dtype, marks=_tier(case, dtype)) for case in TABLE for dtype in ("float32", "float64")],
)
def test_every_case(case: str, dtype: str) -> None:
    hold_case(case, dtype)


@pytest.mark.few(0, slow=60)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", WHOLE)
def test_inputs_of_other_sizes(case: str, dtype: str) -> None:
    for size in (1e-12, 1e-3, 30.0, 1e4):
        hold_case(case, dtype, size)


@in_one("dtype, offset, op", ["float32", "float64"], [1e2, -1e4, 1e6], ["softmax", "layer_norm", "rms_norm"])
def test_rows_with_an_offset(op: str, offset: float, dtype: str) -> None:
    """Softmax does not feel it; LayerNorm by the rounding of the mean, as it would by the rounding of x itself."""
    hold_case(FIRST[op], dtype, offset=offset)


def points(dtype: str) -> np.ndarray:
    """From far left, where the results end below the smallest number, to far right; and both sides of 0."""
    largest = {"float32": 1e4, "float64": 1e5}[dtype]
    sizes = np.concatenate([np.geomspace(1e-30, largest, 60), np.linspace(0.01, 40.0, 80)])
    return np.concatenate([-sizes, [0.0], sizes]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["relu", "silu", "gelu", "tanh", "gelu by tanh"])
def test_elementwise_far_out(case: str, dtype: str) -> None:
    hold_call(CALLS[case], dtype, lambda: arguments_of(case) | {"x": points(dtype)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_silu_keeps_its_digits_far_left(dtype: str) -> None:
    """-17 σ(-17) = -7.0376e-7 and -37 σ(-37) = -3.1573e-15: with 1 + tanh they were off by 44 % and 35 %."""
    y, _ = ops.silu(np.array([-17.0, -37.0], dtype))
    np.testing.assert_allclose(y, [-17.0 / (1.0 + np.exp(17.0)), -37.0 / (1.0 + np.exp(37.0))], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sinusoidal_positions(dtype: str) -> None:
    """The angle has an error of a few units of float64, so far along in units of the position; then it is rounded."""
    table = ops.sinusoidal_positions(3000, 6, dtype=dtype)
    for position in (0, 1, 17, 2999):
        angles = [position / mpmath.mpf(10000) ** (mpmath.mpf(2 * i) / 6) for i in range(3)]
        want = np.array([part(angle) for angle in angles for part in (mpmath.sin, mpmath.cos)])
        units = 2.0 + (4.0 * position + 4.0) * float(np.finfo(np.float64).eps / np.finfo(dtype).eps)
        hold(dtype, table[position], want, 1.0, units)


@in_one("dtype, start", ["float32", "float64"], [0, 7, 900_000])
def test_rotary(start: int, dtype: str) -> None:
    """The angle has an error of a few units of float64; cos and sin are rounded, then two products and a sum."""
    x, dy = draw(3, 6).astype(dtype), draw(3, 6, seed=1).astype(dtype)
    y, backward = ideas.rotary(x, start)
    angles = [[p / mpmath.mpf(10000) ** (mpmath.mpf(2 * i) / 6) for i in range(3)] for p in range(start, start + 3)]
    c, s = cos(angles), sin(angles)
    units = 5.0 + (4.0 * (start + 3) + 4.0) * float(np.finfo(np.float64).eps / np.finfo(dtype).eps)
    for got, given, back in ((y, exact(x), -1), (backward(dy), exact(dy), 1)):
        a, b = given[:, :3], given[:, 3:]
        want = np.concatenate([a * c + back * b * s, b * c - back * a * s], axis=1)
        hold(dtype, got, want, np.concatenate([abs(a) + abs(b)] * 2, axis=1), units)
