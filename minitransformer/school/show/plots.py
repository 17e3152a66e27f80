"""Pictures: matrices with their numbers, attention as heat maps, a loss as a curve.

Each function returns a matplotlib Figure, which a notebook shows as a picture; `write_figure` saves it to a file.
"""

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from ...core.arrays.backend import Array, to_numpy
from ...run.machines.parallel.pipeline import Turn
from .colours import ABOVE, BELOW

_PER_COLUMN = 6.5  # letters of a title above a column of a matrix
_INDEX = re.compile(r"^([A-Za-z])_([A-Za-z])$")
_LABELS = 64  # tokens along an axis for which there is room; a longer text has labels for some
_WIDEST = 300.0  # inches: a wider picture cannot be drawn at 150 pixels an inch
_SIGNED = LinearSegmentedColormap.from_list("signed", [BELOW, "white", ABOVE])


class Picture(Figure):
    """A Figure that shows itself in a notebook.

    Jupyter learns to draw Figures only when pyplot opens one; until then it prints `<Figure size ...>`. This Figure is
    made without pyplot, so it gives Jupyter its PNG itself. words: what it shows, for those who cannot see it.
    """

    words = ""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", bbox_inches="tight")
        return picture.getvalue()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, bytes], dict[str, dict[str, str]]]:
        return {}, {"image/png": {"alt": self.words}} if self.words else {}


def matrices(**named: Array) -> Figure:
    """Small matrices side by side, each under its name: positive numbers blue, negative ones orange. A vector is a row.

    A name is written as in mathematics: q_times_k_transposed is q kᵀ, W_Q has an index, after_reordering is two words.

    >>> figure = matrices(W=np.ones((2, 3)), b=np.zeros(3))
    """
    if not named or any(not 1 <= x.ndim <= 2 or not x.size for x in named.values()):
        shapes = ", ".join(f"{name} {x.shape}" for name, x in named.items())
        raise ValueError(f"matrices: give matrices or vectors by name, none of them empty; got {shapes or 'none'}")
    arrays = {_title(name): np.atleast_2d(to_numpy(x)) for name, x in named.items()}
    longest = [max(map(len, name.split())) for name in arrays]
    widths = [max(x.shape[1], n / _PER_COLUMN) for x, n in zip(arrays.values(), longest, strict=True)]
    told = [textwrap.fill(name, int(_PER_COLUMN * n)) for name, n in zip(arrays, widths, strict=True)]
    height = max(x.shape[0] for x in arrays.values()) + 0.4 * max(title.count("\n") for title in told)
    figure = Picture(figsize=(0.6 * sum(widths) + 0.4 * len(widths), 0.5 * height + 0.4))
    all_axes = figure.subplots(1, len(arrays), width_ratios=widths, squeeze=False)[0]
    for axes, title, x in zip(all_axes, told, arrays.values(), strict=True):
        limit = 1.7 * float(abs(x).max() or 1.0)  # so that the numbers are readable on the deepest colour
        axes.imshow(x, cmap=_SIGNED, vmin=-limit, vmax=limit)
        for i, j in np.ndindex(x.shape):
            axes.text(j, i, _short(float(x[i, j])), ha="center", va="center")
        axes.set(title=_INDEX.sub(r"$\1_\2$", title), xticks=[], yticks=[])
    figure.words = "\n".join(f"{name} ({len(x)} × {x.shape[1]}): {_in_words(x.tolist())}" for name, x in arrays.items())
    return figure


def _title(name: str) -> str:
    """What stands above a matrix."""
    if _INDEX.fullmatch(name):
        return name
    words = name.replace("_transposed", "ᵀ").replace("_times_", "_")
    return words.replace("_", " ")


def _in_words(rows: list[list[float]]) -> str:
    return "; ".join(", ".join(map(_short, row)) for row in rows)


def _short(number: float) -> str:
    return f"{round(number, 2) + 0.0:g}"


def attention_maps(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], titles: Sequence[str] | None = None
) -> Figure:
    """Heat maps, one for each head: row i shows where query i looks. weights: (H, T_q, T_k)."""
    n_heads, *_ = wanted = (len(weights) if titles is None else len(titles), len(queries), len(keys))
    if weights.shape != wanted:
        raise ValueError(f"attention_maps: weights must be (heads, queries, keys), here {wanted}, got {weights.shape}")
    (at_q, names_q), (at_k, names_k) = _labels(queries), _labels(keys)
    width, height = 0.36 * len(at_k) + 0.2, 0.36 * len(at_q)
    columns = max(1, min(n_heads, int(_WIDEST / width)))
    rows = -(-n_heads // columns)
    figure = Picture(figsize=(columns * width + 1.6, rows * (height + 1.6)), layout="constrained")
    all_axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in all_axes[n_heads:]:
        axes.remove()
    for head, axes in enumerate(all_axes[:n_heads]):
        image = axes.imshow(weights[head], cmap="viridis", vmin=0.0, vmax=1.0)
        axes.set_title(titles[head] if titles else f"head {head + 1}")
        axes.set_xticks(at_k, names_k, rotation=90)
        axes.set_yticks(at_q, names_q)
    all_axes[0].set_ylabel("query")
    figure.supxlabel("key", fontsize="medium")
    figure.colorbar(image, ax=all_axes[:n_heads], label="attention weight", shrink=0.8)
    return figure


def _labels(tokens: Sequence[str]) -> tuple[range, Sequence[str]]:
    """Which places get a label, and the labels: of a long text, only every n-th."""
    every = 1 if len(tokens) <= _LABELS else -(-2 * len(tokens) // _LABELS)
    return range(0, len(tokens), every), tokens[::every]


def _curves(
    x: str, y: str, curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], **look: Any
) -> tuple[Figure, Axes]:
    """A figure with a curve for each name, and its axes. x, y: what these show."""
    figure = Picture(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots(subplot_kw={"xlabel": x, "ylabel": y})
    for name, (xs, ys) in curves.items():
        axes.plot(xs, ys, label=name, **look)
    return figure, axes


def round_ticks(*axes: Axis) -> None:
    """Give logarithmic axes ticks in round numbers: 1, 10, 100; where they span little, 1, 2, 5, 10, 20, 50."""
    for axis in axes:
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300.0 * low else (1.0,)))
        axis.set_major_formatter("{x:g}" if low >= 0.001 and high <= 10_000.0 else EngFormatter(sep=" "))
        axis.set_minor_locator(NullLocator())


def growth(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], x: str, y: str) -> Figure:
    """One curve for each name, on logarithmic axes, where a power is a straight line. x, y: what the axes show."""
    figure, axes = _curves(x, y, curves, marker=".")
    axes.loglog()
    round_ticks(axes.xaxis, axes.yaxis)
    axes.legend()
    return figure


def accuracies(curves: Mapping[str, Sequence[float]], trained: int, x: str, y: str) -> Figure:
    """A share for each position, counted from 1. trained: the last position that training had, drawn as a line."""
    figure, axes = _curves(x, y, {name: (range(1, len(shares) + 1), shares) for name, shares in curves.items()})
    axes.axvline(trained + 0.5, color="gray", linestyle=":")
    axes.set_ylim(-0.02, 1.02)
    axes.legend()
    return figure


def training_curve(steps: Sequence[int], losses: Sequence[float], floor: float | None = None) -> Figure:
    """The loss against the step. floor: the lowest possible loss, drawn as a line."""
    figure, axes = _curves("step", "cross-entropy (nats)", {"training loss": (steps, losses)})
    if floor is not None:
        axes.axhline(floor, linestyle="--", color="grey", label="lowest possible with label smoothing")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure


def pipeline(ranks: Sequence[Sequence[Turn]], title: str = "") -> Figure:
    """What each rank of a pipeline did when: a box for each forward (F) and backward pass (B), with its piece.

    ranks: the turns of each, as `one_forward_one_backward` returns them.
    """
    start = min(turn.begin for turns in ranks for turn in turns)
    stop = max(turn.end for turns in ranks for turn in turns)
    figure = Picture(figsize=(11.0, 0.45 * len(ranks) + 1.0), layout="constrained")
    axes = figure.subplots()
    for rank, turns in enumerate(ranks):
        for turn in turns:
            colour = ABOVE if turn.kind == "F" else BELOW
            box = axes.barh(rank, turn.end - turn.begin, 0.9, turn.begin - start, color=colour, edgecolor="white")
            axes.bar_label(box, [f"{turn.kind}{turn.piece}"], label_type="center", color="white", fontsize=8)
    names = [f"rank {rank}" for rank in range(len(ranks))]
    axes.set(xlabel="seconds", xlim=(0.0, stop - start), yticks=range(len(ranks)), yticklabels=names, title=title)
    axes.invert_yaxis()
    return figure
