"""Schematics: what reads what, drawn from the arrays of a computation. Each function returns a matplotlib Figure."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from .colours import ABOVE, BELOW
from .plots import Picture

_SHADES = LinearSegmentedColormap.from_list("shades", ["white", ABOVE])
_PAGE = 9.5  # inches
_BOX = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#555555"}
_PALE = {"above": tuple(0.8 + 0.2 * c for c in to_rgb(ABOVE)), "below": tuple(0.8 + 0.2 * c for c in to_rgb(BELOW))}


def _panels(count: int, width: float, height: float) -> tuple[Picture, list[Axes]]:
    """A figure with `count` empty axes, as many in a row as a page has room for."""
    columns = min(count, max(1, int(_PAGE / width)))
    rows = -(-count // columns)
    figure = Picture(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for each in axes:
        each.axis("off")
    return figure, axes[:count]


def _box(axes: Axes, place: tuple[float, float], text: str, face: object = "white") -> Text:
    return axes.text(*place, text, ha="center", va="center", fontsize=9, zorder=3, bbox=_BOX | {"facecolor": face})


def links(panels: Mapping[str, tuple[Sequence[str], Sequence[str], np.ndarray]], width: float = 3.4) -> Figure:
    """Two rows of boxes with lines between them, one panel for each name; a line is as thick as its number is large.

    panels: the names above, the names below, and the numbers (above, below); where a number is 0 there is no line.

    >>> figure = links({"routing": (["a", "b"], ["expert 0"], np.array([[1.0], [0.0]]))})
    """
    figure, all_axes = _panels(len(panels), width, 2.2)
    said = []
    for axes, (title, (above, below, numbers)) in zip(all_axes, panels.items(), strict=True):
        if numbers.shape != (len(above), len(below)):
            raise ValueError(f"links: {title}: numbers must be {(len(above), len(below))}, got {numbers.shape}")
        xs, ends = ((np.arange(len(row)) + 0.5) / len(row) for row in (above, below))
        thickest = float(abs(numbers).max()) or 1.0
        for i, j in np.argwhere(numbers):
            number = float(numbers[i, j]) / thickest
            colour = ABOVE if number > 0 else BELOW
            axes.plot([xs[i], ends[j]], [1.0, 0.0], color=colour, linewidth=0.4 + 3.6 * abs(number), alpha=0.8)
        for place, name in zip(xs, above, strict=True):
            _box(axes, (place, 1.0), name, _PALE["above"])
        for place, name in zip(ends, below, strict=True):
            _box(axes, (place, 0.0), name, _PALE["below"] if numbers[:, below.index(name)].any() else "white")
        axes.set(title=title, xlim=(0.0, 1.0), ylim=(-0.25, 1.25))
        read = [" and ".join(below[int(j)] for j in np.flatnonzero(row)) or "none" for row in numbers]
        said.append(f"{title}: " + "; ".join(f"{name} to {what}" for name, what in zip(above, read, strict=True)))
    figure.words = "\n".join(said)
    return figure


def looks(weights: Mapping[str, np.ndarray], rows: str = "query", columns: str = "key") -> Figure:
    """Who looks at whom: a square for each query (row) and key (column), the darker the larger its weight; 0 is empty.

    The shade is the square root of the weight, so that a small one can be seen. weights: maps (rows, columns) of
    numbers from 0 to 1, by name.
    """
    height = max(len(w) for w in weights.values())
    figure = Picture(figsize=(2.6 * len(weights), 2.9), layout="constrained")
    for axes, (name, w) in zip(figure.subplots(1, len(weights), squeeze=False)[0], weights.items(), strict=True):
        axes.pcolormesh(np.sqrt(w), cmap=_SHADES, vmin=0.0, vmax=1.0, edgecolors="#cccccc", linewidth=0.5)
        axes.set(title=name, xlabel=columns, ylabel=rows, aspect="equal", xticks=[], yticks=[])
        axes.set_ylim(height, 0)
    figure.words = "\n".join(
        f"{name}: {rows} {len(w) - 1} looks at {columns} {', '.join(map(str, np.flatnonzero(w[-1])))}"
        for name, w in weights.items()
    )
    return figure


def arcs(tokens: Sequence[str], above: np.ndarray, below: np.ndarray, names: tuple[str, str]) -> Figure:
    """A text with an arc from each token to those it looks at: one map of weights (T, T) above it, another below.

    names: what the two maps are. Weights below 0.2 are left out.
    """
    figure, (axes,) = _panels(1, 0.56 * len(tokens) + 0.4, 3.6)
    for weights, side, colour in ((above, 1.0, ABOVE), (below, -1.0, BELOW)):
        for i, j in np.argwhere(weights >= 0.2):
            angle = np.linspace(0.0, np.pi, 40)
            x = (i + j) / 2 + (i - j) / 2 * np.cos(angle)
            y = side * (0.3 + 0.3 * max(abs(i - j), 0.6) * np.sin(angle))
            axes.plot(x, y, color=colour, linewidth=0.5 + 2.5 * weights[i, j], alpha=float(0.3 + 0.6 * weights[i, j]))
            axes.plot(x[-1], y[-1], marker="v" if side > 0 else "^", color=colour, markersize=5)
    for place, token in enumerate(tokens):
        axes.text(place, 0.0, token, ha="center", va="center", family="monospace")
    low, high = axes.get_ylim()
    axes.text(-0.5, high, names[0], color=ABOVE, va="top")
    axes.text(-0.5, low, names[1], color=BELOW, va="bottom")
    figure.words = "\n".join(
        f"{name}: " + ", ".join(f"{tokens[i]} at {i} looks at {tokens[j]} at {j}" for i, j in np.argwhere(w >= 0.2))
        for name, w in zip(names, (above, below), strict=True)
    )
    return figure


def flow(
    boxes: Mapping[str, tuple[float, float]], arrows: Sequence[tuple[str, str] | tuple[str, str, float]]
) -> Figure:
    """Boxes with arrows between them. boxes: the text of each, and its place in inches. arrows: from, to, and a number
    from 0 to 1 that says how thick it is."""
    xs, ys = zip(*boxes.values(), strict=True)
    figure, (axes,) = _panels(1, max(xs) - min(xs) + 1.8, max(ys) - min(ys) + 0.8)
    axes.set(xlim=(min(xs) - 0.9, max(xs) + 0.9), ylim=(min(ys) - 0.4, max(ys) + 0.4))
    drawn = {text: _box(axes, place, text).get_bbox_patch() for text, place in boxes.items()}
    for start, end, *size in arrows:
        style = {"arrowstyle": "-|>", "color": ABOVE, "linewidth": 0.5 + 3.5 * (size[0] if size else 0.2)}
        ends = {"patchA": drawn[start], "patchB": drawn[end], "shrinkA": 1, "shrinkB": 1, "mutation_scale": 14}
        axes.annotate("", boxes[end], boxes[start], arrowprops=style | ends)
    figure.words = "; ".join(f"{start} to {end}" for start, end, *_ in arrows).replace("\n", " ")
    return figure


def ring(stages: Mapping[str, np.ndarray], share: Callable[[float], float]) -> Figure:
    """Ranks in a circle, each with its stretches of an array: a panel for each stage, an arrow to the next rank.

    stages: the numbers (ranks, stretches). share: of a number, how complete it is, from 0 to 1; 1 is the deepest blue.
    """
    figure, all_axes = _panels(len(stages), 4.0, 3.6)
    for axes, (title, numbers) in zip(all_axes, stages.items(), strict=True):
        n, stretches = numbers.shape
        angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
        centres = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        for rank, (x, y) in enumerate(centres):
            to = centres[(rank + 1) % n]
            arrow = {"arrowstyle": "-|>", "color": BELOW, "shrinkA": 30, "shrinkB": 30, "mutation_scale": 14}
            axes.annotate("", to, (x, y), arrowprops=arrow | {"connectionstyle": "arc3,rad=-0.25"})
            axes.text(x, y + 0.2, f"rank {rank}", ha="center", fontsize=9)
            for stretch, number in enumerate(numbers[rank]):
                left = x + 0.28 * (stretch - stretches / 2)
                colour = _SHADES(0.75 * share(float(number)))
                axes.add_patch(Rectangle((left, y - 0.14), 0.28, 0.28, facecolor=colour, edgecolor="#777777"))
                axes.text(left + 0.14, y, f"{number:.0f}", ha="center", va="center", fontsize=6)
        axes.set(title=title, xlim=(-1.7, 1.7), ylim=(-1.4, 1.5), aspect="equal")
    figure.words = "\n".join(
        f"{title}: " + "; ".join(f"rank {r} has {', '.join(f'{x:.0f}' for x in row)}" for r, row in enumerate(numbers))
        for title, numbers in stages.items()
    )
    return figure
