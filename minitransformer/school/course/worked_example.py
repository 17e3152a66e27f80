"""The worked example: self-attention on small integers, with every number of its forward and backward passes.

    q = x W_Q,  k = x W_K,  v = x W_V,  output = softmax(q kᵀ · scale) v

Many introductions use the first set of numbers: x is 3×4 and the weights are 4×3. They compute without the scale and
get q kᵀ = [[2, 4, 4], [4, 16, 12], [4, 12, 10]]. Then they round the weights to [[0, 0.5, 0.5], [0, 1, 0],
[0, 0.9, 0.1]] and get the output [[2, 7, 1.5], [2, 8, 0], [2, 7.8, 0.3]]. Unrounded it is [[1.9366, 6.6831, 1.5951],
[2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]. (To one decimal the very first weight, 0.0634, is 0.1, not 0. That
makes the first row [2.1, 7.2, 1.8], from weights that no longer sum to one.) Because T = d_k = d_v = 3, this example
cannot show a missing transpose, or √T instead of √d_k. So it has a twin with T = 3, d_k = 2 and d_v = 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...check.verify import Report, gradients
from ...core.arrays.backend import Array, Pullback
from ...core.ops import attention, linear


def self_attention(x: Array, w_q: Array, w_k: Array, w_v: Array, scale: float = 1.0) -> tuple[Array, Pullback]:
    """output = softmax(q kᵀ · scale) v. x: (T, D); w_q, w_k: (D, d_k); w_v: (D, d_v); output: (T, d_v).

    backward(doutput) returns (dx, dw_q, dw_k, dw_v). x is used three times, so its gradient is a sum of three.
    """
    q, q_backward = linear(x, w_q)
    k, k_backward = linear(x, w_k)
    v, v_backward = linear(x, w_v)
    output, attention_backward = attention(q, k, v, scale=scale)

    def backward(doutput: Array) -> tuple[Array, Array, Array, Array]:
        dq, dk, dv = attention_backward(doutput)
        dx_by_q, dw_q = q_backward(dq)
        dx_by_k, dw_k = k_backward(dk)
        dx_by_v, dw_v = v_backward(dv)
        dx = dx_by_q + dx_by_k + dx_by_v
        return dx, dw_q, dw_k, dw_v

    return output, backward


def _matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


@dataclass(frozen=True)
class Example:
    """Numbers for self_attention: its inputs, and the gradient of some loss with respect to its output."""

    title: str
    x: np.ndarray
    w_q: np.ndarray
    w_k: np.ndarray
    w_v: np.ndarray
    scale: float
    doutput: np.ndarray

    def report(self) -> Report:
        """Every value of the forward pass, and every gradient by hand and by finite differences."""
        arrays = (self.x, self.w_q, self.w_k, self.w_v)
        return gradients(self_attention, *arrays, scale=self.scale, upstream=self.doutput, name=self.title)

    def __str__(self) -> str:
        """All of it as text: each forward value; then, last line first, each gradient and its finite difference."""
        report = self.report()
        inside = {"scores": "attention.scores", "weights": "attention.weights"}
        inside |= {name: f"self_attention.{name}" for name in ("q", "k", "v", "output")}
        entries = {name: report[inside.get(name, name)].entries() for name in _IN_ORDER}
        lines = [self.title, "", "forward"]
        for name in _IN_ORDER:
            value = entries[name].value
            lines += _labelled(name, _rows(value, digits=4 if np.any(value % 1.0) else 0))
        width = max(len(row) for name in _IN_ORDER for row in _rows(entries[name].by_hand))
        lines += ["", f"{'backward':<{_LABEL}}{'by hand':<{width}}  by finite differences"]
        for name in reversed(_IN_ORDER):
            pairs = zip(_rows(entries[name].by_hand), _rows(entries[name].numerical), strict=True)
            lines += _labelled("d" + name, [f"{hand:<{width}}  {numerical}" for hand, numerical in pairs])
        error = max(report[inside.get(name, name)].error for name in _IN_ORDER)
        return "\n".join([*lines, f"{'':<{_LABEL}}largest |by hand - numerical| / (1 + |numerical|): {error:.0e}"])


def _rows(matrix: np.ndarray, digits: int = 4) -> list[str]:
    """One text line for each row of a matrix."""
    entries = matrix.round(digits) + 0.0  # + 0.0 turns -0 into 0
    return ["[" + " ".join(f"{entry:{digits + 3}.{digits}f}" for entry in row) + "]" for row in entries]


def _labelled(name: str, rows: list[str]) -> list[str]:
    labels = [f"{name:>{_LABEL - 3}} = "] + [" " * _LABEL] * (len(rows) - 1)
    return [label + row for label, row in zip(labels, rows, strict=True)]


_LABEL = 11  # characters before the first bracket
_IN_ORDER = ("x", "w_q", "w_k", "w_v", "q", "k", "v", "scores", "weights", "output")
_X = _matrix([1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1])
_W_Q = _matrix([1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1])
_W_K = _matrix([0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0])
_W_V = _matrix([0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0])
_DOUTPUT = _matrix([1, 0, 2], [0, 1, -1], [2, -1, 0])

_WEIGHTS = (_W_Q, _W_K, _W_V)

UNSCALED = Example("Self-attention as introductions compute it, without a scale", _X, *_WEIGHTS, 1.0, _DOUTPUT)
SCALED = Example("The same with the scale 1/√d_k = 1/√3", _X, *_WEIGHTS, 1.0 / math.sqrt(3.0), _DOUTPUT)
UNEQUAL = Example(
    "Its twin with unequal sizes: T 3, d_k 2, d_v 4, scale 1/√2",
    _X,
    _matrix([1, 0], [0, 1], [1, 1], [0, 1]),
    _matrix([1, 0], [0, 1], [1, 1], [1, 0]),
    _matrix([1, 0, 2, 0], [0, 1, 0, 1], [0, 2, 1, 0], [1, 0, 0, 3]),
    1.0 / math.sqrt(2.0),
    _matrix([1, 0, 2, -1], [0, 1, -1, 0], [2, -1, 0, 1]),
)
EXAMPLES = (UNSCALED, SCALED, UNEQUAL)
