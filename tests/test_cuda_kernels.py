"""The CUDA kernels without a GPU: nvcc compiles them, and g++ compiles the same files to run them on the processor.

emulated.py stands in for CuPy's RawModule, and the strict stand-in for CuPy's arrays. So the Python side runs too: what
it hands to a kernel, in which order and of which type, grids and blocks. It may not ask an array for a number.

With MINITRANSFORMER_DEVICE=cupy the same calls run on a GPU, and the results are compared in the same way.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
from kernel_checks import heads, random, require_equal
from tiers import in_one

from minitransformer import ops as textbook
from minitransformer.core.arrays import strict
from minitransformer.core.arrays.backend import array_module, to_device, to_numpy
from minitransformer.core.training.optimizers import AdamW
from minitransformer.layers import Parameter
from minitransformer.run.fast import cuda, ops
from minitransformer.run.fast.cuda import launching
from minitransformer.run.fast.cuda.launching import FOLDER, kernel_names, source

FILES = {  # the template parameters after the type of the numbers, as the Python side gives them
    "adam.cu": [""],
    "attention.cu": [", 32", ", 64", ", 128"],
    "cross_entropy.cu": [""],
    "dropout.cu": [""],
    "gelu.cu": [", false", ", true"],
    "layer_norm.cu": [""],
    "linear.cu": [""],
}
INSTANCES = [(file, t + rest) for file, several in FILES.items() for t in ("float", "__half") for rest in several]
SELDOM = {
    ("attention.cu", parameters) for parameters in ("float, 32", "float, 64", "float, 128", "__half, 64", "__half, 128")
}  # to compile
KERNELS: dict[str, Callable[..., Any]] = {name: getattr(getattr(cuda, name), name) for name in cuda.__all__}
NVCC = shutil.which("nvcc")
ON_A_GPU = os.environ.get("MINITRANSFORMER_DEVICE") == "cupy"


def seen(*shape: int) -> np.ndarray:
    """A mask with a row that sees nothing, and where it is one for each sequence, a sequence that does not."""
    mask = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0, :] = False
    mask[-1] = False
    return mask


TARGETS = np.random.default_rng(1).integers(0, 17, (5, 7))
SOME = np.where(np.random.default_rng(2).random((5, 7)) < 0.3, -100, TARGETS)
QKV = heads(2, 37, 3, 8), heads(2, 37, 3, 8, seed=1), heads(2, 37, 3, 6, seed=2)
CROSS = QKV[0][:, :, :13], *QKV[1:]
MORE = QKV[0], QKV[1][:, :, :9], QKV[2][:, :, :9]
LONG = tuple(heads(1, 139, 2, 5, seed=seed) for seed in range(3))
WIDE = tuple(heads(1, 41, 2, 64, seed=seed) for seed in range(3))
WIDEST = heads(1, 35, 1, 128), heads(1, 35, 1, 128, seed=1), heads(1, 35, 1, 99, seed=2)

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {  # the name begins with that of the op
    "layer_norm": ((random(3, 41, 37), random(37), random(37, seed=1)), {}),
    "layer_norm: width 3, eps": ((random(5, 3), random(3), random(3, seed=1)), {"eps": 0.1}),
    "layer_norm: small eps": ((random(5, 3), random(3), random(3, seed=1)), {"eps": 1e-6}),
    "layer_norm: one row": ((random(129), random(129), random(129, seed=1)), {}),
    "layer_norm: width 1": ((random(7, 1), random(1), random(1, seed=1)), {}),
    "layer_norm: far from 0": ((random(41, 65) + 1e2, random(65), random(65)), {}),
    "layer_norm: many strips": ((random(2100, 3), random(3), random(3, seed=1)), {}),
    "layer_norm: strided": ((random(5, 7, 3).swapaxes(0, 1), random(6)[::2], random(3)), {}),
    "gelu": ((random(301, 3, scale=4.0),), {}),
    "gelu: one number": ((np.array(-1.7),), {}),
    "gelu: large": ((np.array([0.0, -0.0, 5.0, -5.0, 12.0, -12.0, 1e4, -1e4]),), {}),
    "gelu: tanh": ((random(37, 8, scale=4.0).T,), {"approximate": "tanh"}),
    "gelu: tanh, large": ((np.array([0.0, 5.0, -5.0, 12.0, -12.0, 1e4, -1e30]),), {"approximate": "tanh"}),
    "dropout": ((random(301, 3),), {"rate": 0.3, "rng": 1}),
    "dropout: one number": ((np.array(-1.7),), {"rate": 0.1, "rng": 2}),
    "dropout: strided": ((random(37, 8).T,), {"rate": 0.9, "rng": 3}),
    "linear": ((random(5, 7, 6), random(6, 37), random(37)), {}),
    "linear: one row": ((random(6), random(6, 3), random(3)), {}),
    "linear: many strips": ((random(2100, 3), random(3, 33), random(33)), {}),
    "linear: strided": ((random(7, 5, 6).swapaxes(0, 1), random(3, 6).T, random(6)[::2]), {}),
    "cross_entropy": ((random(5, 7, 17, scale=3.0), TARGETS), {}),
    "cross_entropy: some do not count": ((random(5, 7, 17, scale=3.0), SOME), {}),
    "cross_entropy: none counts": ((random(5, 7, 17), np.full((5, 7), -100)), {}),
    "cross_entropy: smoothing": ((random(7, 5, 17).swapaxes(0, 1), SOME), {"label_smoothing": 0.1}),
    "cross_entropy: sum": ((random(5, 7, 17), SOME), {"label_smoothing": 1.0, "reduction": "sum"}),
    "cross_entropy: huge": ((random(5, 7, 17) + 1e3, TARGETS), {"label_smoothing": 0.1}),
    "cross_entropy: one ahead by far": ((random(5, 7, 17, scale=300.0), TARGETS), {}),
    "cross_entropy: rising": ((np.sort(random(3, 301, scale=9.0)), np.array([300, 4, 0])), {}),
    "cross_entropy: one row": ((random(1000), np.array(3)), {"ignore_index": 2}),
    "cross_entropy: two classes": ((random(9, 2), np.arange(9) % 2), {"ignore_index": 0}),
    "attention": (QKV, {}),
    "attention: causal": (QKV, {"causal": True}),
    "attention: fewer queries": (CROSS, {"causal": True, "scale": 0.7}),
    "attention: more queries than keys": (MORE, {"causal": True, "mask": seen(2, 1, 37, 9)}),
    "attention: mask": (QKV, {"mask": seen(2, 1, 37, 37)}),
    "attention: mask of heads": (QKV, {"mask": seen(2, 3, 37, 37), "causal": True}),
    "attention: mask of keys": (QKV, {"mask": seen(2, 1, 1, 37)}),
    "attention: mask of queries": (QKV, {"mask": seen(37, 1)}),
    "attention: mask of one axis": (QKV, {"mask": np.arange(37) % 3 > 0}),
    "attention: strided mask": (QKV, {"mask": seen(2, 1, 37, 37).swapaxes(2, 3)}),
    "attention: nothing seen": (QKV, {"mask": np.zeros((37, 37), bool)}),
    "attention: large scores": (QKV, {"scale": 30.0, "mask": seen(2, 1, 37, 37)}),
    "attention: dropout": (QKV, {"dropout": 0.3, "rng": 1, "mask": seen(2, 1, 37, 37)}),
    "attention: a rate and no rng": (QKV, {"dropout": 0.3}),
    "attention: two axes": (tuple(x[0, 0] for x in QKV), {"mask": seen(37, 37)}),
    "attention: three axes": (tuple(x[:, 0] for x in QKV), {"mask": seen(2, 37, 37), "causal": True}),
    "attention: one key": ((QKV[0], *(x[:, :, :1] for x in QKV[1:])), {}),
    "attention: several blocks": (LONG, {"causal": True}),
    "attention: several blocks, fewer queries": ((LONG[0][:, :, :131], *LONG[1:]), {"causal": True}),
    "attention: several blocks, more queries": ((LONG[0], *(x[:, :, :70] for x in LONG[1:])), {}),
    "attention: heads of 64": (WIDE, {"causal": True}),
    "attention: heads of 64, values of 7": ((*WIDE[:2], heads(1, 41, 2, 7)), {"dropout": 0.1, "rng": 2}),
    "attention: heads of 128": (WIDEST, {"mask": seen(35, 35)}),
    "attention: heads of 128, values of 3": ((*WIDEST[:2], heads(1, 35, 1, 3)), {"causal": True}),
    "attention: heads of 3, values of 128": ((*(heads(1, 35, 1, 3, seed=n) for n in (3, 4)), WIDEST[0]), {}),
    "attention: heads of 33": (tuple(x[..., :33].copy() for x in WIDE), {"causal": True}),
    "attention: heads of 1": (tuple(x[..., :1].copy() for x in LONG), {"causal": True}),
    "attention: whole tiles": (tuple(heads(2, 64, 1, 32, seed=n) for n in range(3)), {"causal": True}),
    "attention: two queries": ((LONG[0][:, :, :2], *LONG[1:]), {"causal": True}),
    "attention: several blocks, mask, dropout": (LONG, {"mask": seen(1, 2, 139, 139), "dropout": 0.2, "rng": 3}),
    "attention: several blocks, all of it": (
        (LONG[0][:, :, :77], *LONG[1:]),
        {"mask": seen(1, 1, 77, 139), "causal": True, "dropout": 0.2, "rng": 4, "scale": -0.4},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if emulated.GXX is None and not ON_A_GPU:
        pytest.skip("g++ is missing, which compiles the kernels for the processor")
    yield tmp_path_factory.mktemp("emulated")
    launching._compiled.cache_clear()


def trap(*_: Any) -> Any:
    raise AssertionError("the host asked the device for a number")


@pytest.fixture
def device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict stand-in, able to run CUDA kernels; new arrays hold NaN; no number leaves the device."""

    def empty(shape: Any, dtype: Any) -> strict.StrictArray:
        return strict.StrictArray(np.full(shape, np.nan, dtype))

    monkeypatch.setattr(emulated.EmulatedModule, "folder", folder, raising=False)
    monkeypatch.setattr(emulated.EmulatedModule, "launches", [])
    if ON_A_GPU:
        xp = array_module(placed(np.zeros(1)))
        monkeypatch.setattr(xp, "empty", lambda shape, dtype: xp.zeros(shape, dtype) * xp.nan)
        return
    monkeypatch.setattr(strict.xp, "RawModule", emulated.EmulatedModule, raising=False)
    monkeypatch.setattr(strict.xp, "empty", empty)
    for name in ("__bool__", "__float__", "__int__", "get"):
        monkeypatch.setattr(strict.StrictArray, name, trap)
    monkeypatch.setattr(strict, "_METHODS", strict._METHODS - {"item", "tolist"})


def placed(x: np.ndarray) -> Any:
    """x for a kernel, its axes in the same order in memory."""
    if not ON_A_GPU:
        return strict.StrictArray(x)
    axes = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    there = to_device(np.array(x.transpose(axes), order="C"), "cupy")
    return there.transpose([axes.index(n) for n in range(x.ndim)]) if axes else there


def fetched(x: Any) -> np.ndarray:
    return x._numpy if isinstance(x, strict.StrictArray) else to_numpy(x)


Place = Callable[[np.ndarray], Any]


def on_device(x: Any, dtype: type, place: Place) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return place(x.astype(dtype, copy=False) if x.dtype.kind == "f" else x)  # an astype keeps strides


def arguments(call: str, dtype: type, place: Place) -> tuple[str, list[Any], dict[str, Any], np.ndarray]:
    """The name of the op, its arguments, rounded to a dtype, and the gradient that comes back to it."""
    name, (arrays, options) = call.partition(":")[0], CALLS[call]
    given = [on_device(x, dtype, place) for x in arrays]
    options = {key: on_device(x, dtype, place) for key, x in options.items()}
    if "rng" in options:
        options["rng"] = np.random.default_rng(options["rng"])
    shape = () if name == "cross_entropy" else arrays[0].shape
    if name in ("attention", "linear"):
        shape = (*shape[:-1], arrays[-1].shape[-1])
    return name, given, options, np.random.default_rng(9).normal(size=shape)


def pulled(function: Callable[..., Any], given: list[Any], options: dict[str, Any], dy: Any) -> list[np.ndarray]:
    result = function(*given, **options)
    assert result is not None, "the kernel declined"
    y, backward = result
    gradients = backward(dy.astype(y.dtype))
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return [fetched(x) for x in (y, *gradients)]


def by_kernel(call: str, dtype: type) -> list[np.ndarray]:
    name, given, options, dy = arguments(call, dtype, placed)
    return pulled(KERNELS[name], given, options, placed(dy.astype(dtype)))


def by_textbook(call: str, dtype: type, inputs: type) -> list[np.ndarray]:
    """In one dtype, on inputs that were rounded to another before."""
    name, given, options, dy = arguments(call, inputs, strict.StrictArray)
    given = [x.astype(dtype) if x.dtype.kind == "f" else x for x in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict.StrictArray, "__bool__", lambda x: bool(x._numpy))  # it looks at targets
        return pulled(getattr(textbook, name), given, options, strict.StrictArray(dy.astype(inputs)))


def unlike(call: str, dtype: type, result: list[np.ndarray]) -> list[int]:
    """Which of the output and the gradients are not what the textbook op gives."""
    exact = by_textbook(call, np.float64, dtype)
    textbook_error = [0.0] * len(exact)
    if dtype is np.float32:
        rounded = by_textbook(call, dtype, dtype)
        textbook_error = [float(np.abs(x - e).max()) for x, e in zip(rounded, exact, strict=True)]
    wrong = []
    for n, (x, expected, error) in enumerate(zip(result, exact, textbook_error, strict=True)):
        ulp = np.finfo(dtype).eps * float(np.abs(expected).max())
        if x.shape != expected.shape or not float(np.abs(x - expected).max()) <= 2.0 * error + 4.0 * ulp:
            wrong.append(n)
    return wrong


@pytest.mark.few(0, slow=23)
@pytest.mark.parametrize("call", CALLS)
def test_a_kernel_rounds_like_its_textbook_op_in_float32(
    call: str, device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = by_kernel(call, np.float32)
    assert {x.dtype for x in result} == {np.dtype(np.float32)}
    assert unlike(call, np.float32, result) == []
    monkeypatch.setattr(emulated.EmulatedModule, "descending", True)
    require_equal(result, by_kernel(call, np.float32))


HALF = [call for call in CALLS if "far" not in call and "large" not in call and "huge" not in call]


@pytest.mark.few(0, slow=20)
@pytest.mark.parametrize("call", HALF)
def test_a_kernel_on_float16_rounds_once(call: str, device: None) -> None:
    y, *gradients = by_kernel(call, np.float16)
    assert {x.dtype for x in gradients} == {np.dtype(np.float16)}
    assert y.dtype == (np.float32 if call.startswith("cross_entropy") else np.float16)
    assert unlike(call, np.float16, [y, *gradients]) == []


def adam_by_kernel(dtype: type, size: int = 1000, shrink: float = 1.0 - 1e-2 * 0.3) -> list[np.ndarray]:
    """Values, means and squares after three steps, with gradients of a dtype that differ in size by six orders."""
    rng = np.random.default_rng(5)
    value = placed(rng.normal(size=size).astype(np.float32))
    m, v = (placed(np.zeros(size, np.float32)) for _ in range(2))
    for step in (1, 2, 3):
        g = rng.normal(size=size) * 10.0 ** rng.integers(-5, 2, size)
        g = placed(g.astype(np.float16).astype(dtype))
        assert cuda.adam.adam(value, g, m, v, step, 1e-2, (0.8, 0.95), 1e-8, shrink)
    return [fetched(value), fetched(m), fetched(v)]


def adam_by_textbook(dtype: type, size: int = 1000) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MINITRANSFORMER_DEVICE", raising=False)
        p = Parameter(rng.normal(size=size).astype(np.float32).astype(dtype))
    optimizer = AdamW([("p", p)], 1e-2, betas=(0.8, 0.95), weight_decay=0.3, decay_vectors=True)
    for _ in range(3):
        p.grad[...] = (rng.normal(size=size) * 10.0 ** rng.integers(-5, 2, size)).astype(np.float16)
        optimizer.step()
    state = optimizer.state()
    return [p.value, state["mean.p"], state["square.p"]]


def adam_is_like_its_textbook_form(result: list[np.ndarray]) -> bool:
    exact, rounded = adam_by_textbook(np.float64), adam_by_textbook(np.float32)
    return all(
        np.abs(x - e).max() <= 2.0 * np.abs(r - e).max() + 4.0 * np.finfo(np.float32).eps * np.abs(e).max()
        for x, r, e in zip(result, rounded, exact, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_kernel_of_adam_rounds_like_its_textbook_form(dtype: type, device: None) -> None:
    assert adam_is_like_its_textbook_form(adam_by_kernel(dtype))


VARIANTS: dict[str, tuple[str, str, str]] = {  # right, wrong, and a call that must tell, which names the file
    "no shift": ("dn - shift - n", "dn - n", "layer_norm"),
    "gamma outside the means": ("dn_sum += dn;", "dn_sum += wide(dy[i]);", "layer_norm"),
    "every other row": ("row += WARPS", "row += 2 * WARPS", "layer_norm: many strips"),
    "a strip too long": ("min((blockIdx.y + 1) * strip, n_rows)", "n_rows", "layer_norm: many strips"),
    "sums before all have come": ("    __syncthreads();\n", "", "layer_norm"),
    "a row too many": ("if (row >= n_rows) return;", "", "layer_norm: width 3, eps"),
    "half a warp": ("sum_over(WARP, squares)", "sum_over(WARP / 2, squares)", "layer_norm"),
    "no density": ("cumulative + wide(x[i]) * density", "cumulative", "gelu"),
    "no raise": (" / (1.0f - rate)", "", "dropout"),
    "one hash for two": ("uniform(seed, i)", "uniform(seed, i / 2 * 2)", "dropout"),
    "a strip too long in db": ("min((blockIdx.y + 1) * strip, n_rows)", "n_rows", "linear: many strips"),
    "one warp in db": ("warp < WARPS; warp++", "warp < 1; warp++", "linear"),
    "db before all have come": ("    __syncthreads();\n", "", "linear"),
    "no clipping": ("fminf(fmaxf(x, -10.0f), 10.0f)", "x", "gelu: tanh, large"),
    "no correction": ("total *= expf(largest - logit);", "", "cross_entropy: rising"),
    "lanes as they are": ("total * expf(largest - largest_of_all)", "total", "cross_entropy: rising"),
    "smoothing not shared": ("share = smoothing / n_classes", "share = 0.0f", "cross_entropy: sum"),
    "ignored rows pulled": ("(wanted != ignore_index) {\n            const float p",
     "(true) {\n            const float p", "cross_entropy: some do not count"),
    "no scale": ("scale, queries, keys", "1.0f, queries, keys", "attention"),
    "no scale in dq": ("collected, scale)", "collected, 1.0f)", "attention"),
    "no scale in dk": ("dk_part, scale)", "dk_part, 1.0f)", "attention"),
    "no correction of the output": ("collected[r][c] *= correction;", ";", "attention: large scores"),
    "no correction of the total": ("total[r] *= correction;", ";", "attention: large scores"),
    "the last tile left out": ("start < end; start += ROWS", "start < end - ROWS; start += ROWS", "attention"),
    "a key too many": ("query >= t_q || key >= t_k", "query >= t_q", "attention"),
    "keys beyond the last": ("key + rows <= t_k && ", "", "attention"),
    "a tile that is seen in part": ("key + rows <= query", "key <= query", "attention: several blocks"),
    "the diagonal hidden": ("key > query + t_k", "key >= query + t_k", "attention: causal"),
    "causal from the first key": ("key > query + t_k - t_q", "key > query", "attention: fewer queries"),
    "too few tiles": ("first + ROWS + t_k - t_q", "first + ROWS + 0ll", "attention: several blocks, fewer queries"),
    "too few queries for a key": ("max(0ll, first - (t_k - t_q))", "first", "attention: several blocks, fewer queries"),
    "no along": ("weight * (dweight - along[r])", "weight * dweight", "attention"),
    "no along in dk": ("* remaining - along)", "* remaining)", "attention"),
    "0 / 0": ("total[r] == 0.0f ? 0.0f : 1.0f / total[r]", "1.0f / total[r]", "attention: nothing seen"),
    "one thread's total": ("sum_over_row(total[r])", "total[r]", "attention"),
    "one thread's largest": ("largest_over_row(largest[r])", "largest[r]", "attention"),
    "a row too long": ("x.length && i < x.width) x4", "x.length) x4", "attention"),
    "a row too long, not by four": ("&& i + m < x.width ?", "?", "attention: heads of 33"),
    "the mask of the first head": ("* mask_head", "* 0", "attention: mask of heads"),
    "nothing raised": ("rate, 1.0f / (1.0f - rate), seed", "rate, 1.0f, seed", "attention: dropout"),
    "dropout forgotten in dv": ("weight * remaining;", "weight;", "attention: dropout"),
    "a tile overwritten": ("__syncthreads();  // until", "// until", "attention"),
    "a tile overwritten, dq": ("        __syncthreads();\n        load(keys", "        load(keys", "attention"),
    "a tile overwritten, dk": ("        __syncthreads();\n        load(queries", "        load(queries", "attention"),
    "a tile not yet there": ("v_rows, start);\n        __syncthreads();", "v_rows, start);", "attention"),
    "a tile not yet there, dk": ("dout_rows, start);\n        __syncthreads();", "dout_rows, start);", "attention"),
    "output not yet there": ("`along`\n    __syncthreads();", "`along`", "attention"),
    "weights not yet there": ("__syncwarp();  // until", "// until", "attention"),
    "weights not yet there, dq": ("__syncwarp();\n        multiply_add(c", "multiply_add(c", "attention"),
    "weights not yet there, dk": ("__syncwarp();\n        multiply_add(d", "multiply_add(d", "attention"),
    "no bracket": ("v / bracket2", "v", "adam"),
    "no decay": (" * shrink", "", "adam"),
    "no mean": ("beta1 * means[i] + rest1 * g", "rest1 * g", "adam"),
}  # fmt: skip


@pytest.mark.few(0, slow=18)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrong_kernel_is_found(variant: str, device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, call = VARIANTS[variant]
    code = source(f"{call.partition(':')[0]}.cu")
    assert right in code
    monkeypatch.setattr(launching, "source", lambda _: code.replace(right, wrong))
    monkeypatch.setattr(launching, "_compiled", launching._compiled.__wrapped__)  # not kept for other tests

    def found() -> bool:
        try:
            result = adam_by_kernel(np.float32) if call == "adam" else by_kernel(call, np.float32)
        except AssertionError as error:
            assert "beyond an array" in str(error)
            return True
        return not adam_is_like_its_textbook_form(result) if call == "adam" else unlike(call, np.float32, result) != []

    found_in_ascending_order = found()
    monkeypatch.setattr(emulated.EmulatedModule, "descending", True)
    assert found_in_ascending_order or found()


def float32(*shape: int) -> Any:
    return placed(random(*shape).astype(np.float32))


def declined() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    x, row, ids = float32(2, 3, 4, 8), float32(8), placed(np.zeros((2, 3, 4), np.int64))
    mask = placed(np.ones((4, 4), bool))
    double = x.astype(np.float64)
    wide = float32(2, 4, 129)
    return {
        "layer_norm, float64": ((double, row.astype(np.float64), row.astype(np.float64)), {}),
        "layer_norm, two dtypes": ((x, row.astype(np.float16), row), {}),
        "layer_norm, an array of NumPy's": ((x, row, np.ones(8, np.float32)), {}),
        "layer_norm, another width": ((x, float32(7), float32(7)), {}),
        "layer_norm, eps 0": ((x, row, row), {"eps": 0.0}),
        "layer_norm, empty": ((x[:0], row, row), {}),
        "dropout, float64": ((double, 0.1, np.random.default_rng(0)), {}),
        "dropout, nothing drawn": ((x, 0.1, None), {}),
        "dropout, rate 0": ((x, 0.0, np.random.default_rng(0)), {}),
        "linear, float64": ((double, double[0, 0].T, row[:4].astype(np.float64)), {}),
        "linear, no bias": ((x, x[0, 0].T), {}),
        "linear, another bias": ((x, x[0, 0].T, row), {}),
        "linear, another width": ((x[..., :7], x[0, 0].T, row[:4]), {}),
        "gelu, float64": ((double,), {}),
        "gelu, unknown": ((x,), {"approximate": "erf"}),
        "cross_entropy, targets of another shape": ((x, ids[0]), {}),
        "cross_entropy, targets that are no integers": ((x, x[..., 0]), {}),
        "cross_entropy, smoothing 2": ((x, ids), {"label_smoothing": 2.0}),
        "cross_entropy, reduction": ((x, ids), {"reduction": "none"}),
        "attention, float64": ((double, double, double), {}),
        "attention, wide heads": ((wide, wide, wide), {}),
        "attention, one query": ((x[:, :, :1], x, x), {}),
        "attention, other keys": ((x, x[..., :7], x), {}),
        "attention, other heads": ((x, x[:, :2], x[:, :2]), {}),
        "attention, five axes": ((x[None], x[None], x[None]), {}),
        "attention, mask of numbers": ((x, x, x), {"mask": float32(4, 4)}),
        "attention, mask of another shape": ((x, x, x), {"mask": mask[:3]}),
        "attention, scale": ((x, x, x), {"scale": float("inf")}),
        "attention, dropout 1": ((x, x, x), {"dropout": 1.0, "rng": np.random.default_rng(0)}),
        "adam, float64": ((double, double, double, double, 1, 0.1, (0.9, 0.99), 1e-8), {}),
        "adam, not contiguous": ((x.swapaxes(0, 1),) * 4 + (1, 0.1, (0.9, 0.99), 1e-8), {}),
    }


@in_one("call", declined())
def test_what_a_kernel_was_not_made_for_is_left_to_the_textbook(call: str, device: None) -> None:
    given, options = declined()[call]
    assert not KERNELS[call.partition(",")[0]](*given, **options)
    assert emulated.EmulatedModule.launches == []


@pytest.mark.slow
def test_a_target_that_does_not_exist_makes_the_loss_nan(device: None) -> None:
    logits = float32(5, 7)
    for wrong in (-1, 7, 10**12):
        loss, _ = KERNELS["cross_entropy"](logits, placed(np.array([0, 1, wrong, 6, 3])))
        assert np.isnan(fetched(loss))


@pytest.mark.slow
def test_the_memory_of_attention_grows_with_the_length(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    xp = array_module(float32(1))
    empty, made = xp.empty, []

    def counted(shape: Any, dtype: Any) -> Any:
        made.append(empty(shape, dtype).nbytes)
        return empty(shape, dtype)

    monkeypatch.setattr(xp, "empty", counted)
    sizes = []
    for length in (64, 128):
        made.clear()
        x = float32(1, 2, length, 4)
        y, backward = KERNELS["attention"](x, x, x)
        backward(y)
        sizes.append(sum(made))
    assert sizes[1] == 2 * sizes[0]
    assert sizes[0] == 4 * 2 * 64 * (4 * 4 + 3)  # output, dq, dk and dv, and three numbers of each query


@pytest.mark.slow
@pytest.mark.skipif(ON_A_GPU, reason="it looks at the emulator's launches")
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"adam"}))
def test_a_fast_op_calls_the_kernel_of_its_arrays(name: str, device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, given, options, dy = arguments(name, np.float32, placed)
    with monkeypatch.context() as patch:
        patch.setattr(strict.StrictArray, "__bool__", lambda x: bool(x._numpy))  # the textbook op looks at targets
        getattr(ops, name)(*given, **options)
    assert emulated.EmulatedModule.launches == []  # the stand-in runs the textbook ops
    monkeypatch.setattr(strict.StrictArray, "__module__", "cupy")
    _, given, options, _ = arguments(name, np.float32, placed)  # with a new generator
    result = pulled(getattr(ops, name), given, options, placed(dy))
    launched = emulated.EmulatedModule.launches
    monkeypatch.setattr(emulated.EmulatedModule, "launches", [])
    _, given, options, _ = arguments(name, np.float32, placed)
    require_equal(result, pulled(KERNELS[name], given, options, placed(dy)))
    assert emulated.EmulatedModule.launches == launched != []


def test_the_calls_cover_every_kernel() -> None:
    assert {call.partition(":")[0] for call in CALLS} | {"adam"} == set(KERNELS)
    assert {path.name for path in FOLDER.glob("*.cu")} == set(FILES)
    assert {f"{call.partition(':')[0]}.cu" for *_, call in VARIANTS.values()} == set(FILES)
    assert set(cuda.__all__) == {path.stem for path in FOLDER.glob("*.cu")}
    for file in FILES:  # they include no header but that of float16
        assert [line for line in source(file).splitlines() if "#include" in line] == ["#include <cuda_fp16.h>"]


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is missing: nothing compiles the kernels for a GPU")
@pytest.mark.parametrize(
    ("file", "parameters"),
    [pytest.param(*each, marks=pytest.mark.sweep) if each in SELDOM else each for each in INSTANCES],
)
def test_nvcc_compiles_a_file_without_a_warning(file: str, parameters: str, tmp_path: Path) -> None:
    code = source(file)
    instances = [f"{name}<{parameters}>" for name in kernel_names(code)]
    program = tmp_path / file
    program.write_text(f"{code}\nvoid* instances[] = {{{', '.join(f'(void*){name}' for name in instances)}}};\n")
    targets = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]
    command = [str(NVCC), *targets, "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v", "-c", str(program)]
    run = subprocess.run([*command, "-o", str(tmp_path / "out.o")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("Compiling entry function") == len(targets) * len(instances)
    assert run.stderr.count(" 0 bytes spill stores") == len(targets) * len(instances)  # all fits into the registers
