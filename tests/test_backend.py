"""The backend: devices by name, the errors where one is unavailable, and what the libraries spell differently."""

import math
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from common import printed
from hypothesis import given
from hypothesis import strategies as st
from tiers import in_one

from minitransformer import backend, ideas, masks, ops
from minitransformer.core.arrays.backend import (
    array_module,
    device_of,
    get_device,
    scatter_add,
    to_device,
    to_numpy,
)
from minitransformer.core.arrays.strict import StrictArray
from minitransformer.core.arrays.strict import xp as strict_xp
from minitransformer.core.ops.dropout import uniform

DEVICES = ["numpy", "strict"]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch):
    """A device registered by a test, and MINITRANSFORMER_DEVICE from outside, must not reach other tests."""
    known = {name: device for name, device in backend._devices.items() if name != "cupy"}
    monkeypatch.setattr(backend, "_devices", known)
    monkeypatch.delenv("MINITRANSFORMER_DEVICE", raising=False)


# ---- Devices by name. ----


def test_numpy_is_the_default():
    assert get_device() is get_device("numpy") is backend.NUMPY
    assert get_device().xp is np


def test_the_environment_names_the_default_device(monkeypatch):
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "strict")
    assert get_device().name == "strict"
    assert get_device("numpy").name == "numpy"
    assert type(to_device(np.ones(2))) is StrictArray
    assert type(ops.sinusoidal_positions(2, 4)) is StrictArray
    assert type(masks.causal_mask(3)) is StrictArray


def test_an_empty_environment_variable_counts_as_none(monkeypatch):
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "")
    assert get_device().name == "numpy"


def test_an_unknown_device_is_an_error_that_lists_the_known_ones(monkeypatch):
    with pytest.raises(ValueError, match=r'^unknown device "cuda"; expected one of "cupy", "numpy", "strict"$'):
        get_device("cuda")
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "tpu")
    with pytest.raises(ValueError, match=r'^unknown device "tpu" \(from MINITRANSFORMER_DEVICE\); expected one of'):
        get_device()


def test_device_and_library_of_an_array():
    on_numpy, on_strict = np.ones(2), to_device(np.ones(2), "strict")
    assert (device_of(on_numpy).name, device_of(on_strict).name) == ("numpy", "strict")
    assert (array_module(on_numpy), array_module(on_strict)) == (np, strict_xp)
    assert array_module(np.float32(1.0)) is np


@pytest.mark.parametrize("x", [[1.0], 1.0, None, "x"], ids=repr)
def test_what_is_no_array_has_no_device(x):
    with pytest.raises(TypeError, match=f"expected a NumPy or CuPy array, got {type(x).__name__}"):
        device_of(x)


# ---- CuPy: not there, there without a GPU, there with one. ----


def assert_numpy_still_works():
    x = draw(2, 3)
    y, backward = ops.softmax(x)
    np.testing.assert_allclose(y.sum(axis=-1), 1.0, rtol=1e-15)
    assert type(backward(x)) is np.ndarray
    assert get_device().name == "numpy"


def test_without_cupy_asking_for_it_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # `import cupy` now raises ModuleNotFoundError
    with pytest.raises(RuntimeError, match=r'device "cupy".*pip install "minitransformer\[cuda12x\]"') as caught:
        get_device("cupy")
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "cupy")
    with pytest.raises(RuntimeError, match="cuda13x"):
        get_device()
    monkeypatch.delenv("MINITRANSFORMER_DEVICE")
    assert_numpy_still_works()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_without_scipy_the_exact_gelu_is_the_same(monkeypatch, dtype):
    """As in a browser, where SciPy is not loaded for one function."""
    x = np.linspace(-6.0, 6.0, 101).astype(dtype)
    expected, _ = ops.gelu(x)
    monkeypatch.setitem(sys.modules, "scipy", None)
    got, _ = ops.gelu(x)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=8 * np.finfo(dtype).eps)


class FakeCupyArray:
    """An array of a library called cupy."""

    __module__ = "cupy"

    def __init__(self, host):
        self.host = np.array(host)


@pytest.fixture
def install_cupy(monkeypatch):
    """Put modules called cupy and cupyx in place, on a machine with or without a GPU."""

    def install(gpu):
        names = "cupy", "cupyx", "cupyx.scipy", "cupyx.scipy.special"
        modules = {name: ModuleType(name) for name in names}
        cupy, cupyx, _, cupyx_special = modules.values()
        cupy.cuda = ModuleType("cupy.cuda")
        cupy.cuda.is_available = lambda: gpu
        cupy.ndarray = FakeCupyArray
        cupy.asarray = FakeCupyArray
        cupy.asnumpy = lambda x: x.host
        cupyx.scatter_add = lambda target, ids, rows: None
        cupyx_special.erfc = lambda x: x
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        return cupy

    return install


def test_cupy_without_a_gpu_is_one_clear_error(install_cupy):
    install_cupy(gpu=False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r'device "cupy".*no usable GPU.*nvidia-smi.*device "numpy"') as caught:
            get_device("cupy")
        assert "\n" not in str(caught.value)
    assert_numpy_still_works()


def test_cupy_with_a_gpu_is_found_by_name_and_by_its_arrays(install_cupy):
    cupy = install_cupy(gpu=True)
    made_before_anyone_asked = cupy.asarray([1.0, 2.0])
    assert device_of(made_before_anyone_asked).name == "cupy"
    assert array_module(made_before_anyone_asked) is cupy
    there = to_device(np.ones(2), "cupy")
    assert type(there) is FakeCupyArray
    np.testing.assert_array_equal(to_numpy(there), np.ones(2), strict=True)
    assert get_device("cupy") is get_device("cupy")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import sys, minitransformer.cli; minitransformer.cli.main(['check', 'softmax'])",
        "import sys, minitransformer.ops, minitransformer.core.arrays.masks, minitransformer.core.arrays.strict",
    ],
)
def test_what_neither_computes_on_a_gpu_nor_draws_imports_neither_cupy_nor_matplotlib(program):
    printed(f"{program}; sys.exit('cupy' in sys.modules or 'matplotlib' in sys.modules)")


# ---- From one device to another. ----


@pytest.mark.parametrize("source", DEVICES)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_to_device_moves_values_shape_and_dtype(source, target, dtype):
    host = (draw(2, 3) * 4).astype(dtype)
    x = to_device(host, source)
    moved = to_device(x, target)
    assert device_of(moved).name == target
    np.testing.assert_array_equal(to_numpy(moved), host, strict=True)
    assert (moved is x) == (source == target)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfc_keeps_the_dtype(device, dtype):
    x = np.array([-2.0, 0.0, 0.5], dtype=dtype)
    y = backend.erfc(to_device(x, device))
    assert y.dtype == dtype
    np.testing.assert_allclose(to_numpy(y), [math.erfc(number) for number in x], rtol=2 * np.finfo(dtype).eps)


# ---- Adding rows where ids repeat. ----


@st.composite
def scatterings(draw_from):
    """A table, ids of its rows, and a row for each id: whole numbers, so that any order of addition is exact."""
    n_rows, width, n_ids = (draw_from(st.integers(1, most)) for most in (6, 4, 12))
    numbers = st.integers(-1000, 1000)
    ids = draw_from(st.lists(st.integers(0, n_rows - 1), min_size=n_ids, max_size=n_ids))
    table = draw_from(st.lists(numbers, min_size=n_rows * width, max_size=n_rows * width))
    rows = draw_from(st.lists(numbers, min_size=n_ids * width, max_size=n_ids * width))
    dtype = draw_from(st.sampled_from([np.float32, np.float64]))
    id_dtype = draw_from(st.sampled_from([np.int64, np.int32, np.uint8]))
    return (
        np.array(table, dtype=dtype).reshape(n_rows, width),
        np.array(ids, dtype=id_dtype),
        np.array(rows, dtype=dtype).reshape(n_ids, width),
    )


@given(scatterings())
def test_scatter_add_is_add_at(scattering):
    table, ids, rows = scattering
    expected = table.copy()
    np.add.at(expected, ids, rows)
    for device in DEVICES:
        target = to_device(table.copy(), device)
        assert scatter_add(target, to_device(ids, device), to_device(rows, device)) is None
        np.testing.assert_array_equal(to_numpy(target), expected, strict=True)


def test_scatter_add_leaves_other_rows_and_its_inputs_alone():
    target, ids, rows = np.zeros((4, 2)), np.array([2, 0, 2]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    scatter_add(target, ids, rows)
    np.testing.assert_array_equal(target, [[3.0, 4.0], [0.0, 0.0], [6.0, 8.0], [0.0, 0.0]])
    np.testing.assert_array_equal(ids, [2, 0, 2])
    np.testing.assert_array_equal(rows, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


# ---- Random numbers. ----


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1000)], ids=str)
def test_uniform(device, shape):
    like = to_device(np.zeros(1), device)
    first = uniform(np.random.default_rng(1), shape, like)
    assert device_of(first).name == device
    numbers = to_numpy(first)
    assert numbers.shape == shape
    assert numbers.dtype == np.float32
    assert np.all((numbers >= 0.0) & (numbers < 1.0))
    np.testing.assert_array_equal(to_numpy(uniform(np.random.default_rng(1), shape, like)), numbers)
    assert np.all(to_numpy(uniform(np.random.default_rng(2), shape, like)) != numbers)
    if numbers.size == 3000:
        assert abs(numbers.mean() - 0.5) < 0.026  # 5 standard errors of √(1/12) / √3000


# ---- Arrays of two devices in one call. ----

# name: (op, arrays)
MIXED = {
    "linear": (ops.linear, [draw(2, 3), draw(3, 4), draw(4)]),
    "low_rank_linear": (ideas.low_rank_linear, [draw(2, 3), draw(3, 1), draw(1, 4)]),
    "attention": (ops.attention, [draw(3, 2), draw(4, 2), draw(4, 5), np.ones((3, 4), dtype=bool)]),
    "layer_norm": (ops.layer_norm, [draw(2, 3), draw(3), draw(3)]),
    "rms_norm": (ops.rms_norm, [draw(2, 3), draw(3)]),
    "gated": (ideas.gated, [draw(2, 3), draw(2, 3)]),
    "embedding": (ops.embedding, [np.array([0, 1]), draw(2, 3)]),
    "mean_pool": (ops.mean_pool, [draw(2, 3), np.ones(2, dtype=bool)]),
    "cross_entropy": (ops.cross_entropy, [draw(2, 3), np.array([0, 1])]),
}
ODD_ONES = [(name, odd) for name, (_, arrays) in MIXED.items() for odd in range(len(arrays))]


@in_one("name, odd, here, there", ODD_ONES, [("numpy", "strict"), ("strict", "numpy")])
def test_mixed_devices_are_a_clear_error(name, odd, here, there):
    op, arrays = MIXED[name]
    op(*(to_device(x, here) for x in arrays))
    with pytest.raises(TypeError, match=rf"^{name}: .* is on (numpy|strict) but .* is on (numpy|strict); move one of"):
        op(*(to_device(x, there if n == odd else here) for n, x in enumerate(arrays)))


@pytest.mark.parametrize(("here", "there"), [("numpy", "strict"), ("strict", "numpy")])
def test_a_gradient_from_another_device_is_a_clear_error(here, there):
    y, backward = ops.relu(to_device(draw(2, 3), here))
    backward(y)
    with pytest.raises(TypeError, match=rf"^backward of relu: the gradient must be a {here} array .* on {there}$"):
        backward(to_device(draw(2, 3), there))


def test_a_flag_that_a_blas_left_behind_is_no_warning_of_ours_and_stays_one_elsewhere():
    """inf · 0 inside a product sets the same flag. Python shows all warnings here as errors, as `-W error` does."""
    source = """
import numpy as np
from minitransformer import ops
x, w = np.array([[np.inf, 1.0]]), np.array([[0.0], [1.0]])
print(np.isnan(ops.linear(x, w, np.zeros(1))[0]).all())
x @ w
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True)
    assert run.stdout == "True\n"
    assert run.stderr.endswith("RuntimeWarning: invalid value encountered in matmul\n")
