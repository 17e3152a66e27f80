"""The backend: devices by name, the errors where one is unavailable, and what the libraries spell differently."""

import math
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from common import draw, printed

from minitransformer import backend, masks, ops
from minitransformer.core.arrays.backend import array_module, device_of, get_device, scatter_add, to_device, to_numpy
from minitransformer.core.arrays.strict import StrictArray
from minitransformer.core.arrays.strict import xp as strict_xp
from minitransformer.core.ops.random_numbers import uniform

DEVICES = ["numpy", "strict"]


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch):
    """A device registered by a test, and MINITRANSFORMER_DEVICE from outside, must not reach other tests."""
    known = {name: device for name, device in backend._devices.items() if name != "cupy"}
    monkeypatch.setattr(backend, "_devices", known)
    monkeypatch.delenv("MINITRANSFORMER_DEVICE", raising=False)


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


def assert_numpy_still_works():
    x = draw(2, 3)
    y, backward = ops.softmax(x)
    np.testing.assert_allclose(y.sum(axis=-1), 1.0, rtol=1e-15)
    assert type(backward(x)) is np.ndarray
    assert get_device().name == "numpy"


def test_the_strict_stand_in_is_known_by_its_name_alone():
    subprocess.run(
        [sys.executable, "-c", "from minitransformer import backend as b; b.get_device('strict')"], check=True
    )


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
@pytest.mark.parametrize("program", [
    "import sys, minitransformer.cli; minitransformer.cli.main(['check', 'softmax'])",
    "import sys, minitransformer.ops, minitransformer.core.arrays.masks, minitransformer.core.arrays.strict",
    "import sys, numpy; from minitransformer.fast import ops; x = numpy.ones((2, 3, 4), 'f4'); ops.attention(x, x, x)",
])  # fmt: skip
def test_what_neither_computes_on_a_gpu_nor_draws_imports_neither_cupy_nor_matplotlib(program, tmp_path):
    (tmp_path / "cupy.py").touch()  # as if it were installed
    run = f"{program}; sys.exit('cupy' in sys.modules or 'matplotlib' in sys.modules)"
    printed(run, PYTHONPATH=str(tmp_path))


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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kinds", [("float32", "int64"), ("float64", "int32"), ("float64", "uint8")], ids="-".join)
def test_scatter_add_adds_every_row_and_leaves_the_others_and_its_inputs_alone(device, kinds):
    given = np.zeros((4, 2), kinds[0]), np.array([2, 0, 2], kinds[1]), np.array([[1, 2], [3, 4], [5, 6]], kinds[0])
    target, ids, rows = (to_device(x, device) for x in given)
    assert scatter_add(target, ids, rows) is None
    expected = np.array([[3, 4], [0, 0], [6, 8], [0, 0]], kinds[0])
    np.testing.assert_array_equal(to_numpy(target), expected, strict=True)
    np.testing.assert_array_equal(to_numpy(ids), [2, 0, 2])
    np.testing.assert_array_equal(to_numpy(rows), [[1, 2], [3, 4], [5, 6]])


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
    np.testing.assert_array_equal(uniform(np.random.default_rng(1), shape, np.zeros(1)), numbers)  # on any device
    assert np.all(to_numpy(uniform(np.random.default_rng(2), shape, like)) != numbers)
    if numbers.size == 3000:
        assert abs(numbers.mean() - 0.5) < 0.026  # 5 standard errors of √(1/12) / √3000


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
