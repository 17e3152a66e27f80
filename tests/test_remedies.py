"""What would make a wrong gradient right: the checker says it in an expression of what the code itself names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw

from minitransformer import verify
from minitransformer.core.arrays.backend import array_module, to_device
from minitransformer.layers import Linear

Backward = Callable[[np.ndarray, Any], Any]


def bent(x: np.ndarray, w: np.ndarray) -> Any:
    h = x @ w
    y = 1.0 / (1.0 + np.exp(-h))
    return y, (x, w, h, y)


def normed(x: np.ndarray) -> Any:
    mean = x.mean(-1, keepdims=True)
    moved = x - mean
    size = np.sqrt((moved * moved).mean(-1, keepdims=True))
    return moved / size, (moved, size)


def mean_of_squares(x: np.ndarray) -> Any:
    squares = x * x
    return squares.sum(0), x


def without_a_factor(dy: np.ndarray, cache: Any) -> Any:
    x, w, _, y = cache
    dh = dy * y * (1.0 - y)
    return dy @ w.T, x.T @ dh


def without_a_transpose(dy: np.ndarray, cache: Any) -> Any:
    x, w, _, y = cache
    dh = dy * y * (1.0 - y)
    return dh @ w, x.T @ dh


def without_a_path(dy: np.ndarray, cache: Any) -> Any:
    _moved, size = cache
    return (dy - dy.mean(-1, keepdims=True)) / size


def with_a_mean(dy: np.ndarray, x: np.ndarray) -> Any:
    return 2.0 * x * dy / len(x)


def of_another_sum(dy: np.ndarray, cache: Any) -> Any:
    moved, size = cache
    y = moved / size
    along = (dy * y).mean(-1, keepdims=True)
    dx = dy - dy.mean(-1, keepdims=True) - y * along
    return dx


CASES: list[tuple[Any, Backward, list[np.ndarray], str]] = [
    (bent, without_a_factor, [draw(5, 4), draw(4, 4)], r"dx should be dh @ w\.T\."),
    (bent, without_a_transpose, [draw(5, 4), draw(4, 4)], r"dx should be dh @ w\.T\."),
    (normed, without_a_path, [draw(3, 5)], r"dx lacks what flows back through normed\.size: it would be right if"),
    (normed, of_another_sum, [draw(3, 5)], r"dx should be dx / size\."),
    (mean_of_squares, with_a_mean, [draw(5, 3)], r"dx is 0\.2 times .* That is 1/5, and axis 0 of x has 5 entries\."),
]


@pytest.mark.parametrize(("forward", "backward", "inputs", "said"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_wrong_gradient_is_told_what_would_be_right(
    forward: Any, backward: Backward, inputs: list[np.ndarray], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        verify.check_gradients((forward, backward), *inputs)


def normed_without_a_path(x: Any) -> Any:
    moved = x - x.mean(-1, keepdims=True)
    squares = (moved * moved).mean(-1, keepdims=True)
    size = array_module(x).sqrt(squares)
    return moved / size, lambda dy: (dy - dy.mean(-1, keepdims=True)) / size


class LinearWithoutATranspose(Linear):
    def __call__(self, x: Any) -> Any:
        y, backward = super().__call__(x)
        return y, lambda dy: (backward(dy), dy @ self.weight.value)[1]


@pytest.mark.parametrize(
    ("f", "x", "said"),
    [
        (normed_without_a_path, draw(3, 5), r"layer-norm-no-stretch[\s\S]*what flows back through \w+\.squares: it"),
        (lambda x: ((x * x).sum(0), lambda dy: x * dy * 0.4), draw(5, 3), r"That is 1/5, and axis 0 of x has 5"),
        (LinearWithoutATranspose(4, 4, bias=False), draw(2, 4), r"dx should be dy @ weight\.T\."),
    ],
)
def test_a_wrong_gradient_is_told_the_same_on_a_device(f: Any, x: np.ndarray, said: str) -> None:
    """A length, a value held as it was and a parameter were looked up by functions of NumPy alone."""
    with pytest.raises(AssertionError, match=said) as on_host:
        verify.check_gradients(f, x)
    f = f.to("strict") if isinstance(f, Linear) else f
    with pytest.raises(AssertionError) as on_device:
        verify.check_gradients(f, to_device(x, "strict"))
    assert str(on_device.value) == str(on_host.value)


def test_a_small_number_that_only_forward_adds_is_told() -> None:
    def loss(x: np.ndarray) -> Any:
        return np.log(x + 1e-7), x

    with pytest.raises(
        AssertionError, match=r"dx is off by \de-0\d of its largest entry, as by an ε that only forward adds or a"
    ):
        verify.check_gradients((loss, lambda dy, x: dy / x), abs(draw(3, 4)) + 0.02)


def test_code_that_is_narrow_inside_is_checked_as_closely_as_it_allows() -> None:
    """Arrays of float64 and an output of float32 raised a TypeError, which sent the caller to another function."""

    def forward(x: np.ndarray) -> Any:
        y = np.empty(x.shape, "f")
        y[...] = np.sin(x)
        return y, x

    report = verify.check_gradients((forward, lambda dy, x: dy * np.cos(x)), draw(3, 4))
    assert "It computes in float32" in report.note


def test_a_backward_of_one_output_and_too_few_inputs_says_so() -> None:
    """It said only that backward does not run, since a tuple of both gradients was tried last."""

    class Layer:
        def forward(self, x: np.ndarray, mask: np.ndarray) -> Any:
            self.mask = mask
            return x * mask, mask + x

        def backward(self, dy: np.ndarray) -> Any:
            return np.transpose(np.transpose(dy * self.mask, (1, 0)), (1, 0))

    with pytest.raises(AssertionError, match="backward returned 1 gradients for 2 floating-point inputs"):
        verify.check_gradients(Layer(), draw(3, 4), np.ones((3, 4)))
