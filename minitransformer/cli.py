"""The command line: `minitransformer demo` and `minitransformer check`.

Errors are one line on stderr; exit status 2 for bad usage, 1 for a failed run, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from . import __version__, demo
from .backend import get_device
from .verify import CASES, Case

_KINDS = {"ops": "op", "layers": "layer", "models": "model"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.device = get_device(options.device).name
        return options.run(options)
    except _UsageError as error:
        return _fail(str(error), status=2)
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", status=130)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        return _fail(str(error), status=1)


class _UsageError(Exception):
    """The command was called with something it does not know."""


def _fail(message: str, status: int) -> int:
    print(f"minitransformer: error: {message}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minitransformer",
        description="The Transformer from scratch, every backward pass derived by hand and checked.",
    )
    parser.add_argument("--version", action="version", version=f"minitransformer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    show = commands.add_parser(
        "demo",
        help="show the worked example, check every op, train a small translator (under two minutes)",
        description="Show the worked example forward and backward, check every op against finite differences, and "
        "train an encoder-decoder that translates numbers from English to German. Saves two pictures.",
    )
    show.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where pictures go (default: demo)")
    show.add_argument("--seed", type=int, default=0, help="of data, weights and batches (default: 0)")
    show.add_argument("--steps", type=int, default=400, help="of training (default: 400)")
    _add_device(show)
    show.set_defaults(run=_demo)

    check = commands.add_parser(
        "check",
        help="hold every hand-derived gradient against finite differences",
        description="Hold the gradients of every input, parameter and named intermediate of each op, layer and model "
        "against central differences in float64. Exit status 1 if one is wrong.",
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="ops, layers, models, or softmax, ... (default: all)")
    _add_device(check)
    check.add_argument("--seed", type=int, default=0, help="of the numbers that are checked (default: 0)")
    check.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    check.add_argument("--verbose", action="store_true", help="print a line for every gradient")
    check.set_defaults(run=_check)
    return parser


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", metavar="NAME", help="numpy or cupy (default: MINITRANSFORMER_DEVICE, or else numpy)"
    )


def _demo(options: argparse.Namespace) -> int:
    if options.steps < 1 or options.seed < 0:
        raise _UsageError(f"--steps must be at least 1 and --seed at least 0, got {options.steps} and {options.seed}")
    options.out.mkdir(parents=True, exist_ok=True)  # complain now, not after the training
    began = time.perf_counter()
    right = demo.run(options.out, options.seed, options.steps, options.device)
    print(f"\ndone in {time.perf_counter() - began:.0f} s")
    return 0 if right else 1


def _check(options: argparse.Namespace) -> int:
    if options.seed < 0:
        raise _UsageError(f"--seed must be at least 0, got {options.seed}")
    cases = _select(options.names)
    reports = []
    for case in tqdm(cases, desc="check", unit="case", leave=False, disable=None):
        report = case.run(options.seed, options.device)
        reports.append(report.as_dict() | {"kind": case.kind})
        if options.verbose or not report.ok:
            tqdm.write(f"{report}\n", file=sys.stderr if options.json else sys.stdout)
    ok = all(report["ok"] for report in reports)
    kinds = ("input", "parameter", "intermediate")
    worst = {kind: _largest([report["max_error_by_kind"][kind] for report in reports]) for kind in kinds}
    n_rows = sum(len(report["rows"]) for report in reports)
    if options.json:
        summary = {"ok": ok, "device": options.device, "seed": options.seed, "version": __version__}
        print(json.dumps(summary | {"gradients": n_rows, "max_error": worst, "cases": reports}, indent=1))
        return 0 if ok else 1
    width = max(len(report["name"]) for report in reports)
    for report in reports:
        errors = "  ".join(_number(report["max_error_by_kind"][kind]) for kind in kinds)
        print(f"{report['name']:<{width}}  {len(report['rows']):4d}  {errors}  {'ok' if report['ok'] else 'WRONG'}")
    totals = "  ".join(_number(worst[kind]) for kind in kinds)
    label = "largest error of inputs, parameters, intermediates"
    print(f"{label:<{width}}  {n_rows:4d}  {totals}  {'ok' if ok else 'WRONG'}")
    return 0 if ok else 1


def _select(names: Sequence[str]) -> list[Case]:
    """The cases that are meant: by kind, by what they cover, or by their own name; all without names."""
    in_order = [case for kind in _KINDS.values() for case in CASES.values() if case.kind == kind]
    known = [*_KINDS, *dict.fromkeys(case.covers for case in in_order), *CASES]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else "try one of: " + ", ".join(known[:12])
            raise _UsageError(f"check knows no {name!r}; {hint}")
    return [
        case
        for case in in_order
        if not names or any(name in (case.name, case.covers) or _KINDS.get(name) == case.kind for name in names)
    ]


def _largest(errors: Sequence[float | None]) -> float | None:
    """The largest error; None stands for an error that no number can say."""
    return None if None in errors else max((error for error in errors if error is not None), default=0.0)


def _number(error: float | None) -> str:
    return "  none " if error is None else f"{error:.1e}"
