"""Pictures: attention as heat maps, training as a curve. Each function returns a matplotlib Figure; `save` writes
it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .files import write


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
