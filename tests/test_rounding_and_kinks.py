"""What finite differences cannot tell: rounding that looks like a kink, kinks that look like a mistake."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw
from raw_units import verdict, verdicts
from tiers import in_one

from minitransformer import layers, ops, verify
from minitransformer.check.verify.foreign import rounded_like

# ------------------------------------------------------------------------------------------------------ three verdicts


def line(c: float, s: float, factor: float) -> Callable[..., Any]:
    """y = c + s x in float64, with a gradient that is `factor` times the right one."""
    return lambda x: ((c + s * x).astype(np.float64), lambda dy: factor * s * dy)


@in_one("factor, c, s", [-1.0, 0.0, 2.0], [(1e6, 1e-2), (1e7, 1e-1), (1e3, 1e-5), (1e2, 1e-6), (1e12, 1e-6)])
def test_rounding_is_no_kink(c: float, s: float, factor: float) -> None:
    assert verdict(verify.gradients(line(c, s, factor), draw(3))) == ("unseen" if c == 1e12 else "wrong")
    assert verdict(verify.gradients(line(c, s, 1.0), draw(3))) == ("unseen" if c == 1e12 else "right")


def test_a_small_output_does_not_make_rounding_look_large() -> None:
    """All other outputs are 0 at the point, and not beside it: their rounding there is none of the small one's."""
    for seed in range(20):
        verify.gradients(ops.relu, np.array([0.0, 1e-7, -1.0, -1.1, -0.3]), seed=seed).assert_ok()


def test_a_longer_type_shows_what_float64_hides() -> None:
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("NumPy's longdouble is no longer than float64 here")
    assert verdict(verify.gradients(lambda x: (1e10 + 1e-6 * x, lambda dy: -1e-6 * dy), draw(3))) == "wrong"


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_unit_makes_a_wrong_gradient_right(dtype: str) -> None:
    found, mistaken = verdicts(dtype, ("right", "sign"), every=12)
    assert mistaken == [] and found["right", "right"] and found["sign", "wrong"]


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("longest", [np.longdouble, np.float64])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_sweep_over_raw_units(dtype: str, longest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 582 gradients from 1e-14 to 1e16 none that is wrong is called right, and none that is right wrong."""
    monkeypatch.setattr(np, "longdouble", longest)
    found, mistaken = verdicts(dtype)
    assert mistaken == []
    assert found["right", "right"] > 60 and found["sign", "wrong"] > 90, found


@in_one(
    "f, slope, x",
    [
        (np.log, lambda x: 1.0 / x, [1e-7, 0.5]),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x), [1e-9, 0.5]),
        (np.arcsin, lambda x: 1.0 / np.sqrt(1.0 - x * x), [1.0 - 1e-8, 0.5]),
        (lambda x: x * np.sqrt(x), lambda x: 1.5 * np.sqrt(x), [0.0, 0.5]),
        (lambda x: (1.0 - x) * np.sqrt(1.0 - x), lambda x: -1.5 * np.sqrt(1.0 - x), [1.0, 0.5]),
    ],
    ids=["log", "sqrt", "arcsin", "x^1.5 at 0", "(1 - x)^1.5 at 1"],
)
def test_a_slope_near_the_end_of_a_domain(f: Any, slope: Any, x: list[float]) -> None:
    verify.gradients(lambda x: (f(x), lambda dy: dy * slope(x)), np.array(x)).assert_ok()
    assert verdict(verify.gradients(lambda x: (f(x), lambda dy: dy * (1.1 * slope(x) + 0.1)), np.array(x))) == "wrong"


def test_single_entries_that_rounding_hides_are_counted() -> None:
    """Beside large gradients, it does no harm that a small one cannot be seen; the first line says it."""
    scale = np.array([1.0, 1.0, 1e-13])

    def f(x: np.ndarray) -> Any:
        return np.asarray((scale * np.sin(x)).sum() + 100.0, np.float64), lambda dy: dy * scale * np.cos(x)

    report = verify.gradients(f, np.array([0.3, 0.5, 0.7]))
    assert report.ok and report["x"].hidden == 1
    assert str(report).partition("\n")[0].endswith("rounding hides small entries of x")


# ------------------------------------------------------------------------------------------------------ float32 inside


def rms_norm(x: np.ndarray, factor: float = 1.0) -> Any:
    """x / √(mean(x²)), which computes in float32 whatever x is. factor: of one of the two terms of dx."""
    h = x.astype(np.float32)
    r = 1.0 / np.sqrt((h * h).mean(axis=-1, keepdims=True))
    grown = h * r

    def backward(dy: np.ndarray) -> np.ndarray:
        d = dy.astype(np.float32)
        return (r * (d - np.float32(factor) * grown * (d * grown).mean(axis=-1, keepdims=True))).astype(x.dtype)

    return grown.astype(x.dtype), backward


def partly_in_float32(k: np.ndarray, smooth: float, factor: float = 1.0) -> Callable[..., Any]:
    """smooth Σ sin(x) + exp(k·x), whose second term is in float32 and stands still over short steps."""

    def f(x: np.ndarray) -> tuple[np.ndarray, Callable[..., Any]]:
        grown = float(np.exp(np.float32((k * x).sum())))
        return np.asarray(smooth * np.sin(x).sum() + grown), lambda dy: dy * (smooth * np.cos(x) + factor * grown * k)

    return f


@pytest.mark.parametrize("smooth", [0.0, 1.0])
def test_a_part_in_float32_is_noticed_though_neighbours_are_rounded_alike(smooth: float) -> None:
    for seed in (0, 1, 4, 6):
        k, x = 0.3 * draw(5, seed=seed), draw(5, seed=100 + seed)
        assert verdict(verify.gradients(partly_in_float32(k, smooth), x)) == "right", seed
    assert verdict(verify.gradients(partly_in_float32(k, smooth, 1.1), x)) == "wrong"


def test_float32_inside_is_noticed_from_the_values() -> None:
    report = verify.gradients(rms_norm, draw(3, 8))
    report.assert_ok()
    assert "as code that computes in float32 inside does: errors below" in report.note
    assert verdict(verify.gradients(lambda x: rms_norm(x, 0.0), draw(3, 8))) == "wrong"
    assert verdict(verify.gradients(lambda x: rms_norm(x, 0.9), draw(3, 8))) == "wrong"
    assert verify.gradients(ops.softmax, draw(3, 8)).note == ""


@pytest.mark.parametrize("factor", [1.0, 1.0 + 1e-4])
def test_a_guard_against_division_by_zero_makes_nothing_wrong(factor: float) -> None:
    """Beside gradients of ordinary size: the first query sees one key, so that its gradient is 0 without the guard."""

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        scores = np.where(np.tri(len(q), dtype=bool), q @ k.T, -np.inf)
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = e / (e.sum(axis=1, keepdims=True) + 1e-10)
        o = p @ v

        def backward(do: np.ndarray) -> tuple[np.ndarray, ...]:
            dscores = factor * p * (do @ v.T - (do * o).sum(axis=1, keepdims=True))
            return dscores @ k, dscores.T @ q, p.T @ do

        return o, backward

    said = verdict(verify.gradients(attention, draw(4, 3), draw(4, 3), draw(4, 2)))
    assert said == ("right" if factor == 1.0 else "wrong")


def test_numbers_are_rounded_like_those_of_16_bits() -> None:
    x = draw(100) * 10.0 ** np.arange(-2, 2).repeat(25)
    np.testing.assert_array_equal(rounded_like("float16")(x), x.astype(np.float16).astype(np.float64))
    assert rounded_like("bfloat16")(np.array(1.0 + 2.0**-8)) == 1.0  # a tie, to the even neighbour
    assert rounded_like("bfloat16")(np.array(-3.0 - 2.0**-6)) == -3.015625


# ------------------------------------------------------------------------------------------------- where kinks meet


def network(kept: float = 0.0, factor: float = 1.0) -> Callable[..., Any]:
    """relu(x W) V. kept: the slope of ReLU at 0; factor: of dx."""

    def f(x: np.ndarray, w: np.ndarray, v: np.ndarray) -> Any:
        h = x @ w
        a = np.maximum(h, 0.0)

        def backward(dy: np.ndarray) -> Any:
            dh = dy @ v.T * np.where(h == 0.0, kept, 1.0 * (h > 0.0)).astype(x.dtype)
            return (factor * dh @ w.T).astype(x.dtype), x.T @ dh, a.T @ dy

        return a @ v, backward

    return f


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
def test_a_network_is_right_on_padded_rows(kept: float) -> None:
    """At x = 0 all its units are at their kinks, where ReLU may have any slope from 0 to 1."""
    x = draw(8, 4)
    x[:3] = 0.0
    inputs = (x, draw(4, 5, seed=1), draw(5, 3, seed=2))
    verify.gradients(network(kept), *inputs, intermediates=False).assert_ok()
    assert not verify.gradients(network(kept, 1.05), *inputs, intermediates=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", [17, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (22, 43))])
def test_kinks_that_lie_close_together_do_not_make_right_code_wrong(seed: int) -> None:
    """Ten rows of zeros, of which each moves its own units alone: a step could cross two of their kinks at once."""
    rng = np.random.default_rng(seed)
    x, w, v = rng.normal(size=(20, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 3))
    x[:10] = 0.0

    def f(x: np.ndarray) -> Any:
        y, backward = network(0.0)(x, w, v)
        return y, lambda dy: backward(dy)[0]

    verify.gradients(f, x, intermediates=False, seed=seed).assert_ok()


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", [-1.0, 2.5])
def test_a_slope_that_no_unit_can_have_is_wrong_on_padded_rows(kept: float) -> None:
    x = draw(8, 4)
    x[:3] = 0.0
    report = verify.gradients(network(kept), x, draw(4, 5, seed=1), draw(5, 3, seed=2), intermediates=False)
    assert not report["x"].ok


@pytest.mark.slow
def test_equal_arrays_get_equal_verdicts() -> None:
    x = draw(2, 4, 4)
    x[1, 2:] = 0.0
    report = verify.gradients(layers.FeedForward(4, 16, "relu", rng=np.random.default_rng(1)), x, seed=1)
    report.assert_ok()
    same = [row for row in report.rows if row.full and np.array_equal(row.full.value.ravel(), x.ravel())]
    assert len(same) == 4 and len({(row.ok, row.kinks, row.hidden) for row in same}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(1, 10))])
def test_one_wrong_entry_beside_kinks_in_a_large_array_is_seen(seed: int) -> None:
    x = draw(72, 60, seed=seed)
    x[::9, ::10] = 0.0
    place = tuple(np.argwhere(x > 0.5)[seed])

    def relu(x: np.ndarray) -> Any:
        def backward(dy: np.ndarray) -> np.ndarray:
            dx = dy * (x > 0.0)
            dx[place] *= 1.5
            return dx

        return np.maximum(x, 0.0), backward

    row = verify.gradients(relu, x, seed=seed, intermediates=False)["x"]
    assert (row.is_wrong, row.where) == (True, place)
    verify.gradients(ops.relu, x, seed=seed, intermediates=False).assert_ok()


def test_numbers_that_are_all_tiny_are_moved_by_less() -> None:
    """Over a step of the usual size sin(x / 1e-12) turns a million times: its right gradient was called wrong."""
    for right in (True, False):
        slope = np.cos if right else np.sin
        f = lambda x: (np.sin(x / 1e-12), lambda dy: dy * slope(x / 1e-12) / 1e-12)  # noqa: B023, E731
        assert verify.gradients(f, 1e-12 * draw(3, 4)).ok is right
