"""The command line: python -m benchmarks [CASE ...]"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from minitransformer.core.arrays.files import write

from . import growth, kernels, machine, report
from .cases import CARD_CASES, CASES, Case, named
from .compare import Failure, Result, compare
from .growth import Grown

GROWTH, KERNELS = "growth", "kernels"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare minitransformer with PyTorch on this machine: first check that both compute the same, "
        "then measure their times, in turns, and their memory.",
    )
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help="beginnings of names, growth or kernels (default: all cases except those of a graphics card)",
    )
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--repetitions", type=int, default=21, metavar="N", help="rounds for each case (default: 21)")
    parser.add_argument(
        "--limit",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time limit for each case, after 5 rounds (default: 120)",
    )
    parser.add_argument(
        "--threads", type=int, default=2, metavar="N", help="threads and cores of each side (default: 2)"
    )
    parser.add_argument("--skip", action="append", default=[], metavar="PROGRAM", help="compiled, jax or textbook")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the tables and the pictures")
    options = parser.parse_args(arguments)
    if options.repetitions < 1 or options.threads < 1:
        parser.error("--repetitions and --threads must be at least 1")
    if set(options.skip) - {"compiled", "jax", "textbook"}:
        parser.error(f"--skip knows compiled, jax and textbook, not {', '.join(options.skip)}")
    try:
        cases = named([name for name in options.cases if name not in (GROWTH, KERNELS)])
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(f"{case.name:20} {case.title}" for case in (*CASES, *CARD_CASES)))
        print(f"{GROWTH:20} time against length, width, layers and batch")
        print(f"{KERNELS:20} each fast form and its op as written, without PyTorch")
        return 0
    if set(options.cases) != {KERNELS} and importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed; the benchmarks need it: pip install -e '.[parity,fast]'")
    if KERNELS in options.cases and importlib.util.find_spec("numba") is None:
        parser.error("kernels needs Numba, which compiles the loops: pip install -e '.[fast]'")
    return run(options, [] if options.cases and set(options.cases) <= {GROWTH, KERNELS} else cases)


def run(options: argparse.Namespace, cases: list[Case]) -> int:
    """Measure, and after each case write all results so far. Returns the exit status."""
    for folder in filter(None, (options.out, options.json and options.json.parent)):
        folder.mkdir(parents=True, exist_ok=True)  # fail now, not after the measurements
    if machine.busy():
        say("warning: something else runs on this machine; times are useless now, and ratios nearly so")
    cores = machine.use_cores(options.threads)
    say("the machine's own rates")
    about = machine.describe(options.threads, cores, seconds=1.0)
    print(report.machine_table(about), flush=True)
    results: list[Result] = []
    failed: list[str] = []
    for case in cases:
        try:
            results.append(compare(case, options.repetitions, options.limit, options.threads, options.skip, say))
        except Failure as failure:
            failed.append(str(failure))
            say(f"failed: {failure}")
        _write(options, about, results, failed, None)
    if results or failed:
        print("\n" + _pages(about, results, failed, None)[1], flush=True)
    if KERNELS in options.cases:
        page = kernels.table(kernels.measure(options.repetitions, say))
        print("\n" + page, flush=True)
        if options.out:
            write(options.out / "kernels.md", f"{report.machine_table(about)}\n\n{page}\n")
    if GROWTH in options.cases:
        grown = growth.measure(options.repetitions, options.limit, options.threads, say)
        _write(options, about, results, failed, grown)
        print("\n" + growth.table(grown), flush=True)
    return 1 if failed or not all(result.agrees for result in results) else 0


def _pages(about: dict[str, Any], results: list[Result], failed: list[str], grown: Grown | None) -> list[str]:
    pages = [report.machine_table(about)]
    if results or failed:
        failures = [f"- failed: {line}" for line in failed]
        pages.append("\n".join([report.table(results, about["rates"]), *failures]))
    if grown:
        pages.append(growth.table(grown))
    return pages


def _write(
    options: argparse.Namespace, about: dict[str, Any], results: list[Result], failed: list[str], grown: Grown | None
) -> None:
    name = "benchmarks" if results or failed else GROWTH
    if options.json:
        document = report.document(results, about) | {"failed": failed}
        document |= {"growth": growth.document(grown)} if grown else {}
        write(options.json, json.dumps(document, indent=1) + "\n")
    if options.out:
        write(options.out / f"{name}.md", "\n\n".join(_pages(about, results, failed, grown)) + "\n")
        if results:
            write(options.out / "benchmarks.png", png(report.picture(results)))
        if grown:
            write(options.out / "growth.png", png(growth.picture(grown)))


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def say(line: str) -> None:
    """Progress goes to stderr, with the time of day; stdout has only the tables."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
