"""What others' code meets first: arguments that are no arrays, libraries in unusual folders, float32."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import draw

from minitransformer import layers, verify
from minitransformer.check.trace.values import is_float_array
from minitransformer.layers import Module


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "other", [3, 2.5, True, None, "same", np.random.default_rng(0), {"k": 3.0}, (1, 2), [np.ones(2), np.ones(3)]]
)
def test_an_argument_that_is_no_array_does_not_stop_a_failing_check(other: Any) -> None:
    def scaled(x: np.ndarray, other: Any) -> Any:
        arrays = isinstance(other, list)
        return 3.0 * x, lambda dy: (2.0 * dy, [0.0 * part for part in other]) if arrays else 2.0 * dy

    if isinstance(other, tuple):  # of numbers: it is refused, in words
        with pytest.raises(TypeError, match="other is a tuple; make it an array"):
            verify.check_gradients(scaled, draw(3, 4), other)
        return
    with pytest.raises(AssertionError, match="dx is wrong"):
        verify.check_gradients(scaled, draw(3, 4), other)


@pytest.mark.slow
def test_another_function_is_not_called_a_mistake() -> None:
    """BatchNorm was said to be a LayerNorm over the wrong axis, though nobody had told that it is one."""

    def batch_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> Any:
        deviation = np.sqrt(x.var(axis=0) + 1e-5)
        normalized = (x - x.mean(axis=0)) / deviation
        return gamma * normalized + beta, lambda dy: (
            gamma * (dy - dy.mean(axis=0)) / deviation,
            (dy * normalized).sum(axis=0),
            dy.sum(axis=0),
        )

    inputs = draw(5, 3), draw(3, seed=1), draw(3, seed=2)
    with pytest.raises(AssertionError, match="It does what no known mistake of any op does"):
        verify.check_gradients(batch_norm, *inputs)
    with pytest.raises(AssertionError, match="as in BatchNorm"):
        verify.check_gradients(batch_norm, *inputs, op="layer_norm")


LIBRARY = """
def doubled(x):
    inner = 2.0 * x
    return inner, ()
def backward(dy, cache):
    dinner = 3.0 * dy
    return 2.0 * dy
"""


@pytest.mark.parametrize("form", ["a package", "a module", "the user's package"])
def test_a_library_is_known_by_what_installed_it(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """pip install --target puts a library into any folder, and a RECORD beside it; nobody looks into its calls."""
    name = f"far_library_{len(form)}"
    file = tmp_path / (f"{name}.py" if form == "a module" else f"{name}/inner/functions.py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(LIBRARY)
    information = tmp_path / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    listed = f"__editable__.{name}.pth" if form == "the user's package" else file.relative_to(tmp_path).as_posix()
    (information / "RECORD").write_text(f"{listed},sha256=,\n{information.name}/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name if form == "a module" else f"{name}.inner.functions")
    request.addfinalizer(lambda: [sys.modules.pop(each) for each in [*sys.modules] if each.startswith(name)])
    report = verify.gradients(verify.from_pair(module.doubled, module.backward), draw(3))
    assert report.ok
    assert bool(report.of_kind("intermediate")) == (form == "the user's package")


def test_the_tracer_reads_only_the_type_of_an_object_half_built() -> None:
    """Its attributes may raise any error until it is whole: those of JAX's tracers call themselves without end."""

    class Half:
        def __getattr__(self, name: str) -> Any:
            raise RecursionError(f"{name} is not there yet")

    def forward(x: np.ndarray) -> Any:
        half = Half()
        return 2.0 * x, half

    verify.gradients(verify.from_pair(forward, lambda dy, half: 2.0 * dy), draw(3)).assert_ok()
    assert not is_float_array(Half())


def small_linear(coarse: bool = False) -> Any:
    """A linear layer; coarse: in float32 the gradient of its weight is rounded to two digits."""
    layer = layers.Linear(4, 3, rng=np.random.default_rng(0))
    layer.weight.value = draw(4, 3)

    class Rounding(Module):
        def __init__(self) -> None:
            self.layer = layer

        def __call__(self, x: np.ndarray) -> Any:
            y, pull = self.layer(x)

            def backward(dy: np.ndarray) -> np.ndarray:
                before = self.layer.weight.grad.copy()
                dx: np.ndarray = pull(dy)
                if coarse and dy.dtype == np.float32:
                    added, unit = self.layer.weight.grad - before, abs(dy).max() / np.float32(10.0)
                    self.layer.weight.grad = before + unit * np.round(added / unit)
                return dx

            return y, backward

    return Rounding()


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-15])
def test_small_gradients_of_parameters_are_the_same_in_float32(size: float) -> None:
    """As inside a model whose loss hardly depends on the layer: added to numbers near 1, they were rounded away."""
    verify.gradients(small_linear(), draw(5, 4, seed=1), upstream=size * draw(5, 3, seed=2)).assert_ok()


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-15])
def test_a_fault_of_float32_is_seen_in_small_gradients(size: float) -> None:
    upstream = size * draw(5, 3, seed=2)
    report = verify.gradients(small_linear(coarse=True), draw(5, 4, seed=1), upstream=upstream)
    assert report["layer.weight"].problem == "it differs between float32 and float64", str(report)
    assert report["x"].ok and report["layer.bias"].ok


def pair_norm(slope: float = 1.0) -> Any:
    def norm(x: np.ndarray) -> Any:
        mean = x.mean(-1, keepdims=True)
        root = np.sqrt((x * x).mean(-1, keepdims=True) - mean * mean + np.asarray(1e-6, x.dtype))
        y = (x - mean) / root

        def backward(dy: np.ndarray) -> np.ndarray:
            dx: np.ndarray = (dy - dy.mean(-1, keepdims=True) - y * (dy * y).mean(-1, keepdims=True)) / root
            return dx * dx.dtype.type(slope if dx.dtype == np.float32 else 1.0)

        return y, backward

    return norm


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_terms_that_cancel_in_float32_are_no_fault(seed: int) -> None:
    """E[x²] - E[x]² of two numbers: right code was called wrong."""
    verify.gradients(pair_norm(), draw(5, 3, 2, seed=seed)).assert_ok()
    report = verify.gradients(pair_norm(1.5), draw(5, 3, 2, seed=seed))
    assert report["x"].problem == "it differs between float32 and float64"
