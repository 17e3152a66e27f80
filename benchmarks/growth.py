"""How the time of a training step grows with the length, the width, the layers and the batch.

The matrix products of a step of the decoder-only model cost layers · batch · (a T width² + b T² width). This is a power
law in layers and in batch. In length and width it is a mixture, whose exponent is between those of its terms. So the
table gives the measured exponents and two of theory: the slope of the counted operations over the same sizes, and its
limit for large sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.figure import Figure

from .cases import Case
from .compare import Result, compare
from .report import COLORS
from .samples import exponent, spread

BASE = {"n_layers": 2, "n_heads": 4, "width": 128, "length": 64, "batch": 4}


@dataclass(frozen=True)
class Axis:
    """One size that grows while the others keep their BASE. limit: the exponent of the operations for large sizes."""

    name: str
    sizes: Sequence[int]
    limit: int


AXES = (
    Axis("length", (64, 128, 256, 512, 1024, 2048), 2),
    Axis("width", (64, 128, 256, 512, 1024), 2),
    Axis("n_layers", (1, 2, 4, 8, 16), 1),
    Axis("batch", (2, 4, 8, 16, 32), 1),
)
PROGRAMS = ("ours", "eager")


def case_of(axis: Axis, size: int) -> Case:
    sizes = BASE | {axis.name: size}
    return Case(f"growth-{axis.name}-{size}", f"{axis.name} {size}", "language_model", sizes, PROGRAMS)


Grown = dict[Axis, list[Result]]  # every axis with the results of its sizes


def measure(repetitions: int, limit: float, threads: int, say: Callable[[str], None]) -> Grown:
    return {
        axis: [compare(case_of(axis, size), repetitions, limit, threads, say=say) for size in axis.sizes]
        for axis in AXES
    }


def exponents(results: Sequence[Result], sizes: Sequence[int]) -> dict[str, Any]:
    """The fitted exponent of each program, that of its larger half of sizes, and that of the counted operations."""
    operations = [result.case.count("operations") or 0.0 for result in results]
    half = len(sizes) // 2
    found: dict[str, Any] = {"operations": exponent(sizes, operations), "operations, larger": None}
    found["operations, larger"] = exponent(sizes[half:], operations[half:])
    for program in PROGRAMS:
        medians = [spread(result.seconds[program]).median for result in results]
        found[program] = exponent(sizes, medians)
        found[f"{program}, larger"] = exponent(sizes[half:], medians[half:])
    return found


def table(grown: Grown) -> str:
    """Measured exponents with their standard errors, and those of theory."""
    lines = [
        "| time against | sizes | ours | eager | operations counted | larger half: ours | eager | operations | limit |",
        "|---|---|" + "---:|" * 7,
    ]
    for axis, results in grown.items():
        found = exponents(results, axis.sizes)
        cells = [axis.name, " ".join(map(str, axis.sizes))]
        cells += [f"{found[name].value:.2f} ± {found[name].error:.2f}" for name in PROGRAMS]
        cells.append(f"{found['operations'].value:.2f}")
        cells += [f"{found[f'{name}, larger'].value:.2f}" for name in (*PROGRAMS, "operations")]
        lines.append(f"| {' | '.join([*cells, str(axis.limit)])} |")
    base = ", ".join(f"{name} {size}" for name, size in BASE.items())
    note = f"Exponents of time = constant · size^exponent, fitted to medians. The sizes that do not grow: {base}."
    return "\n".join([*lines, "", note])


def document(grown: Grown) -> list[dict[str, Any]]:
    """All measurements, for a program to read."""
    rows = []
    for axis, results in grown.items():
        fitted = {name: asdict(value) for name, value in exponents(results, axis.sizes).items()}
        points = [{"size": size, "seconds": r.seconds} for size, r in zip(axis.sizes, results, strict=True)]
        rows.append({"axis": axis.name, "limit": axis.limit, "exponents": fitted, "points": points})
    return rows


def picture(grown: Grown) -> Figure:
    """A panel for each axis, both scales logarithmic; dotted: the counted operations at the rate of our largest."""
    figure = Figure(figsize=(3.4 * len(grown), 3.6), layout="constrained")
    panels = figure.subplots(1, len(grown), squeeze=False, sharey=True)[0]
    panels[0].set_ylabel("seconds per training step")
    for panel, (axis, results) in zip(panels, grown.items(), strict=True):
        found = exponents(results, axis.sizes)
        for program in PROGRAMS:
            times = [spread(result.seconds[program]) for result in results]
            errors = [[t.median - t.low for t in times], [t.high - t.median for t in times]]
            label = f"{program}: {found[program].value:.2f}"
            medians = [t.median for t in times]
            panel.errorbar(axis.sizes, medians, errors, color=COLORS[program], marker="o", label=label)
        operations = [result.case.count("operations") or 0.0 for result in results]
        rate = operations[-1] / spread(results[-1].seconds["ours"]).median
        label = f"operations: {found['operations'].value:.2f}"
        panel.plot(axis.sizes, [count / rate for count in operations], ":", color="grey", label=label)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(axis.sizes, map(str, axis.sizes))
        panel.minorticks_off()
        panel.set_xlabel(axis.name)
        panel.legend(fontsize="small", title="exponent", title_fontsize="small")
        panel.grid(alpha=0.3)
    return figure
