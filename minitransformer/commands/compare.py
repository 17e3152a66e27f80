"""`minitransformer compare`: ways to mix the positions of a sequence, their cost, their caches and their reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from ..run.machines.locks import write_figure
from ..school.compare import positions
from ..school.compare.caches import KINDS, measured, predicted
from ..school.compare.measure import counted, exponent, flow, memory, path_length, seconds
from ..school.compare.mixers import FLOWS, MIXERS
from . import Options, UsageError
from .common import in_range, progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PATH = 64


def main(options: Options) -> None:
    {"layers": _layers, "flow": _flow, "cache": _caches, "positions": _positions}[options.what](options)


def _layers(options: Options) -> None:
    found, lengths = {name: _measured(name) for name in MIXERS}, {}
    rows = [["", "multiplications", "n: theory", "counted", "time", "kept", "peak", "d: theory", "counted", "time"]]
    spans, paths = [], [["", "sequential steps", "path: theory", "from gradients"]]
    for name, each in found.items():
        powers = [each["power_n"], *each["fitted_n"].values(), each["power_d"], *each["fitted_d"].values()]
        rows.append([name, each["formula"], *(f"{p:.2f}" if isinstance(p, float) else f"{p}" for p in powers)])
        (n, d), *_, (longest, _) = each["by_length"]
        (at, narrow), *_, (_, wide) = each["by_width"]
        spans.append(f"{name}: n = {n} to {longest} at d = {d}; d = {narrow} to {wide} at n = {at}")
        lengths[f"{name}, d = {d}"] = ([n for n, _ in each["by_length"]], each["seconds_by_length"])
        paths.append([name, *(str(each[key]) for key in ("steps", "path", "path_found"))])
    lines = ["exponents of the length n and the width d, fitted", _table(rows), *spans]
    lines += [f"\nfrom the first token to the last of n = {_PATH}", _table(paths)]
    labels = ("length n", "processor seconds, forward and backward")
    _show(options, found, lines, lambda plots: plots.growth(lengths, *labels))


def _measured(name: str) -> dict[str, Any]:
    mixer = MIXERS[name]
    by_n, by_d = mixer.by_length, mixer.by_width
    lengths, widths = [n for n, _ in by_n], [d for _, d in by_d]
    kept, peak = zip(*(memory(mixer, n, 16) for n in lengths), strict=True)
    seconds_n, seconds_d = (seconds(mixer, sizes) for sizes in (by_n, by_d))
    return {
        **{each: getattr(mixer, each) for each in ("formula", "power_n", "power_d", "by_length", "by_width")},
        "seconds_by_length": seconds_n,
        "seconds_by_width": seconds_d,
        "bytes_by_length": kept,
        "peak_by_length": peak,
        "fitted_n": {
            "multiplications": exponent(lengths, [counted(mixer, *size) for size in by_n]),
            "seconds": exponent(lengths, seconds_n),
            "bytes": exponent(lengths, kept),
            "peak": exponent(lengths, peak),
        },
        "fitted_d": {
            "multiplications": exponent(widths, [counted(mixer, *size) for size in by_d]),
            "seconds": exponent(widths, seconds_d),
        },
        "steps": mixer.steps(_PATH),
        "path": mixer.path(_PATH),
        "path_found": path_length(mixer, _PATH),
    }


def _flow(options: Options) -> None:
    in_range(options, "length", 2, 4096)
    in_range(options, "width", 2, 1024)
    found: Mapping[str, Sequence[float]] = {name: flow(name, options.length, options.width) for name in FLOWS}
    curves = {name: (range(1, options.length), norms[1:]) for name, norms in found.items()}
    distances = [s for s in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if s < options.length]
    rows = [["distance", *found]]
    rows += [[str(s), *(f"{norms[s]:.1e}" for norms in found.values())] for s in distances]
    labels = ("distance", "what is left of a gradient of length 1")
    _show(options, found, [_table(rows)], lambda plots: plots.growth(curves, *labels))


def _caches(options: Options) -> None:
    n, width, heads = options.length, options.width, options.heads
    if not 1 <= n <= 65536 or not 2 <= heads <= 64 or heads % 2 or not 1 <= width <= 4096 or width % (4 * heads):
        raise UsageError(
            "--length must be from 1 to 65536, --heads even and from 2 to 64, --width at most 4096 and a multiple of "
            f"4 times the heads; got {n}, {heads} and {width}"
        )
    found: dict[str, dict[str, Any]] = {}
    for name, kind in KINDS.items():
        held, reserved = measured(name, n, width, heads)
        by_formula = predicted(name, n, width, heads)
        found[name] = {"formula": kind.formula, "predicted": by_formula, "measured": held, "reserved": reserved}
    lengths = [2**i for i in range(4, 17)]
    curves = {name: (lengths, [float(predicted(name, m, width, heads)) for m in lengths]) for name in KINDS}
    title = f"bytes after n = {n} tokens, H = {heads} heads of width d = {width // heads}, float32, one layer"
    labels = ("tokens read", "bytes of one layer's cache, float32")
    rows = [["", "numbers", "predicted", "measured", "of multi-head", "in buffers"]]
    whole = found["multi-head"]["measured"]
    for name, each in found.items():
        numbers = [each["formula"], each["predicted"], each["measured"], f"{each['measured'] / whole:.1%}"]
        rows.append([name, *map(str, [*numbers, each["reserved"]])])
    _show(options, found, [title, _table(rows)], lambda plots: plots.growth(curves, *labels))


def _positions(options: Options) -> None:
    n = options.length
    in_range(options, "length", 2 * positions.BACK, 256)
    in_range(options, "steps", 10)
    found: dict[str, dict[str, Any]] = {}
    for name in positions.KINDS:
        with threadpool_limits(limits=1, user_api="blas"):  # such small matrices gain nothing from a second thread
            model, loss = positions.trained(name, n, options.steps, options.seed, progress_bar(name, "step"))
            found[name] = {"loss": loss, "accuracy": positions.accuracy(model, n)}
    curves = {name: each["accuracy"] for name, each in found.items()}
    title = f"the token {positions.BACK} places before: the share of right answers, trained on {n} tokens"
    spans = [(max(i * n, positions.BACK), (i + 1) * n) for i in range(positions.TIMES)]
    rows = [["positions", "loss", *(f"{first + 1} to {last}" for first, last in spans)]]
    for name, each in found.items():
        means = [sum(each["accuracy"][first:last]) / (last - first) for first, last in spans]
        rows.append([name, f"{each['loss']:.3f}", *(f"{mean:.0%}" for mean in means)])
    labels = (n, "position", "tokens copied rightly")
    _show(options, found, [title, _table(rows)], lambda plots: plots.accuracies(curves, *labels))


def _show(options: Options, found: object, lines: Sequence[str], picture: Callable[[Any], Figure]) -> None:
    """Print the result as lines or as JSON, and draw it if --plot asks for it. picture: draws it with `plots`."""
    if options.plot:
        from ..school.show import plots  # here, because it imports matplotlib

        write_figure(options.plot, picture(plots))
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else "\n".join(lines))


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
