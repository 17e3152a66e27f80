"""Pictures: matrices with their numbers, attention as heat maps, training as a curve.

Each function returns a matplotlib Figure; `save` writes it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .backend import Array, to_numpy
from .files import write


def matrices(**named: Array) -> Figure:
    """Small matrices side by side, each under its name: red where positive, blue where negative. A vector is a row.

    >>> figure = matrices(W=np.ones((2, 3)), b=np.zeros(3))
    """
    if not named or any(not 1 <= x.ndim <= 2 or not x.size for x in named.values()):
        shapes = ", ".join(f"{name} {x.shape}" for name, x in named.items())
        raise ValueError(f"matrices: give matrices or vectors by name, none of them empty; got {shapes or 'none'}")
    arrays = {name: np.atleast_2d(to_numpy(x)) for name, x in named.items()}
    widths = [x.shape[1] for x in arrays.values()]
    height = max(x.shape[0] for x in arrays.values())
    figure = Figure(figsize=(0.6 * sum(widths) + 0.4 * len(widths), 0.5 * height + 0.4))
    all_axes = figure.subplots(1, len(arrays), width_ratios=widths, squeeze=False)[0]
    for axes, (name, x) in zip(all_axes, arrays.items(), strict=True):
        limit = 1.7 * float(abs(x).max() or 1.0)  # so that the numbers can be read on the deepest color
        axes.imshow(x, cmap="RdBu_r", vmin=-limit, vmax=limit)
        for i, j in np.ndindex(x.shape):
            axes.text(j, i, f"{round(float(x[i, j]), 2) + 0.0:g}", ha="center", va="center")
        axes.set(title=name, xticks=[], yticks=[])
    return figure


def attention_maps(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], titles: Sequence[str] | None = None
) -> Figure:
    """Heat maps side by side, one for each head: row i shows where query i looks. weights: (H, T_q, T_k)."""
    n_heads, t_q, t_k = wanted = (len(weights) if titles is None else len(titles), len(queries), len(keys))
    if weights.shape != wanted:
        raise ValueError(f"attention_maps: weights must be (heads, queries, keys), here {wanted}, got {weights.shape}")
    width, height = 0.36 * t_k + 0.2, 0.36 * t_q
    figure = Figure(figsize=(n_heads * width + 1.6, height + 1.6), layout="constrained")
    all_axes = figure.subplots(1, n_heads, sharey=True, squeeze=False)[0]
    for head, axes in enumerate(all_axes):
        image = axes.imshow(weights[head], cmap="viridis", vmin=0.0, vmax=1.0)
        axes.set_title(titles[head] if titles else f"head {head + 1}")
        axes.set_xticks(range(t_k), keys, rotation=90)
        axes.set_yticks(range(t_q), queries)
    all_axes[0].set_ylabel("query")
    figure.supxlabel("key", fontsize="medium")
    figure.colorbar(image, ax=all_axes, label="attention weight", shrink=0.8)
    return figure


def training_curve(steps: Sequence[int], losses: Sequence[float], floor: float | None = None) -> Figure:
    """The loss against the step. floor: the lowest loss there can be, drawn as a line."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, losses, label="training loss")
    if floor is not None:
        axes.axhline(floor, linestyle="--", color="grey", label="lowest possible with label smoothing")
    axes.set_xlabel("step")
    axes.set_ylabel("cross-entropy (nats)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure


def learning_curves(records: Sequence[Mapping[str, Any]]) -> Figure:
    """What a training log holds: loss, validation loss and learning rate against the step.

    records: lines with "step" and either "loss" and "rate", or "validation_loss". The loss is drawn as the mean of
    about a hundredth of the steps, since that of a single batch jumps about.
    """
    steps = [(r["step"], r["loss"], r["rate"]) for r in records if "loss" in r and "rate" in r]
    valid = [(r["step"], r["validation_loss"]) for r in records if "validation_loss" in r]
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    losses, rates = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    if steps:
        at, loss, rate = np.array(steps).T
        span = max(1, len(at) // 100)
        smooth = np.convolve(loss, np.full(span, 1.0 / span), mode="valid")
        losses.plot(at[span - 1 :], smooth, label="training loss" + (f", mean of {span} steps" if span > 1 else ""))
        rates.plot(at, rate, color="grey")
    if valid:
        at, loss = np.array(valid).T
        losses.plot(at, loss, marker="." if len(at) < 40 else None, label=f"validation loss, lowest {loss.min():.3f}")
    losses.set_ylabel("cross-entropy (nats)")
    if steps or valid:
        losses.legend()
    rates.set_ylabel("learning rate")
    rates.set_xlabel("step")
    rates.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, whole or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, picture.getvalue())
