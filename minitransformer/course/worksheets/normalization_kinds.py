"""A worksheet on LayerNorm: rows of five whole numbers, with a whole mean and the standard deviation 2."""

from __future__ import annotations

import numpy as np

from ... import ops
from .numbers import Draw, rows_of_deviation_two
from .sheet import Given, Step, Task, Values

_WIDTH = 5


def _mean(x: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1, keepdims=True)


def _shifted(v: Values, t: np.ndarray) -> np.ndarray:
    """n with its mean moved by t: the displacement for `shift`."""
    return v["n"] + t / _WIDTH


def _stretched(v: Values, t: np.ndarray) -> np.ndarray:
    """n with each row longer by the factor 1 + mean(t ∘ n): the displacement for `stretch`."""
    return v["n"] * (1.0 + _mean(t * v["n"]))


def layer_norm_backward(draw: Draw, size: int) -> Task:
    """LayerNorm and dx in its three terms, dgamma and dbeta. x: (size - 1, 5)."""
    rows = draw.several(rows_of_deviation_two(_WIDTH), size - 1)
    x = np.array(rows, dtype=float) + draw.matrix(-3, 5, size - 1, 1)
    gamma = draw.matrix(-2, 3, _WIDTH)
    beta = draw.matrix(-2, 3, _WIDTH)
    dy = draw.matrix(-3, 4, size - 1, _WIDTH)
    return Task(
        title="LayerNorm, backward",
        notes=(
            "Mean and deviation are those of a row; ε is negligible. Divide by 5, not by 4.",
            "∘ multiplies entry by entry. Nothing has to be rounded.",
        ),
        given=(Given("x", x), Given("γ", gamma), Given("β", beta), Given("dy", dy)),
        steps=(
            Step(
                "mean",
                "mean of the row of x",
                lambda v: _mean(v["x"]),
                lambda r: _mean(x - r["layer_norm.centered"]),
            ),
            Step("c", "c = x − mean", lambda v: v["x"] - v["mean"], lambda r: r["layer_norm.centered"]),
            Step(
                "s",
                "s = √ mean of the row of c²",
                lambda v: _deviation(v["c"]),
                lambda r: 1.0 / r["layer_norm.inverse_std"],
            ),
            Step("n", "n = c / s", lambda v: v["c"] / v["s"], lambda r: r["layer_norm.normalized"]),
            Step("y", "y = γ ∘ n + β", lambda v: v["γ"] * v["n"] + v["β"], lambda r: r["layer_norm.y"]),
            Step(
                "dγ",
                "dγ = sum over rows of dy ∘ n",
                lambda v: (v["dy"] * v["n"]).sum(axis=0),
                lambda r: r["layer_norm.dgamma"],
                backward=True,
            ),
            Step(
                "dβ",
                "dβ = sum over rows of dy",
                lambda v: v["dy"].sum(axis=0),
                lambda r: r["layer_norm.dbeta"],
                backward=True,
            ),
            Step("dn", "dn = dy ∘ γ", lambda v: v["dy"] * v["γ"], lambda r: r["layer_norm.dnormalized"], backward=True),
            Step(
                "shift",
                "shift = mean of the row of dn",
                lambda v: _mean(v["dn"]),
                lambda r: r["layer_norm.shift"],
                moves=("n", _shifted),
                backward=True,
            ),
            Step(
                "stretch",
                "stretch = n · mean of the row of dn ∘ n",
                lambda v: v["n"] * _mean(v["dn"] * v["n"]),
                lambda r: r["layer_norm.stretch"],
                moves=("n", _stretched),
                backward=True,
            ),
            Step(
                "dx",
                "dx = (dn − shift − stretch) / s",
                lambda v: (v["dn"] - v["shift"] - v["stretch"]) / v["s"],
                lambda r: r["layer_norm.dx"],
                backward=True,
            ),
        ),
        output="y",
        run=lambda: (*ops.layer_norm(x, gamma, beta, eps=1e-12), dy),
    )


def _deviation(c: np.ndarray) -> np.ndarray:
    return np.sqrt(_mean(c * c))
