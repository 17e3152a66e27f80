"""Results as a Markdown table, as JSON, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .compare import Result
from .rates import peaks
from .samples import Spread, ratio, spread

COLORS = {"ours": "#1f5fa8", "textbook": "#8fb5de", "eager": "#c8551b", "compiled": "#e8b48f"}


def machine_table(machine: dict[str, Any]) -> str:
    """The machine, line by line, and its rates."""
    lines = ["| machine | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in machine.items() if name != "rates"]
    for threads, at in machine["rates"].items():
        products = ", ".join(f"{name} {rate:.0f} GFLOP/s" for name, rate in at.items() if name.endswith("matmul"))
        memory = ", ".join(f"{name} {rate:.1f} GB/s" for name, rate in at.items() if not name.endswith("matmul"))
        lines.append(f"| float32 on {threads} thread{'s' * (threads != '1')} | {products}; memory: {memory} |")
    return "\n".join(lines)


def table(results: Sequence[Result], rates: dict[str, dict[str, float]]) -> str:
    """One row for each case. Times are medians with their quartiles; ratios below 1 mean that ours is faster."""
    lines = [
        "| case | ours | PyTorch eager | ours / eager | in each round | goal | compiled (ours / it) | JAX (ours / it) "
        "| memory ours | eager | ours: share of the machine | eager: share | largest gap | rounds |",
        "|---|" + "---:|" * 13,
    ]
    notes = []
    tolerances = " or ".join(f"{tolerance:g}" for tolerance in sorted({result.case.tolerance for result in results}))
    for result in results:
        lines.append(f"| {' | '.join(_row(result, rates))} |")
        for program, reason in result.left_out.items():
            notes.append(f"- {result.case.name}: {program} left out: {reason}")
        if "textbook" in result.seconds:
            median, peak = spread(result.seconds["textbook"]).median, result.peaks["textbook"]
            notes.append(f"- {result.case.name}: the textbook op took {seconds(median)} and {megabytes(peak)}")
        if result.seconds.get("ours"):
            notes += [f"- {result.case.name}: {note}" for note in _measured(result)]
    notes.append(
        "- Times are medians, with quartiles in brackets, and so are the ratios of single rounds. Memory is the peak "
        "that the program allocated after its imports (on a graphics card, the size of its pool). Shares compare with "
        "the best rate of matrix products (M) or of "
        "memory (B) seen on this machine; formulas count the work and the traffic. Gap: the largest "
        "difference from eager in the results of the first ten steps, as a share of the largest number; "
        f"at most {tolerances or '0.0001'} is allowed. Tokens are counted with their padding."
    )
    return "\n".join([*lines, "", *notes])


def _row(result: Result, rates: dict[str, dict[str, float]]) -> list[str]:
    ours, eager = (result.seconds.get(program, []) for program in ("ours", "eager"))
    cells = [f"{result.case.name}: {result.case.title}"]
    cells += [_times(spread(times), result.case.tokens) if times else "–" for times in (ours, eager)]
    if ours and eager:
        both = ratio(ours, eager)
        cells += [f"**{both.of_medians:.2f}**", f"{both.of_rounds.median:.2f} [{_range(both.of_rounds, '.2f')}]"]
    else:
        cells += ["–", "–"]
    cells.append("–" if result.case.goal is None else f"{result.case.goal:.2f}")
    cells += [_beside(ours, result.seconds.get(program, [])) for program in ("compiled", "jax")]
    cells += [megabytes(result.peaks.get(program, 0)) for program in ("ours", "eager")]
    cells += [share(result, program, rates) for program in ("ours", "eager")]
    cells.append(f"{result.gaps['ours']:.0e}" if "ours" in result.gaps else "–")
    cells.append(str(max(len(ours), len(eager))))
    return cells


def share(result: Result, program: str, rates: dict[str, dict[str, float]]) -> str:
    """The share of the machine's rate of products (or otherwise of memory) that a program reached, or of a card's."""
    if not result.seconds.get(program):
        return "–"
    if result.seconds.get("products"):
        return f"{ratio(result.seconds['products'], result.seconds[program]).of_medians:.0%} M"
    median = spread(result.seconds[program]).median
    products, memory = peaks(rates)
    operations, traffic = result.case.count("operations"), result.case.count("traffic")
    if operations:
        return f"{operations / median / products:.0%} M"
    return f"{traffic / median / memory:.0%} B" if traffic else "–"


def _measured(result: Result) -> list[str]:
    """How the programs compare with one that does only the unavoidable work, in the same rounds."""
    notes = []
    for measure, what in (("reading", "read as many bytes"), ("products", "multiply as much, in large matrices,")):
        if not result.seconds.get(measure):
            continue
        shares = [
            f"{program} reached {ratio(result.seconds[measure], result.seconds[program]).of_medians:.0%} of that rate"
            for program in ("ours", "eager")
            if result.seconds.get(program)
        ]
        alone = seconds(spread(result.seconds[measure]).median)
        notes.append(f"to {what} in the same rounds, and do nothing else, took {alone}: {', '.join(shares)}")
    return notes


def seconds(time: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time / 1e-6:.3g} µs"


def _beside(ours: list[float], theirs: list[float]) -> str:
    """The median of a program that only some have, and our time as a share of it."""
    return f"{seconds(spread(theirs).median)} ({ratio(ours, theirs).of_medians:.2f})" if ours and theirs else "–"


def _times(times: Spread, tokens: int | None) -> str:
    per_second = f", {tokens / times.median:.0f} tokens/s" if tokens else ""
    return f"{seconds(times.median)} [{seconds(times.low)} – {seconds(times.high)}]{per_second}"


def _range(of: Spread, form: str) -> str:
    return f"{of.low:{form}} – {of.high:{form}}"


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size else "–"


def document(results: Sequence[Result], machine: dict[str, Any]) -> dict[str, Any]:
    """All measurements, for a program to read."""
    rows = []
    for result in results:
        row = {"case": asdict(result.case), "seconds": result.seconds, "gaps": result.gaps, "peaks": result.peaks}
        row |= {"left_out": result.left_out, "agrees": result.agrees}
        row |= {what: result.case.count(what) for what in ("operations", "traffic")}
        if result.seconds.get("ours") and result.seconds.get("eager"):
            row["ratio"] = asdict(ratio(result.seconds["ours"], result.seconds["eager"]))
        rows.append(row)
    return {"format": 1, "machine": machine, "results": rows}


def picture(results: Sequence[Result]) -> Figure:
    """Time and peak memory as ratios to eager for the cases; for attention both against the length."""
    plain = [result for result in results if result.case.family != "attention"]
    lengths = [result for result in results if result.case.family == "attention"]
    n_rows = bool(plain) + bool(lengths)
    height = 0.6 + 0.42 * len(plain) + (4.0 if lengths else 1.0)
    figure = Figure(figsize=(10.0, height), layout="constrained")
    heights = [0.42 * len(plain) + 1.0] * bool(plain) + [4.0] * bool(lengths)
    axes = figure.subplots(n_rows, 2, squeeze=False, height_ratios=heights)
    if plain:
        _time_bars(axes[0][0], plain)
        _memory_bars(axes[0][1], plain)
    if lengths:
        _lengths(axes[-1][0], axes[-1][1], lengths)
    return figure


def _time_bars(axes: Axes, results: Sequence[Result]) -> None:
    for program in ("ours", "compiled"):
        shift = -0.2 if program == "ours" else 0.2
        for place, result in enumerate(results):
            if not result.seconds.get(program) or not result.seconds.get("eager"):
                continue
            both = ratio(result.seconds[program], result.seconds["eager"])
            axes.barh(place + shift, both.of_medians, 0.38, color=COLORS[program])
            axes.plot([both.of_rounds.low, both.of_rounds.high], [place + shift] * 2, color="black", linewidth=1.2)
            if program == "ours" and result.case.goal is not None:
                axes.plot([result.case.goal] * 2, [place - 0.42, place + 0.42], color="green", linewidth=1.5)
    _finish_bars(axes, results, "time / time of PyTorch eager\n(black: quartiles of the rounds; green: goal)")
    axes.set_yticks(range(len(results)), [result.case.name for result in results])


def _memory_bars(axes: Axes, results: Sequence[Result]) -> None:
    for place, result in enumerate(results):
        for program, shift in (("ours", -0.2), ("compiled", 0.2)):
            if result.peaks.get(program) and result.peaks.get("eager"):
                axes.barh(place + shift, result.peaks[program] / result.peaks["eager"], 0.38, color=COLORS[program])
    _finish_bars(axes, results, "peak memory / peak memory of PyTorch eager")
    axes.set_yticks(range(len(results)), [""] * len(results))
    for program, label in (("ours", "minitransformer"), ("compiled", "torch.compile")):
        axes.barh(0, 0, color=COLORS[program], label=label)
    axes.legend(loc="lower right", fontsize="small")


def _finish_bars(axes: Axes, results: Sequence[Result], label: str) -> None:
    axes.axvline(1.0, color=COLORS["eager"], linewidth=1.5)
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_xlabel(label)


def _lengths(time_axes: Axes, memory_axes: Axes, results: Sequence[Result]) -> None:
    for program in ("ours", "textbook", "eager"):
        there = [result for result in results if result.seconds.get(program)]
        lengths = [result.case.sizes["length"] for result in there]
        label = {"ours": "minitransformer", "textbook": "textbook op", "eager": "PyTorch eager"}[program]
        style: dict[str, Any] = {"color": COLORS[program], "marker": "o", "label": label}
        if there:
            time_axes.loglog(lengths, [spread(result.seconds[program]).median for result in there], **style)
            memory_axes.loglog(lengths, [result.peaks[program] / 1e6 for result in there], **style)
    for axes, label in ((time_axes, "attention: seconds"), (memory_axes, "attention: peak memory (MB)")):
        lengths = [result.case.sizes["length"] for result in results]
        axes.set_xticks(lengths, map(str, lengths))
        axes.minorticks_off()
        axes.set_xlabel("length T")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    time_axes.legend(fontsize="small")
