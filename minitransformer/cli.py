"""The command line: `minitransformer demo`, `check`, `step` and `view`.

Errors are one line on stderr; exit status 2 for bad usage, 1 for a failed run, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from . import __version__, demo
from .backend import get_device
from .stepper import drawing, terminal
from .stepper.examples import EXAMPLES
from .verify import CASES, Case, Report, Row
from .viewer.command import view_translation

_KINDS = {"ops": "op", "layers": "layer", "models": "model"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal or pipe that knows no ε gets a ? instead of an error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # here, where an error can still be answered, and not when Python ends
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


class _Parser(argparse.ArgumentParser):
    """Answers bad usage with one line, where argparse would print the whole usage above it."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message}; see {self.prog} --help")


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    if options.seed < 0:
        raise _UsageError(f"--seed must be at least 0, got {options.seed}")
    try:
        options.device = get_device(options.device).name
    except ValueError as error:
        raise _UsageError(str(error)) from error
    return options.run(options)


def _fail(message: str, status: int) -> int:
    print(f"minitransformer: error: {' '.join(message.split())}", file=sys.stderr)  # one line, whatever it holds
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="minitransformer",
        description="The Transformer from scratch, every backward pass derived by hand and checked.",
    )
    parser.add_argument("--version", action="version", version=f"minitransformer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    show = commands.add_parser(
        "demo",
        help="show the worked example, check every op, train a small translator (under two minutes)",
        description="Show the worked example forward and backward, check every op against finite differences, and "
        "train an encoder-decoder that translates numbers from English to German. Saves two pictures and the model.",
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

    walk = commands.add_parser(
        "step",
        help="step through an example line by line, forward and backward, with every number",
        description="Run a small example, forward and backward, and show what each line of the code computed. On a "
        "terminal the keys n and p (or → and ←) go forward and back, c asks where a number comes from, q quits; "
        "elsewhere all steps are printed.",
    )
    walk.add_argument("example", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    walk.add_argument("--all", action="store_true", help="also show the lines that bind no number")
    walk.add_argument("--verify", action="store_true", help="hold every gradient against finite differences")
    walk.add_argument("--html", type=Path, metavar="FILE", help="write a page to step through in a browser")
    walk.add_argument("--json", action="store_true", help="print one JSON document instead")
    walk.add_argument("--seed", type=int, default=0, help="of the example's numbers (default: 0)")
    _add_device(walk)
    walk.set_defaults(run=_step)

    look = commands.add_parser(
        "view",
        help="show where a translator looks: its attention weights and their gradients, as a page",
        description="Translate a text by the model that `minitransformer demo` saved, and write one page with the "
        "attention weights of every layer and head, and the gradient of each logit with respect to them.",
    )
    look.add_argument("text", metavar="TEXT", help="the words to translate, in quotes")
    look.add_argument("--model", type=Path, required=True, metavar="DIR", help="the model, as in demo/model")
    look.add_argument(
        "--html", type=Path, default=Path("attention.html"), metavar="FILE", help="(default: attention.html)"
    )
    _add_device(look)
    look.set_defaults(run=_view, seed=0)
    return parser


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", metavar="NAME", help="numpy or cupy (default: MINITRANSFORMER_DEVICE, or else numpy)"
    )


def _demo(options: argparse.Namespace) -> int:
    if options.steps < 1:
        raise _UsageError(f"--steps must be at least 1, got {options.steps}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=options.out).close()  # complain now, not after the training
    except OSError as error:
        raise OSError(f"cannot write pictures to {options.out}: {error.strerror}; choose a folder by --out") from error
    began = time.perf_counter()
    right = demo.run(options.out, options.seed, options.steps, options.device)
    print(f"\ndone in {time.perf_counter() - began:.0f} s")
    return 0 if right else 1


def _check(options: argparse.Namespace) -> int:
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


def _step(options: argparse.Namespace) -> int:
    if options.example not in EXAMPLES:
        raise _UsageError(_unknown("step", options.example, list(EXAMPLES)))
    recording = EXAMPLES[options.example].record(options.seed, options.device, options.verify)
    if options.html is not None:
        recording.to_html(options.html)
    if options.json:
        print(recording.to_json())
    elif options.html is not None:
        print(f"wrote {options.html}")
    elif terminal.can_view():
        terminal.view(recording, options.all)
    else:
        print(drawing.plain(recording, options.all, terminal.colours()))
    return 0 if recording.report is None or recording.report.ok else 1


def _view(options: argparse.Namespace) -> int:
    shown = view_translation(options.model, options.text, options.device)
    shown.to_html(options.html)
    print(shown.title)
    print(f"wrote {options.html}")
    return 0


def _report(case: Case, options: argparse.Namespace) -> Report:
    """What a case finds. One that cannot even be run counts as wrong, and does not keep the others from running."""
    try:
        return case.run(options.seed, options.device)
    except Exception as error:  # a mistake in an op may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Report(case.name, (Row(case.covers, "input", (), error=math.inf, ok=False, problem=problem),))


def _select(names: Sequence[str]) -> list[Case]:
    """The cases that are meant: by kind, by what they cover, or by their own name; all without names."""
    in_order = [case for kind in _KINDS.values() for case in CASES.values() if case.kind == kind]
    known = [*_KINDS, *dict.fromkeys(case.covers for case in in_order), *CASES]
    for name in names:
        if name not in known:
            raise _UsageError(_unknown("check", name, known))
    return [
        case
        for case in in_order
        if not names or any(name in (case.name, case.covers) or _KINDS.get(name) == case.kind for name in names)
    ]


def _unknown(command: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "try one of: " + ", ".join(known[:12])
    return f"{command} knows no {name!r}; {hint}"


def _largest(errors: Sequence[float | None]) -> float | None:
    """The largest error; None stands for one that is infinite."""
    return None if None in errors else max((error for error in errors if error is not None), default=0.0)


def _number(error: float | None) -> str:
    return "inf" if error is None else f"{error:.1e}"
