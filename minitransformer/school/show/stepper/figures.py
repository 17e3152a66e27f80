"""Figures of the map that the code alone does not show: the parts of attention within one line, and recurrent cells.

A box that stands for a line is found by the name that the line binds.
"""

from __future__ import annotations

from typing import Any

from ....check.trace.calls import Call
from . import expressions as ex
from .steps import Step, Steps

# Each cell from bottom to top, as papers draw it; a tuple holds what stands side by side. An entry is an input, or
# "title of the box = name that its line binds < inputs that only this line reads".
_CELLS: dict[str, list[Any]] = {
    "rnn_cell": ["h", "Linear = carried < weight", "+, tanh = new < inputs"],
    "lstm_cell": [
        "state", "Linear = carried < weight", "+ = sums < inputs",
        (
            [
                (["Forget gate = keep"], ["Input gate = write"], ["Candidate = candidate"]),
                "New cell = new_cell < cell", "tanh = shown",
            ],
            ["Output gate = show"],
        ),
        "× = new",
    ],
    "gru_cell": [
        "h", "Linear = carried < weight, bias",
        (["Reset gate = reset < inputs", "Candidate = candidate < inputs"], ["Update gate = keep < inputs"]),
        "Mean of both = new < h",
    ],
}  # fmt: skip


def cell_of(recording: Steps, call: Call) -> list[dict[str, Any]] | None:
    """The boxes of a recurrent cell, or None. line: the step of a box; back: that of its gradient, if it has one."""
    at: dict[str, int] = {}
    for step, bound in recording.bindings:
        if recording.calls[step.call].forward_call == call.index:
            at[bound.name] = step.index

    def placed(part: Any) -> dict[str, Any]:
        if isinstance(part, tuple):
            return {"branches": [list(map(placed, row)) for row in part]}
        name, _, rest = part.partition(" = ")
        binds, _, beside = rest.partition(" < ")
        line = {"line": at[binds], "name": name, "back": at.get(f"d{binds}")} if binds else {"input": name}
        return line | ({"beside": beside.split(", ")} if beside else {})

    return list(map(placed, _CELLS[call.name])) if call.name in _CELLS else None


def with_scale_and_mask(
    recording: Steps, call: Call, row: list[dict[str, Any]], softmax: set[int]
) -> list[dict[str, Any]]:
    """Figure 2 of the paper: between a product and the softmax, the scale and the mask. softmax: its boxes."""
    parts: list[dict[str, Any]] = []
    for part in row:
        if parts and part.get("box") in softmax:
            masks = [{"line": step.index, "name": "Mask (opt.)"} for step in recording.steps_of(call) if _masks(step)]
            parts += masks[:1]
        parts.append(part)
        if "product" in part and part is not row[-1] and _is_scaled(recording.steps[part["product"]]):
            parts.append({"line": part["product"], "name": "Scale"})
    return parts


def _is_scaled(step: Step) -> bool:
    value = ex.read(step.source).value
    return ex.is_joined(value, "*") and ex.is_joined(ex.inner(value)[0], "@") if value is not None else False


def _masks(step: Step) -> bool:
    """Whether the line is `visible = where(allowed, scores, -inf)`, even if nothing is masked here."""
    return any(
        isinstance(part, ex.Applied) and part.name == "where" and part.parts[-1].text in ("-xp.inf", "-np.inf")
        for part in ex.read(step.source).everything
    )
