"""A recording as text: each step with its calls, its source line, and the arrays that it bound.

The steps are those of the page, and have its numbers; so do all lines, if these are asked for.
"""

import itertools
from dataclasses import dataclass

from ....check.trace.calls import Binding
from ....check.trace.values import Value, copied
from ....check.verify import Row
from .document import short_path
from .steps import Step, Steps
from .stops import stops_of


@dataclass(frozen=True)
class Style:
    """How parts of the text stand out: by terminal codes, or not at all."""

    on: bool = False

    def __call__(self, code: str, text: str) -> str:
        """The text with one of the codes below."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text


PLAIN = Style()
_OWN = "1"  # the line that is shown
_CONTEXT = "2"  # the lines around it
_NEW = "32"  # a name that has just been bound
_GRADIENT = "35"  # what belongs to the backward pass
_WRONG = "1;31"  # a gradient that finite differences do not confirm
RUN_AGAIN = (
    "not checked here: Recompute ran this again during backward, out of reach of finite differences; "
    "the gradients of the inputs and parameters check it"
)


def plain(recording: Steps, everything: bool = False, style: Style = PLAIN) -> str:
    """The steps of the recording, in order; with `everything` all its lines."""
    n_lines, n_calls, stops = len(recording.steps), len(recording.calls), stops_of(recording).found
    parts = [f"{recording.name}: {len(stops)} steps; with all lines {n_lines}, in {n_calls} calls"]
    chosen = recording.steps if everything else [recording.steps[index] for index in stops]
    parts += ["\n".join(draw(recording, step, style, everything)) for step in chosen]
    if recording.report is not None:
        parts.append(str(recording.report))
    return "\n\n".join(parts)


def draw(recording: Steps, step: Step, style: Style = PLAIN, everything: bool = False) -> list[str]:
    """The lines for one step."""
    return [
        heading(recording, step, style, everything),
        *source(step, style, recording),
        *numbers(recording, step, style),
    ]


def heading(recording: Steps, step: Step, style: Style, everything: bool = False) -> str:
    """Which step it is, in which pass, and in which calls; of a line that is no step, and of all lines, its number."""
    stops = list(stops_of(recording).found)
    place = f"line {step.index}/{len(recording.steps) - 1}"
    if step.index in stops and not everything:
        place = f"step {stops.index(step.index) + 1}/{len(stops)}"
    direction = style(_GRADIENT, "backward") if recording.calls[step.call].in_backward else "forward "
    path = " › ".join(call.label for call in recording.path(step))
    return f"{place}  {direction}  {path}"


def source(step: Step, style: Style, recording: Steps, around: int = 0) -> list[str]:
    """The step's lines of source with their numbers, and some lines of the function before and after them."""
    call = recording.calls[step.call]
    if not step.source:
        return [f"{short_path(call.file)}:{step.line}  (no source)"]
    last = step.line + step.source.count("\n")
    lines = [f"{short_path(call.file)}:{step.line}"]
    for number in range(step.line - around, last + around + 1):
        place = number - call.first_line
        if 0 <= place < len(call.source):
            is_own = step.line <= number <= last
            mark, code = (">", _OWN) if is_own else (" ", _CONTEXT)
            lines.append(style(code, f"{number:5d} {mark} {call.source[place]}"))
    return lines


def numbers(recording: Steps, step: Step, style: Style) -> list[str]:
    """What the step bound or returns, with the gradients of parameters on its way, each below an empty line."""
    stop = stops_of(recording).found.get(step.index)
    also = () if stop is None else (*recording.returned(step), *stop.also)
    shown = [(step, bound) for bound in step.bound] + [recording.binding(bound.serial) for bound in also]
    return [line for at, bound in shown for line in ("", *_bound(recording, at, bound, style))]


def _bound(recording: Steps, step: Step, bound: Binding, style: Style) -> list[str]:
    """A name with its shape and numbers; a gradient also with its value and what finite differences say."""
    pair = recording.pair_of(step, bound)
    own = matrix(bound.value)
    if pair is None and bound.value.shape == ():
        return [f"  {style(_NEW, bound.name)} = {own[0]}"]
    described = _described(bound.value) + (" changed in place" if bound.in_place else "")
    if pair is None:
        return [f"  {style(_NEW, bound.name)} {described}", *(f"    {line}" for line in own)]
    others = matrix(pair.value)
    width = max(len(bound.name) + len(described), *map(len, own)) + 3
    lines = [f"  {style(_GRADIENT, bound.name)} {described:<{width - len(bound.name)}} of {pair.name}"]
    for left, right in itertools.zip_longest(own, others, fillvalue=""):
        lines.append(f"    {left:<{width}}{right}".rstrip())
    told = verdict(recording, step, bound, style)
    return [*lines, *([f"    {told}"] if told else [])]


def verdict(recording: Steps, step: Step, bound: Binding, style: Style = PLAIN) -> str:
    """What finite differences say of a gradient, or why they say nothing; "" if there is nothing to compare."""
    row = recording.check_of(step, bound)
    if row is not None:
        return _found(row, style)
    return RUN_AGAIN if recording.is_unreachable(step, bound) else ""


def _found(row: Row, style: Style) -> str:
    if row.problem and row.ok:
        return row.problem  # "not checked", and why
    if row.problem:
        verdict = "they cannot see it" if row.is_hidden else "WRONG"
        told = f"finite differences: {verdict}, {row.problem}"
        return told if row.is_hidden else style(_WRONG, told)
    where = "" if row.where is None else f" at [{', '.join(map(str, row.where))}]"
    told = f"{row.hand:.6g} by hand, {row.numerical:.6g} by finite differences{where}, error {row.error:.0e}"
    return f"checked: {told}, ok" if row.ok else style(_WRONG, f"WRONG: {told}")


def _described(value: Value) -> str:
    kind = "" if value.dtype in ("float64", "int", "float", "bool") else f" {value.dtype}"
    return f"{value.shape}{kind}"


def matrix(value: Value) -> list[str]:
    """The numbers as NumPy prints them; of an array that was only summarised, the first rows and columns."""
    lines = str(value).splitlines()
    return lines if value.corner is None else [*lines, *str(copied(value.corner)).splitlines(), "…"]
