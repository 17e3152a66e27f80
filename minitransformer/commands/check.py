"""`minitransformer check`: compare hand-derived gradients with finite differences, and fast forms with their ops."""

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..check.verify import CASES, Case, Report, Row
from ..check.verify.one_thread import one_blas_thread
from ..run.fast.check import NAMES, Form, forms
from ..run.fast.large_cases import LARGE
from ..run.published_models import check_model
from . import Options, UsageError
from .common import known_as, progress_bar
from .derive import docstrings

_KINDS = {"ops": "op", "layers": "layer", "models": "model", "collectives": "collective", "derivations": "derivation"}


def main(options: Options) -> int:
    if options.model is not None and options.names:
        raise UsageError("check takes names of cases or --model DIR, not both")
    if options.model is not None:
        return _check_model(options)
    if options.layer is not None:
        raise UsageError("--layer chooses a part of a model: give the model with --model DIR")
    cases = _select(options.names)
    found, by_form = [], []
    for case in progress_bar("check", "case")(cases):
        told = []
        if case.name in CASES:
            report = _report(case, options)
            found.append(report.as_dict() | {"kind": case.kind, "verdict": report.verdict})
            told += [str(report)] if options.verbose or not report.ok else []
        each = _forms(case, options)
        by_form.append({"name": case.name, "ok": all(form.ok for form in each), "forms": list(map(vars, each))})
        told += [_sentence(case, form) for form in each if options.verbose or not form.ok]
        if told:
            tqdm.write("\n".join([*told, ""]), file=sys.stderr if options.json else sys.stdout)
    gradients_ok, forms_ok = (all(case["ok"] for case in cases) for cases in (found, by_form))
    derived = docstrings(options) if not options.names or "derivations" in options.names else None
    ok = gradients_ok and forms_ok and (derived is None or derived["ok"])
    n_cases = {name: sum(any(form["name"] == name for form in case["forms"]) for case in by_form) for name in NAMES}
    each_worst = [case["max_error_by_kind"] for case in found]
    worst = {kind: _largest([each[kind] for each in each_worst]) for kind in ("input", "parameter", "intermediate")}
    n_rows = sum(_n_checked(case["rows"]) for case in found)
    if options.json:
        summary = {"ok": ok, "device": options.device, "seed": options.seed, "version": __version__}
        document = summary | {"gradients": n_rows, "max_error": worst, "cases": found}
        document |= {"forms": n_cases, "cases_by_form": by_form, "derivations": derived}
        print(json.dumps(document, indent=1, allow_nan=False))
    elif derived is not None:
        print(derived["summary"], end="\n\n" if by_form else "\n")
    if by_form and not options.json:
        width = max((len(case["name"]) for case in found), default=0)
        print(f"{'':<{width}}  gradients    error" if found else "no case with finite differences")
        for case in found:
            error = _number(case["max_error"])
            print(f"{case['name']:<{width}}  {_n_checked(case['rows']):9d}  {error:>7}  {case['verdict']}")
        ran = ", ".join(f"{name} in {n}" for name, n in n_cases.items() if n)
        print(f"\nforms of {len(by_form)} cases, {'all ok' if forms_ok else 'not all of them ok: WRONG'}:\n{ran}")
        _print_total(n_rows, [case["verdict"] for case in found], worst)
    return 0 if ok else 1


def _print_total(n: int, verdicts: list[str], errors: dict[str, float | None]) -> None:
    """Several reports in two lines."""
    worst = next((verdict for verdict in ("WRONG", "CANNOT BE SEEN") if verdict in verdicts), "")
    print(f"{n} gradients, {f'not all of them ok: {worst}' if worst else 'all ok'}; largest error of")
    print(", ".join(f"{kind}s {_number(error)}" for kind, error in errors.items()))


def _check_model(options: Options) -> int:
    bar = progress_bar("check", "gradient")
    with one_blas_thread:
        report = check_model(options.model, options.layer, options.device, options.seed, bar)
    document = report.as_dict()
    if options.json:
        print(json.dumps(document | {"device": options.device, "seed": options.seed}, indent=1))
    else:
        shown = report.rows if options.verbose else [row for row in report.rows if not row.ok or row.problem]
        print(dataclasses.replace(report, rows=tuple(shown)) if shown else "", end="\n\n" if shown else "")
        _print_total(_n_checked(document["rows"]), [report.verdict], document["max_error_by_kind"])
    return 0 if report.ok else 1


def _n_checked(rows: list[dict[str, Any]]) -> int:
    """How many rows are right or wrong; a row that is ok and has a problem is not checked."""
    return sum(not (row["ok"] and row["problem"]) for row in rows)


def _report(case: Case, options: Options) -> Report:
    """The report of a case. A case that raises an error counts as wrong and does not stop the others."""
    try:
        return case.run(options.seed, options.device)
    except Exception as error:  # a mistake in an op may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Report(case.name, (Row(case.covers, "input", (), error=math.inf, ok=False, problem=problem),))


def _forms(case: Case, options: Options) -> list[Form]:
    """The results of the fast forms of a case. A case that raises an error counts as one wrong form."""
    try:
        return forms(case, options.seed, options.device)
    except Exception as error:
        return [Form("as written", "float64", f"{type(error).__name__}: {error}")]


def _sentence(case: Case, form: Form) -> str:
    return f"{case.name}: {form.name} in {form.dtype} {'WRONG: ' + form.problem if form.problem else 'ok'}"


def _select(names: Sequence[str]) -> list[Case]:
    """The cases chosen by kind, by what they cover, or by their own name; without names, all cases."""
    in_order = [case for kind in _KINDS.values() for case in (CASES | LARGE).values() if case.kind == kind]
    known = [*_KINDS, *dict.fromkeys(case.covers for case in in_order), *CASES, *LARGE]
    wanted = {known_as("check", name, known) for name in names}
    kinds = {_KINDS.get(name) for name in wanted}
    return [case for case in in_order if not names or wanted & {case.name, case.covers} or case.kind in kinds]


def _largest(errors: Sequence[float | None]) -> float | None:
    """The largest error; None means infinite."""
    return None if None in errors else max((error for error in errors if error is not None), default=0.0)


def _number(error: float | None) -> str:
    return "inf" if error is None else f"{error:.1e}"
