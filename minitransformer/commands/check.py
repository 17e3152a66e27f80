"""`minitransformer check`: compare every hand-derived gradient with finite differences."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence

from tqdm import tqdm

from .. import __version__
from ..verify import CASES, Case, Report, Row
from .common import UsageError, add_device, unknown

_KINDS = {"ops": "op", "layers": "layer", "models": "model"}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    check = commands.add_parser(
        "check",
        help="compare every hand-derived gradient with finite differences",
        description="Compare the gradients of every input, parameter and named intermediate of each op, layer and "
        "model with central differences in float64. Exit status 1 if one is wrong.",
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="ops, layers, models, or softmax, ... (default: all)")
    add_device(check)
    check.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    check.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    check.add_argument("--verbose", action="store_true", help="print a line for every gradient")
    check.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    cases = _select(options.names)
    found = []
    with tqdm(cases, desc="check", unit="case", leave=False, disable=None) as bar:
        for case in bar:
            report = _report(case, options)
            found.append(report.as_dict() | {"kind": case.kind})
            if options.verbose or not report.ok:
                tqdm.write(f"{report}\n", file=sys.stderr if options.json else sys.stdout)
    ok = all(case["ok"] for case in found)
    kinds = ("input", "parameter", "intermediate")
    worst = {kind: _largest([case["max_error_by_kind"][kind] for case in found]) for kind in kinds}
    n_rows = sum(len(case["rows"]) for case in found)
    if options.json:
        summary = {"ok": ok, "device": options.device, "seed": options.seed, "version": __version__}
        document = summary | {"gradients": n_rows, "max_error": worst, "cases": found}
        print(json.dumps(document, indent=1, allow_nan=False))
        return 0 if ok else 1
    width = max(len(case["name"]) for case in found)
    print(f"{'':<{width}}  gradients    error")
    for case in found:
        error, verdict = _number(case["max_error"]), "ok" if case["ok"] else "WRONG"
        print(f"{case['name']:<{width}}  {len(case['rows']):9d}  {error:>7}  {verdict}")
    print(f"\n{n_rows} gradients, {'all ok' if ok else 'not all of them ok: WRONG'}; largest error of")
    print(", ".join(f"{kind}s {_number(worst[kind])}" for kind in kinds))
    return 0 if ok else 1


def _report(case: Case, options: argparse.Namespace) -> Report:
    """The report of a case. A case that raises an error counts as wrong and does not stop the others."""
    try:
        return case.run(options.seed, options.device)
    except Exception as error:  # a mistake in an op may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Report(case.name, (Row(case.covers, "input", (), error=math.inf, ok=False, problem=problem),))


def _select(names: Sequence[str]) -> list[Case]:
    """The cases that the names select: by kind, by what they cover, or by their own name. No names select all."""
    in_order = [case for kind in _KINDS.values() for case in CASES.values() if case.kind == kind]
    known = [*_KINDS, *dict.fromkeys(case.covers for case in in_order), *CASES]
    for name in names:
        if name not in known:
            raise UsageError(unknown("check", name, known))
    return [
        case
        for case in in_order
        if not names or any(name in (case.name, case.covers) or _KINDS.get(name) == case.kind for name in names)
    ]


def _largest(errors: Sequence[float | None]) -> float | None:
    """The largest error; None means infinite."""
    return None if None in errors else max((error for error in errors if error is not None), default=0.0)


def _number(error: float | None) -> str:
    return "inf" if error is None else f"{error:.1e}"
