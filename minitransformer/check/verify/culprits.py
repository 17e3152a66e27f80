"""Which lines of a backward pass, that somebody else wrote, hold the mistake.

A gradient depends on the lines that computed it, and on the lines that computed what those read: its slice (Weiser
1981, "Program slicing"). A line on which every wrong gradient depends, and no right one, may hold the mistake; all
others are cleared. Values between the two, whose gradients have names that can be checked, make the slices short.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..trace.calls import GRADIENT_OF, Call, Pair
from .report import Row

_LINES = 4  # at most so many are told
_PACKAGE = str(Path(__file__).parents[2])  # its own lines may be edited, and blame.py knows them


@dataclass(frozen=True)
class _Step:
    """A statement: its line in the file, its text, what it binds, and what it reads, by name."""

    line: int
    text: str
    binds: frozenset[str]
    reads: frozenset[str]
    computes: bool  # unlike x, w = cache and n = len(x)


def told(check: Any, rows: list[Row]) -> str:
    """The lines of backward that hold the mistake, in a sentence; "" if nothing is wrong, or if they are not known."""
    if not any(row.is_wrong for row in rows):
        return ""
    pullbacks = [call for call in check.recording.calls if call.backward]
    if pullbacks and pullbacks[0].code.co_filename.startswith(_PACKAGE):
        return ""
    steps, results = _steps(pullbacks[0]) if pullbacks else ([], [])
    ends = _ends(check, rows, steps, results)
    wrong = [_slice(steps, ends[row.name]) for row in rows if row.name in ends and row.is_wrong]
    right = [_slice(steps, ends[row.name]) for row in rows if row.name in ends and row.ok and not row.problem]
    if not wrong:
        return ""
    cleared = set[int]().union(*right, *(_slice(steps, n) for n in _right_ones(check, pullbacks[0], steps)))
    suspect = [left for each in wrong if (left := {n for n in each if steps[n].computes} - cleared)]
    if not suspect:
        return ""
    found = set.intersection(*suspect) or min(suspect, key=max)  # or those of the first of several mistakes
    if not 0 < len(found) <= _LINES:
        return ""
    lines = "\n".join(f"  {steps[n].line}: {steps[n].text}" for n in sorted(found))
    which = "this line" if len(found) == 1 else "these lines"
    backward = pullbacks[0].code.co_name
    return f"Look at {which} of {backward}: the wrong gradients come through, and no right one does.\n{lines}"


def _steps(call: Call) -> tuple[list[_Step], list[frozenset[str]]]:
    """The statements of a function that bind names, in order; and the names in each result that it returns."""
    try:
        source, first = inspect.getsourcelines(call.code)
        body = ast.parse(textwrap.dedent("".join(source)))
    except (OSError, TypeError, SyntaxError):  # of a lambda, or typed into a console
        return [], []
    steps, results = [], list[frozenset[str]]()
    for node in sorted((each for each in ast.walk(body) if isinstance(each, ast.stmt)), key=lambda each: each.lineno):
        if isinstance(node, ast.Return) and node.value:
            several = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            results = [_names(each) for each in several]
            steps += [_step(node, first, {f"return {n}"}, each) for n, each in enumerate(results)]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
            whole = isinstance(node, ast.Assign) and not any(isinstance(part, ast.Subscript) for part in parts)
            binds = set(map(_base, parts))
            steps.append(_step(node, first, binds, _names(node.value) | (frozenset() if whole else frozenset(binds))))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # np.add.at(dx, ids, dy)
            steps.append(_step(node, first, set(_names(node.value)), _names(node.value)))
    return steps, results


def _step(node: ast.stmt, first: int, binds: set[str], reads: frozenset[str]) -> _Step:
    value = getattr(node, "value", None)
    unpacks = len(binds) > 1 and isinstance(value, ast.Name | ast.Attribute)
    computes = not unpacks and not re.fullmatch(r".*\.shape(\[.*\])?|len\(.*\)", ast.unparse(value) if value else "")
    return _Step(first + node.lineno - 1, " ".join(ast.unparse(node).split()), frozenset(binds), reads, computes)


def _base(target: ast.expr) -> str:
    """What an assignment changes: dx of dx[i], self.dW, grads['W']."""
    while isinstance(target, ast.Starred) or (isinstance(target, ast.Subscript) and not _is_word(target.slice)):
        target = target.value
    return ast.unparse(target)


def _is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _names(node: ast.AST) -> frozenset[str]:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)]
    return frozenset(map(_base, parts))


def _ends(check: Any, rows: list[Row], steps: list[_Step], results: list[frozenset[str]]) -> dict[str, int]:
    """The statement that completes the gradient of each row, by the row's name."""
    bound = {name: n for n, step in enumerate(steps) for name in step.binds}  # the last one counts
    names = {
        pair.title: pair.name for pair in check.pairs if pair.gradient is not None and not pair.title.endswith("]")
    }
    found: dict[str, int] = {}
    inputs = [row.name for row in rows if row.kind == "input"]
    for row in rows:
        own = names.get(row.name, "")
        gradients = [start + own for start in GRADIENT_OF if own and start + own in bound]
        if row.kind == "input" and len(inputs) == len(results):
            result = results[inputs.index(row.name)]
            gradients = [f"return {inputs.index(row.name)}"]
            if len(result) == 1 and result <= {start + row.name for start in GRADIENT_OF} & bound.keys():
                gradients = list(result)  # dx as it is
        if row.kind == "parameter":  # self.dW, grads['W'], self.W.grad
            last = re.findall(r"\w+", row.name)[-1]
            gradients = [
                each for each in bound if re.search(rf"(?:\bd|grad_){last}\b|grad.*\b{last}\b|{last}\.grad$", each)
            ]
        if gradients:
            found[row.name] = bound[gradients[0]]
    return found


def _right_ones(check: Any, pullback: Call, steps: list[_Step]) -> Iterator[int]:
    """Statements that bind the right gradient of a value, of a name whose gradients could not be paired."""
    unpaired: dict[str, list[Pair]] = {}
    for pair in check.pairs:
        if pair.gradient is None:
            unpaired.setdefault(pair.name, []).append(pair)
    for name, start in itertools.product(unpaired, GRADIENT_OF):
        arrays = [group[-1].value.array for group in pullback.bound.get(start + name, [])]
        places = [n for n, step in enumerate(steps) if start + name in step.binds]
        for n, x in zip(places, arrays, strict=False) if len(places) == len(arrays) else ():
            alike = [pair for pair in unpaired[name] if x is not None and pair.value.shape == x.shape]
            if any(check._intermediate_row(dataclasses.replace(pair, gradient=x)).ok for pair in alike):
                yield n


def _slice(steps: list[_Step], end: int) -> set[int]:
    """The statements on which one depends, and itself."""
    found: set[int] = set()
    todo = [end]
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            for name in steps[n].reads:
                before = [m for m in range(n) if name in steps[m].binds]
                todo += before[-1:]
    return found
