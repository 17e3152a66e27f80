"""Training curves: the plot of a training log."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def learning_curves(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss, validation loss and learning rate of a training log against the step.

    records: lines with "step" and either "loss" and "rate", or "validation_loss". The loss is drawn as a moving mean
    over about a hundredth of the steps, because the loss of single batches is noisy.
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
