"""Kernels: each held equal to its textbook op in output and gradients; and when `fast.ops` takes which form.

In float64 they must agree to 1e-12. In float32 both round, so neither is the measure: the error of the kernel against
the textbook op in float64 may be a few times that of the textbook op in float32.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from all_ops import LAYOUTS, arguments_of, floats, in_dtype, laid_out
from all_ops import results as pulled_back
from common import printed
from kernel_checks import entered, heads, random, require_equal, require_rounded_alike
from tiers import in_one

import minitransformer
from minitransformer import fast, verify
from minitransformer.core import ops as textbook
from minitransformer.core.arrays import masks
from minitransformer.core.ops.random_numbers import uniform
from minitransformer.layers import EncoderLayer, Linear, Parameter
from minitransformer.run.fast import (
    activations,
    attention_loops,
    blas,
    compiler,
    cross_entropy,
    cuda,
    decoding_loops,
    linear,
    loops,
    normalization,
    ops,
)
from minitransformer.run.fast import attention as attention_kernel
from minitransformer.run.fast.large_cases import LARGE
from minitransformer.run.fast.row_blocks import BLOCK, compiled, keeps, numpy_only
from minitransformer.run.machines import freed_memory
from minitransformer.run.machines.threads import share_out
from minitransformer.training import AdamW
from minitransformer.verify import CASES

KERNELS: dict[str, Callable[..., Any]] = {
    "attention": attention_kernel.attention,
    "cross_entropy": cross_entropy.cross_entropy,
    "gelu": activations.gelu,
    "layer_norm": normalization.layer_norm,
}


CALLS = {name: case for name, case in (CASES | LARGE).items() if case.kind == "op" and case.covers in KERNELS}
FIRST = {case.covers: name for name, case in reversed(CALLS.items())}
SHARED = LAYOUTS | {"strides of zero": lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim else x}


def call_of(call: str, dtype: Any, layout: str = "rows") -> dict[str, Any]:
    return laid_out(in_dtype(arguments_of(call), dtype), SHARED[layout])


def results(call: str, dtype: str, form: Any, layout: str) -> list[np.ndarray]:
    """The output and the gradients of one call, twice pulled back. form: the ops as written, or the fast ones."""
    given, kept = (call_of(call, dtype, layout) for _ in range(2))
    y, backward = getattr(form, CALLS[call].covers)(**given)
    dy = np.asarray(np.random.default_rng(9).normal(size=y.shape)).astype(dtype)
    once, again = (pulled_back(y, backward(dy)) for _ in range(2))
    require_equal(once, again)
    for name, x in given.items():
        assert name == "rng" or np.array_equal(x, kept[name])
    assert [x.shape for x in once[1:]] == [given[name].shape for name in floats(given)]
    assert {x.dtype for x in once} == {np.dtype(dtype)}
    return once


@pytest.mark.few(18)
@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=pytest.mark.slow if " of rank " in call else ()) for call in CALLS]
)
def test_a_kernel_equals_its_textbook_op_in_float64(call: str) -> None:
    for layout in SHARED:
        both = (results(call, "float64", form, layout) for form in (textbook, ops))
        for expected, result in zip(*both, strict=True):
            size = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12 * size)


@pytest.fixture(params=["numpy", "compiled"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """The two forms of what Numba compiles where it is installed, as it is for the tests."""
    if request.param == "compiled":
        assert compiled(np.ones(3, np.float32)) is not None
        yield "compiled"
    else:
        with numpy_only():
            assert compiled(np.ones(3, np.float32)) is None
            yield "numpy"


@pytest.mark.few(6)
@pytest.mark.parametrize("call", CALLS)
def test_a_kernel_rounds_like_its_textbook_op_in_float32(call: str, form: str) -> None:
    for layout in SHARED:
        exact = results(call, "float64", textbook, layout)
        both = (results(call, "float32", each, layout) for each in (textbook, ops))
        rounded, result = both
        require_rounded_alike(result, rounded, exact, times=3.0)


ON_A_GPU = {"dropout"}  # alone; see test_cuda_kernels.py


def test_the_calls_cover_every_kernel() -> None:
    fast_forms = {name for name in ops.__all__ if hasattr(getattr(ops, name), "textbook")}
    assert FIRST.keys() == KERNELS.keys() == fast_forms - ON_A_GPU - {"linear"}  # of few rows: test_decoding_kernels.py
    assert set(ops.__all__) == set(textbook.__all__)


@in_one("name", textbook.__all__)
def test_a_fast_op_has_the_arguments_of_its_textbook_op_and_leads_back_to_it(name: str) -> None:
    fast_form, slow = getattr(ops, name), getattr(textbook, name)
    kernels = KERNELS | {"linear": linear.linear, "dropout": cuda.dropout.dropout}
    if name in kernels:
        assert fast_form is not slow
        assert fast_form.textbook is slow
        wanted = inspect.signature(slow).parameters
        assert inspect.signature(fast_form).parameters == inspect.signature(kernels[name]).parameters == wanted
    else:
        assert fast_form is slow


@in_one("target, smoothing", [(-1, 0.0), (3, 0.0), (0, 1.5), (0, -0.5)])
def test_the_kernel_of_the_loss_leaves_what_is_wrong_to_its_op(target: int, smoothing: float) -> None:
    logits, targets = random(2, 3), np.array([0, target])
    assert cross_entropy.cross_entropy(logits, targets, label_smoothing=smoothing) is None
    with pytest.raises(ValueError, match=r"cross_entropy: (targets|label_smoothing)"):
        fast.ops.cross_entropy(logits, targets, label_smoothing=smoothing)


def test_the_tracer_sees_the_textbook_form() -> None:
    q = random(1, 2, 3, 4)
    report = verify.gradients(ops.attention, q, q + 1.0, q - 1.0)
    assert {"attention.weights", "attention.scores"} <= {row.name for row in report.rows}
    assert report.ok


def test_the_check_holds_a_wrong_kernel_against_the_textbook_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any) -> Any:
        y, backward = textbook.linear(*args)
        return y, lambda dy: (*backward(dy)[:-1], 1.001 * backward(dy)[-1])

    layer = Linear(3, 4, rng=np.random.default_rng(0))
    twin = fast.accelerate(layer)
    assert verify.gradients(twin, random(5, 3)).ok
    monkeypatch.setattr(ops, "linear", wrong)
    report = verify.gradients(twin, random(5, 3))
    assert {row.name for row in report.rows if not row.ok} == {"bias"}
    assert "fast twin" in next(row.problem for row in report.rows if row.name == "bias")
    assert verify.gradients(twin.textbook, random(5, 3)).ok
    assert verify.gradients(layer, random(5, 3)).ok


def trained(dtype: type, sizes: list[tuple[int, ...]], accelerate: Any = lambda same: same) -> list[np.ndarray]:
    """Values, means and squares after three steps of AdamW on gradients that differ in size by six orders."""
    rng = np.random.default_rng(5)
    parameters = [(f"p{i}", Parameter(rng.normal(size=size).astype(dtype))) for i, size in enumerate(sizes)]
    optimizer = accelerate(AdamW(parameters, 1e-2, betas=(0.8, 0.95), weight_decay=0.3))
    for _ in range(3):
        for _, p in parameters:
            p.grad[...] = rng.normal(size=p.grad.shape) * 10.0 ** rng.integers(-5, 2, p.grad.shape)
        optimizer.step()
    return [*(p.value for _, p in parameters), *optimizer.state().values()]


SIZES = [(1,), (7,), (3, 5), (2, BLOCK + 3)]


def test_the_kernel_of_adam_rounds_like_its_textbook_form_in_float32(form: str) -> None:
    rounded, exact = trained(np.float32, SIZES), trained(np.float64, SIZES)
    require_rounded_alike(trained(np.float32, SIZES, fast.accelerate), rounded, exact)


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0 / 3.0])
def test_dropout_keeps_the_same_elements(rate: float, form: str) -> None:
    for shape in ((), (0, 3), (5,), (7, 9), (4, 5, 600)):
        expected = uniform(np.random.default_rng(3), shape, like=np.zeros(1)) >= rate
        np.testing.assert_array_equal(keeps(np.random.default_rng(3), shape, rate), expected)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_huge_numbers(approximate: str, form: str) -> None:
    x = np.array([1e13, 1e20, 3e38, -1e13, -1e20, -3e38], np.float32)
    with np.errstate(over="ignore"):
        y, backward = ops.gelu(x, approximate=approximate)
        dx = backward(np.ones_like(x))
    np.testing.assert_allclose(y[:3], x[:3])
    np.testing.assert_allclose(y[3:], 0.0, atol=1e-30)
    np.testing.assert_allclose(dx, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], atol=1e-20)


def test_attention_on_split_heads_is_compiled_and_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    attention_loops.ready()  # compiles them, before others take their places
    q, dy = (heads(2, 9, 3, 4, seed=seed).astype(np.float32) for seed in (0, 1))
    found = []
    for n_threads, many in ((1, attention_kernel._MANY), (2, 0)):
        monkeypatch.setattr(attention_kernel, "_MANY", many)
        with threadpoolctl.threadpool_limits(n_threads, user_api="blas"), monkeypatch.context() as patch:
            used = [entered(patch, attention_loops, name, n_threads) for name in ("attend", "attend_backward")]
            y, backward = ops.attention(q, q, q)
            found.append([y, *backward(dy)])
            assert [len(each) for each in used] == [n_threads] * 2
    require_equal(*found)


@in_one("call", CALLS)
def test_the_output_is_the_callers_to_change(call: str, form: str) -> None:
    found = []
    for factor in (1.0, -3.0):
        y, backward = getattr(ops, CALLS[call].covers)(**call_of(call, "float32"))
        y = np.asarray(y)
        y *= factor
        y += factor - 1.0
        found.append(pulled_back(y, backward(np.asarray(random(*y.shape, seed=9)).astype(np.float32)))[1:])
    require_equal(*found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("key", [np.nan, np.inf, -np.inf, 3e38])
def test_a_hidden_key_may_be_anything(key: float, dtype: type, form: str) -> None:
    """Not even its score counts, which is NaN or infinite: as in the textbook, who does not see it is untouched."""
    q, k, v = np.ones((3, 2), dtype), np.array([[1.0, 0.0], [key, key], [2.0, 0.5]], dtype), np.eye(3, dtype=dtype)
    mask = np.array([True, False, True])
    with np.errstate(all="ignore"):
        for options in ({"mask": mask}, {"mask": mask[None].repeat(3, 0), "causal": True}):
            expected = textbook.attention(q, k, v, **options)[0]
            assert np.isfinite(expected).all() and not expected[:, 1].any()
            np.testing.assert_allclose(ops.attention(q, k, v, **options)[0], expected, rtol=1e-6)
        y = ops.attention(q, k[[0, 2, 1]], v, causal=True)[0]  # the last query alone sees it
        np.testing.assert_allclose(y, textbook.attention(q, k[[0, 2, 1]], v, causal=True)[0], rtol=1e-6)


@pytest.mark.parametrize(("value", "upstream"), [(1e15, 1.0), (1e35, 1e-30), (1.0, 1e-16), (1.0, 1e-20), (1.0, 1e-34)])
def test_large_scores_take_no_room_from_values_and_gradients(value: float, upstream: float, form: str) -> None:
    """Scores of about 56, whose exponentials are 2e24: values and gradients are right as far as float32 reaches."""
    q, k, v, dy = (random(1, 2, 20, 8, seed=seed) for seed in range(4))
    q, k = (math.sqrt(7.0) + 0.1 * x for x in (q, k))
    given = [x.astype(np.float32) for x in (q, k, v * value)]
    y, backward = ops.attention(*given, scale=1.0)
    gradients = backward((dy * upstream).astype(np.float32))
    expected, exact = textbook.attention(*(x.astype(np.float64) for x in given), scale=1.0)
    wanted = exact((dy * upstream).astype(np.float32).astype(np.float64))
    for found, right in zip((y, *gradients), (expected, *wanted), strict=True):
        assert np.abs(found - right).max() <= 1e-4 * np.abs(right).max()


@pytest.mark.parametrize("eps", [1e-8, 1e-5, 1e-2])
def test_the_norm_of_two_numbers_errs_by_rounding_alone(eps: float, form: str) -> None:
    """For x = (a, b) and h = (a - b) / 2 there is a formula without cancellation. Of dn = γ dy it says

        s = 1/√(h² + ε),    dx = ±(dn_a - dn_b)/2 · ε s³

    while s (dn - shift - n stretch), where n is near ±1, subtracts numbers of the size of s |dn|. With u the unit of
    rounding that errs by some u s |dn|; and x - mean by u |x|, which n has s times and dx once more.
    """
    r, u = np.random.default_rng(0), 2.0**-24
    x = (r.normal(size=(2000, 2)) * 10.0 ** r.integers(-5, 3, size=(2000, 1))).astype(np.float32)
    dy, gamma = r.normal(size=x.shape).astype(np.float32), r.normal(size=2).astype(np.float32)
    dx = ops.layer_norm(x, gamma, gamma, eps)[1](dy)[0]
    dn, h = dy.astype(np.float64) * gamma, np.diff(x.astype(np.float64)) / -2.0
    s = 1.0 / np.sqrt(h * h + eps)
    exact = np.diff(dn) / -2.0 * eps * s**3 * [1.0, -1.0]
    bound = u * s * np.abs(dn).max(axis=-1, keepdims=True) * (1.0 + s * np.abs(x).max(axis=-1, keepdims=True))
    assert (np.abs(dx - exact) <= 8.0 * bound).all()


def test_a_mask_may_be_changed_after_the_forward_pass(form: str) -> None:
    q, k, v = (random(1, 2, length, 8, seed=length).astype(np.float32) for length in (16, 100, 100))
    mask = np.ones((16, 100), bool)
    mask[:, 50:] = False
    y, backward = ops.attention(q, k, v, mask)
    expected = backward(y)
    y, backward = ops.attention(q, k, v, mask)
    mask[:] = ~mask
    require_equal(backward(y), expected)


def test_attention_takes_no_text_for_causal(form: str) -> None:
    q = heads(2, 9, 3, 4).astype(np.float32)
    np.testing.assert_allclose(
        ops.attention(q, q, q, None, np.True_)[0], ops.attention(q, q, q, None, True)[0], rtol=1e-5, atol=1e-6
    )
    layer = fast.accelerate(EncoderLayer(4, 2, 6))
    for call in (lambda: ops.attention(q, q, q, causal="no"), lambda: layer(q[:, :, 0], causal="no")):
        with pytest.raises(TypeError, match="causal must be True or False, got 'no'"):
            call()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_leaves_other_dtypes_to_its_textbook_op(name: str, form: str) -> None:
    for dtype in (np.int64, np.complex64):
        arguments = arguments_of(FIRST[name])
        first = floats(arguments)[0]
        arguments[first] = arguments[first].astype(dtype)
        with pytest.raises(TypeError) as wanted:
            getattr(textbook, name)(**arguments)
        with pytest.raises(TypeError, match=f"^{re.escape(str(wanted.value))}$"):
            getattr(ops, name)(**arguments)


def test_numbers_in_the_other_byte_order_and_gaps_are_left_to_the_textbook(form: str) -> None:
    x, ones = random(3, 5).astype(np.float32), np.ones(5, np.float32)
    for op, given in ((ops.gelu, (x,)), (ops.layer_norm, (x, ones, ones))):
        swapped = [each.astype(each.dtype.newbyteorder()) for each in given]
        np.testing.assert_allclose(op(*swapped)[0], op(*given)[0], rtol=1e-5, atol=1e-6)
    p = Parameter(random(4, 6))
    p.value, p.grad = p.value.T, random(6, 4)
    before = p.value.copy()
    fast.accelerate(AdamW([("p", p)], 1e-2, weight_decay=0.0)).step()
    np.testing.assert_allclose(p.value, before - 1e-2 * np.sign(p.grad), rtol=1e-6)


@pytest.mark.parametrize("arrays", [np.float32, np.float64])
def test_without_openblas_attention_is_computed_in_numpy(arrays: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_loops, "ready", lambda: None)
    monkeypatch.setattr(attention_loops, "attend", lambda *arrays: pytest.fail("there is no product for it"))
    compiler.with_loops.cache_clear()
    try:
        q = heads(2, 9, 3, 4).astype(arrays)
        expected = textbook.attention(q, q, q, causal=True)[0]
        np.testing.assert_allclose(ops.attention(q, q, q, causal=True)[0], expected, rtol=1e-5, atol=1e-6)
    finally:
        compiler.with_loops.cache_clear()


@pytest.mark.parametrize("wide", [True, False])
def test_the_product_gets_its_arguments_as_cblas_h_declares_them(wide: bool) -> None:
    """A function of that signature, in C's own calling convention, in place of cblas_sgemm: it only notes what came.

    The shapes and strides are views that no memory holds; with 64 bits they have more than 32.
    """
    size, real, place, enum = ctypes.c_int64 if wide else ctypes.c_int32, ctypes.c_float, ctypes.c_void_p, ctypes.c_int
    kinds = [enum, enum, enum, size, size, size, real, place, size, place, size, real, place, size]
    came: list[tuple[Any, ...]] = []
    noting = ctypes.CFUNCTYPE(None, *kinds)(lambda *arguments: came.append(arguments))
    address = ctypes.cast(noting, ctypes.c_void_p).value
    large = 2**33 if wide else 2**20  # NumPy allows one such side in a matrix, not two
    lda, ldb, ldc = (large * 3 + 1, large * 4 + 2, large * 5 + 3)

    def view(rows: int, columns: int, apart: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (rows, columns), (4 * apart, 4))

    sizes = ((large + 3, 5, 7), (3, large + 5, 7), (3, 5, large + 7))
    for (m, n, k), flip_a, flip_b in itertools.product(sizes, (111, 112), (111, 112)):
        a = view(*((k, m) if flip_a == 112 else (m, k)), lda)
        b = view(*((n, k) if flip_b == 112 else (k, n)), ldb)
        c = view(m, n, ldc)
        blas.multiply((address, wide), flip_a, flip_b, np.float32(0.5), a, b, np.float32(-3.0), c)
        at_a, at_b, at_c = (each.ctypes.data for each in (a, b, c))
        expected = (101, flip_a, flip_b, m, n, k, 0.5, at_a, lda, at_b, ldb, -3.0, at_c, ldc)
        assert came.pop() == expected and not came


@pytest.mark.parametrize("beta2", [0.999, 0.99999, 1.0 - 1e-8])
def test_adam_with_a_beta_near_1(beta2: float, form: str) -> None:
    """With a constant gradient every step is of the learning rate, whatever the betas."""
    p = Parameter(np.zeros(3, np.float32))
    optimizer = fast.accelerate(AdamW([("p", p)], 1e-3, betas=(0.9, beta2), weight_decay=0.0))
    for _ in range(3):
        p.grad[...] = [1.0, -2.0, 0.5]
        optimizer.step()
    np.testing.assert_allclose(p.value, [-3e-3, 3e-3, -3e-3], rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_backward_of_a_long_call_runs_the_blocks_again(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernel, "LONG", 0)
    q, k, v, dy = (random(2, 3, length, 8, seed=length) for length in (130, 150, 150, 130))
    for mask in (None, random(2, 1, 1, 150) < 0.5, random(150) < 0.5, random(130, 150) < 0.5):
        found, expected = (form(q, k, v, mask, causal) for form in (ops.attention, textbook.attention))
        if mask is not None:
            mask[...] = True  # it is the caller's
        for one, other in zip((found[0], *found[1](dy)), (expected[0], *expected[1](dy)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_threads_keep_how_floating_point_errors_are_treated() -> None:
    zeros = [np.zeros(1)] * 8
    with threadpoolctl.threadpool_limits(2, user_api="blas"), np.errstate(all="ignore"):
        share_out(np.log, zeros)  # warnings are errors here
    with threadpoolctl.threadpool_limits(2, user_api="blas"), np.errstate(all="raise"):  # noqa: SIM117
        with pytest.raises(FloatingPointError):
            share_out(np.log, zeros)


def test_the_compiled_exponential() -> None:
    zero = np.float32(0.0)
    x = np.linspace(-87.0, 88.0, 1_000_001, dtype=np.float32)
    found = x.copy()
    loops.exponentials(found, zero)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(found / exact - 1.0).max() < 1e-7  # NumPy's own: 2e-7
    assert loops.exponentials(x[:900_000].copy(), zero) == pytest.approx(exact[:900_000].sum(), rel=1e-5)
    moved = np.array([3.0, -1.0], np.float32)
    loops.exponentials(moved, np.float32(3.0))
    np.testing.assert_allclose(moved, [1.0, math.exp(-4.0)], rtol=1e-6)
    strange = np.array([-np.inf, -1e30, -87.5, 0.0, np.nan], np.float32)
    assert np.isnan(loops.exponentials(strange, zero))
    np.testing.assert_array_equal(strange, [0.0, 0.0, 0.0, 1.0, np.nan])


@pytest.mark.slow
def test_an_edit_reaches_the_loops_of_other_files_that_call_the_edited_one(tmp_path: Path) -> None:
    """Decoding's attention holds the machine code of the exponentials, which are in another file."""
    package = Path(minitransformer.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    edited = tmp_path / package.name / Path(loops.__file__).relative_to(package)
    code = f"""
import numpy as np
from {decoding_loops.__name__} import attend
rows, output = np.ones((5, 3), np.float32), np.empty(3, np.float32)
mix, no_bias = (np.float32(1.0), np.float32(0.0), 0, 0), np.empty(0, np.float32)
attend(rows[0], rows, rows, mix, no_bias, np.empty(5, np.float32), output)
print(output.mean(), sum(attend.stats.cache_hits.values()))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}

    def shown() -> tuple[float, int]:
        run = [sys.executable, "-c", code]
        environment["PYTHONPATH"] = str(tmp_path)
        mean, hits = subprocess.check_output(run, text=True, env=environment, cwd=tmp_path).split()
        return float(mean), int(hits)

    assert shown() == (pytest.approx(1.0), 0)
    assert shown() == (pytest.approx(1.0), 1)  # the machine code is kept
    text = edited.read_text(encoding="utf-8")
    assert text.count("total += e\n") == 1
    edited.write_text(text.replace("total += e\n", "total += 2.0 * e\n"), encoding="utf-8")
    assert shown() == (pytest.approx(0.5), 0)


def test_machine_code_is_stamped_with_every_file_that_it_comes_from() -> None:
    folder = Path(loops.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    compiled_here = {name for name, text in texts.items() if re.search(r"^ *@(compiled|intrinsic)\b", text, re.M)}
    imports = re.findall(r"^from (\.+)(\S*) import (\w+)", "".join(texts[name] for name in compiled_here), re.M)
    places = {(folder / ("../" * (len(dots) - 1)) / place.replace(".", "/"), name) for dots, place, name in imports}
    files = {(path / name if path.is_dir() else path).with_suffix(".py").resolve() for path, name in places}
    assert {(folder / name).resolve() for name in loops.SOURCES} == files | {folder / name for name in compiled_here}


@pytest.mark.slow
def test_without_numba_the_kernels_run_in_numpy(tmp_path: Path) -> None:
    """As on a machine without the extra `fast`."""
    (tmp_path / "numba.py").write_text("raise ImportError('no numba here')")
    code = """
import numpy
from minitransformer.fast import ops
from minitransformer.run.fast.row_blocks import compiled
x = numpy.ones((3, 5), "float32")
assert compiled(x) is None
print(ops.gelu(x)[0].sum())
"""
    assert float(printed(code, PYTHONPATH=str(tmp_path))) == pytest.approx(15 * 0.8413447)


@pytest.mark.parametrize("op", ["gelu", "gelu_tanh", "layer_norm", "attention"])
def test_a_kernel_lets_nothing_go_that_is_not_finite(op: str, form: str) -> None:
    x = np.ones((2, 3, 4), np.float32)
    x[0, 1, 2] = np.nan
    calls = {
        "gelu": lambda: ops.gelu(x),
        "gelu_tanh": lambda: ops.gelu(x, approximate="tanh"),
        "layer_norm": lambda: ops.layer_norm(x, np.ones(4, np.float32), np.zeros(4, np.float32)),
        "attention": lambda: ops.attention(x, x, x),
    }
    y, backward = calls[op]()
    assert np.isnan(y[0]).any()
    assert np.isfinite(y[1]).all()
    gradients = backward(np.ones_like(y))
    dx = gradients if op.startswith("gelu") else gradients[0]
    assert np.isnan(dx[0]).any()
    assert np.isfinite(dx[1]).all()


def kept_bytes(call: Callable[[], tuple[Any, Any]]) -> int:
    """What a pullback keeps alive beside the inputs, which another holds."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    y, backward = call()
    del y
    masks.kept_causal_mask.cache_clear()  # which are for all
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del backward
    return kept


def test_a_kernel_keeps_no_more_than_backward_needs(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input itself is free to go: each pullback holds what its docstring says, and a few hundred bytes."""
    monkeypatch.setattr(attention_kernel, "LONG", 0)
    n = 4 * 64 * 32 * 4  # bytes of one array
    weight, gamma, wanted = np.ones((32, 32), np.float32), np.ones(32, np.float32), np.ones((4, 64), np.int64)

    def fresh() -> np.ndarray:
        return np.ones((4, 64, 32), np.float32)

    def long(name: str) -> np.ndarray:
        return np.ones((1, 256, 32), np.float32)

    calls: dict[str, tuple[Callable[[], Any], float]] = {
        "linear, its input": (lambda: ops.linear(fresh(), weight), 1.0),
        "gelu, its slope": (lambda: ops.gelu(fresh()), 1.0),
        "layer_norm, what is normalized": (lambda: ops.layer_norm(fresh(), gamma, gamma), 1.0 + 1 / 32),
        "cross_entropy, exponentials; of each row a sum, a target and a place": (
            lambda: ops.cross_entropy(fresh(), wanted),
            1.0 + 5 / 32,
        ),
        "attention, q, k, v; loops also the output": (
            lambda: ops.attention(*map(long, "qkv"), causal=True),
            3.0 if form == "numpy" else 4.0 + 1 / 32,
        ),
    }
    for call, _ in calls.values():
        call()  # what is compiled or cached at the first call
    assert {name: kept_bytes(call) / n for name, (call, _) in calls.items()} == {
        name: pytest.approx(arrays, abs=0.2) for name, (_, arrays) in calls.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])  # compiled loops, and NumPy's form
def test_attention_without_kept_weights_needs_memory_that_grows_with_the_length(dtype: str, causal: bool) -> None:
    code = """
import sys, tracemalloc
import numpy
from minitransformer.fast import ops
def peak(length):
    q = numpy.random.default_rng(0).normal(size=(1, 2, length, 16)).astype(sys.argv[1])
    y, backward = ops.attention(q, q, q, causal=sys.argv[2] == 'True')
    backward(y)  # loads what is compiled
    tracemalloc.start()
    y, backward = ops.attention(q, q, q, causal=sys.argv[2] == 'True')
    backward(y)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most
print(peak(4096) / peak(2048))
"""
    # One thread: two may need the most at the same time, or not. With the weights it would be four times as much.
    assert float(printed(code, dtype, str(causal), OPENBLAS_NUM_THREADS="1")) < 2.5


def test_the_fitted_tail_of_the_normal_distribution() -> None:
    x = np.linspace(-9.0, 9.0, 20001)
    y, _ = KERNELS["gelu"](x.astype(np.float32))
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2.0)) for v in x.astype(np.float32).tolist()])
    small = np.abs(exact) < 1e-30
    assert (np.abs(y - exact) <= 1e-5 * np.abs(exact) + 1e-37)[~small].all()
    assert np.abs(y - exact).max() < 5e-7


def test_an_older_or_another_c_library_is_told_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """mallopt(3): an int for each value; 0 from an older glibc to a map threshold above 4 · 1024 · 1024 · 8."""
    told: dict[int, int] = {}

    def mallopt(name: int, value: int) -> int:
        assert -(2**31) <= value < 2**31, "mallopt takes an int"
        told[name] = value
        return int(name != -3 or value <= 1 << 25)

    monkeypatch.setattr(freed_memory.sys, "platform", "linux")
    for library in (SimpleNamespace(mallopt=mallopt), SimpleNamespace()):
        monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _, library=library: library)
        freed_memory.keep_freed_memory()
    assert told == {-1: 2**31 - 1, -3: 1 << 25, -8: 1}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX of malloc.h
    monkeypatch.setattr(freed_memory.sys, "platform", "darwin")
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _: pytest.fail("only glibc has them"))
    freed_memory.keep_freed_memory()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_freed_memory_is_kept() -> None:
    code = """
import resource
import numpy
from minitransformer.run.machines.freed_memory import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [numpy.ones(1 << 17) for _ in range(64)]  # of 1 MiB, 256 pages each
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(4)))
keep_freed_memory()
print(min(faults() for _ in range(4)))
"""
    without, kept = map(int, printed(code).split())
    assert without > 64 * 200
    assert kept < 64
