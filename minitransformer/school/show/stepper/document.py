"""A recording as one JSON document.

    {
      "format": "minitransformer recording", "version": 1, "name": "attention",
      "calls": [{"index", "label", "backward", "depth", "parent", "forward_call", "file", "first_line", "source"}],
      "steps": [{"index", "call", "line", "source", "quiet",
                 "bound": [{"name", "title", "shape", "dtype", "in_place", "values", "summary", "of", "check"}]}],
      "report": {...} or null
    }

calls: one for each call of a function or pullback; parent and forward_call are indices of calls (trace.calls.Call says
what they mean); source: a list of lines, the first of which is line first_line of the file. steps: one for each
executed statement, in order; call: the index of its call. bound: what the statement bound. values: nested lists, or
null if the array was above the limit; it then has only the summary, a sentence. JSON has no NaN and no infinity, so
these are the strings "NaN", "Infinity" and "-Infinity". of: for a gradient, {"step", "name", "title"} of the value that
it belongs to, else null. check: for a gradient, its row in the report of finite differences with its verdict, "ok",
"WRONG" or "CANNOT BE SEEN", else null. report: as
`minitransformer check --json` gives it for one case.
"""

import json
import math
from pathlib import Path
from typing import Any

from ....check.trace.calls import Binding
from .steps import Step, Steps

_PACKAGE = Path(__file__).resolve().parents[3]
_OF_A_CALL = "index label backward depth parent forward_call first_line source"
_OF_A_STEP = "index call line source quiet"


def to_json(recording: Steps) -> str:
    """The document as text."""
    return json.dumps(document(recording), ensure_ascii=False, allow_nan=False)


def document(recording: Steps) -> dict[str, Any]:
    """The document as a dict for JSON."""
    return {
        "format": "minitransformer recording",
        "version": 1,
        "name": recording.name,
        "calls": [_named(call, _OF_A_CALL) | {"file": short_path(call.file)} for call in recording.calls],
        "steps": [
            _named(step, _OF_A_STEP) | {"bound": [_bound(recording, step, bound) for bound in step.bound]}
            for step in recording.steps
        ],
        "report": None if recording.report is None else recording.report.as_dict(),
    }


def _named(thing: object, names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names.split()}


def _bound(recording: Steps, step: Step, bound: Binding) -> dict[str, Any]:
    pair, row = recording.pair_of(step, bound), recording.check_of(step, bound)
    of = None
    if pair is not None:
        of = {"step": recording.binding(pair.serial)[0].index, "name": pair.name, "title": pair.title}
    array = bound.value.array
    return {
        **_named(bound, "name title in_place"),
        **_named(bound.value, "shape dtype"),
        "values": None if array is None else _finite(array.tolist()),
        "summary": bound.value.summary or None,
        "of": of,
        "check": None if row is None else row.as_dict() | {"verdict": row.verdict},
    }


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return "NaN" if math.isnan(values) else "Infinity" if values > 0 else "-Infinity"
    return values


def short_path(file: str) -> str:
    """The path of a file: "core/ops/softmax.py" for one in the package, unchanged for any other."""
    path = Path(file)
    return path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else file
