"""Tries the equations of a docstring, and compares the values of its formulas with those that the op computes."""

import functools
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays import rooms
from ...core.arrays.grammar import parsed
from ..derivation import functions
from ..derivation.checking import Checker
from ..derivation.lines import statements
from ..derivation.parsing import parser
from ..derivation.report import VERDICTS, Line
from ..derivation.shifting import origin
from ..derivation.tree import Ref
from .reading import Notes, equations, notes, passages, untold

FOLDERS = ("core/ops", "core/layers", "ideas")
SIGNS = VERDICTS | {"code": "✓"}
UNTOLD = "no note in derivations.txt says how to try it (said ...), or why it needs no trying (words ...)"
SECONDS = 20.0  # for one passage: nobody waits at a field where he types
SHORT = {"weight": "W", "bias": "b", "gamma": "γ", "beta": "β", "eps": "ε", "temperature": "T"}
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Tried:
    """An equation of a docstring.

    verdict: "right", "defines", "wrong", "follows", "unreadable", or "code" for an array that the op computes as well.
    message: why, if it is not right.
    """

    line: int
    text: str
    verdict: str
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is right."""
        return self.verdict not in ("wrong", "follows", "unreadable")


@dataclass(frozen=True)
class Passage:
    """A derivation in a docstring: of an op, or all that the docstring has. path: the file within the package."""

    module: str
    path: str
    op: str
    equations: tuple[Tried, ...]

    @property
    def ok(self) -> bool:
        """Whether no equation is wrong."""
        return all(each.ok for each in self.equations)

    def __str__(self) -> str:
        told = [f"{self.path}{f', {self.op}' if self.op else ''}"]
        for each in self.equations:
            number = "" if each.verdict == "code" else each.line
            told.append(f"{number:>4} {SIGNS[each.verdict]} {' '.join(each.text.split())}")
            told += [f"       {each.message}"] if each.message else []
        return "\n".join(told)


def modules() -> list[str]:
    """Every module whose docstring has an equation, such as "core.ops.softmax"."""
    return [name for name, path in _files().items() if equations(path) or untold(path, [])]


def counts(found: Sequence[Passage]) -> Counter[str]:
    """How many equations have each verdict."""
    return Counter(each.verdict for passage in found for each in passage.equations)


def names() -> dict[str, list[str]]:
    """What derivations are called: the op or the file, and the modules that derive it."""
    found: dict[str, list[str]] = {}
    for module in modules():
        own = {module, module.removesuffix(".op").rpartition(".")[2], *(each.op for each in notes().get(module, []))}
        for name in own - {""}:
            found.setdefault(name, []).append(module)
    return found


def check_one(module: str) -> list[Passage]:
    """The derivations in the docstring of a module."""
    parser()  # without the library lark this says what to install
    functions.load()  # before the clock starts
    about = notes().get(module)
    if about is None:
        ops = list(_ops_of(module))
        about = [Notes(module, ops[0] if len(ops) == 1 else "", automatic=True)]
    path = _files()[module]
    found = [_passage(each, lines) for each, lines in passages(path, about)]
    left = tuple(Tried(number, line, "unreadable", UNTOLD) for number, line in untold(path, about))
    return found + [Passage(module, path.relative_to(_PACKAGE).as_posix(), "", left)] * bool(left)


@functools.cache
def _files() -> dict[str, Path]:
    paths = [path for folder in FOLDERS for path in sorted((_PACKAGE / folder).rglob("*.py"))]
    return {rooms.module_of(path).partition(".")[2].removesuffix(".__init__"): path for path in paths}


def _ops_of(module: str) -> dict[str, Any]:
    """The ops that a module declares."""
    found = vars(import_module(f"{_PACKAGE.name}.{module}")).items()
    return {name: f for name, f in found if hasattr(f, "declaration") and f.__module__.endswith(module)}


def _passage(about: Notes, found: list[tuple[int, str]]) -> Passage:
    path = _files()[about.module].relative_to(_PACKAGE).as_posix()
    text = "\n".join(equation for _, equation in found)
    for name, function in about.maps.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?=\()", function, text)
    for old, new in about.renamed.items():
        text, count = re.subn(rf"(?<!\w)(d?){re.escape(old)}(?![^\W_ᵀ]|_\w+\(|\()", rf"\g<1>{new}", text)
        if not count and not about.op:  # of an op it may be an argument
            raise ValueError(f"derivations.txt: {about.module} has no {old!r} to read as {new!r}")
    op = _ops_of(about.module).get(about.op) if about.op else None
    if about.op and op is None:
        raise ValueError(f"derivations.txt: {about.module} has no op {about.op!r}")
    shown = Shown(op, about, "\n".join([text, *about.after])) if op else None
    given = [*([shown.given()] if shown and shown.arrays else []), *about.before]
    start = origin("\n".join([*given, text]))
    given = [line for line in given if not line.startswith("indices from")]
    lines = [(number, line) for (number, _), line in zip(found, text.split("\n"), strict=True)]

    def checked(in_code: bool) -> tuple[Checker, list[Tried]]:
        """The passage, read on numbers of its own or on those that the op takes."""
        checker = Checker(SECONDS)
        checker.known.origin = start
        tried = _amiss(checker, found[0][0], given)
        if shown and in_code:
            shown.as_in_code(checker)
        tried += [each for number, line in lines for each in _line(checker, number, line)]
        return checker, tried + _amiss(checker, found[-1][0], about.after)

    checker, tried = checked(in_code=False)
    if about.automatic and any(each.verdict == "unreadable" for each in tried):  # whatever is wrong may be misread
        tried = [replace(each, verdict="unreadable") for each in tried]
    elif shown and all(each.ok for each in tried) and shown.complete(checker):
        tried += shown.against_code(checked(in_code=True)[0], found[0][0])
    return Passage(about.module, path, about.op, tuple(tried))


def _amiss(checker: Checker, number: int, lines: list[str]) -> list[Tried]:
    """What is wrong with lines of derivations.txt, which are no equations of the docstring."""
    return [_told(number, line) for line in _fed(checker, lines) if line.verdict not in ("given", "defines", "right")]


def _line(checker: Checker, number: int, line: str) -> list[Tried]:
    """The equations of one line. One that needs a later one of its line, `y = x / N, N = ...`, comes after it."""
    tried = [_told(number, each) for each in _fed(checker, line.split(";"))]
    for n, each in enumerate(tried):
        if each.verdict == "unreadable" and n + 1 < len(tried):
            tried[n : n + 1] = [_told(number, again) for again in _fed(checker, [each.text])]
    return tried


def _fed(checker: Checker, lines: list[str]) -> list[Line]:
    return [checker.line(statement) for line in lines for statement in statements(line)]


def _told(number: int, line: Line) -> Tried:
    return Tried(number, line.text, line.verdict.replace("words", "unreadable"), " ".join(line.sentences()))


class Shown:
    """An op beside the derivation of it: its declaration gives the shapes, its code is held to the formulas."""

    def __init__(self, op: Any, about: Notes, text: str) -> None:
        self.op, self.about, self.text = op, about, text
        parameters = inspect.signature(op).parameters
        arrays, rules = parsed(op.__name__, op.declaration.text, parameters)
        floats = {n: a for n, a in arrays.items() if not (a.kind or a.broadcasts) and "·" not in "".join(a.axes)}
        self.output = next((name for name in arrays if name not in parameters), "")
        numbers = [name for name, rule in rules.items() if not rule.keys() & {"words", "letter"}]
        self.arrays = {n: a for n, a in floats.items() if n == self.output or self._written(n)}
        self.numbers = {name: self._written(name) for name in numbers if self._written(name)}
        self.names = {name: about.renamed.get(name) or self._written(name) for name in self.arrays}
        self.inputs = [name for name in self.arrays if name in parameters]

    def _written(self, name: str) -> str:
        """The name that the docstring has for an argument, "" if it has none."""
        candidates = [self.about.renamed.get(name, name), SHORT.get(name, name)]
        return next((n for n in candidates if re.search(rf"(?<![^\W_])d?{n}(?![^\W_ᵀ])", self.text)), "")

    def given(self) -> str:
        """The line that gives the arrays of the declaration, and the gradient of its output."""
        shapes = []
        for name, array in self.arrays.items():
            axes = [axis for axis in array.axes if axis != "..."]
            if "..." in array.axes and (self.about.dots or not axes):
                axes = [self.about.dots or "n", *axes]
            shapes.append(f"{'d' if name == self.output else ''}{self.names[name] or name}: ({', '.join(axes)})")
        return "given " + ", ".join([*shapes, *self.numbers.values()])

    def complete(self, checker: Checker) -> bool:
        """Whether the op can be called with what the passage names, and the passage says what its output is."""
        own = {*self.names.values(), f"d{self.names.get(self.output)}", *self.numbers.values()}
        own |= {*self.about.ones, *self.about.one_hot}
        output = self.names.get(self.output, "")
        given = {*checker.known.given, *checker.known.numbers} & {*checker.known.ancestors({output}), f"d{output}"}
        return bool(output in checker.known.defined and self.inputs and given <= own)

    def as_in_code(self, checker: Checker) -> None:
        """Give the arrays that are no arguments the numbers that the op takes for them."""
        for draw in checker.trial.draws:
            for name in self.about.ones:
                draw.values[name].array[...] = 1
            for name in self.about.one_hot:
                array = draw.values[name].array
                array[...] = np.arange(array.shape[-1]) == array.argmax(axis=-1)[..., None]

    def against_code(self, checker: Checker, number: int) -> list[Tried]:
        """The output and every gradient, by the formulas of the docstring and by the code of the op."""
        found: dict[str, float] = {}
        for draw in checker.trial.draws:
            arguments = {name: draw.values[self.names[name]].array.real.astype(float) for name in self.inputs}
            numbers = {name: float(draw.values[written].array.real) for name, written in self.numbers.items()}
            ids = {name: draw.values[array].array.argmax(axis=-1) for array, name in self.about.one_hot.items()}
            try:
                y, backward = self.op(**arguments, **numbers, **ids)
            except (TypeError, ValueError) as problem:
                told = f"{self.op.__name__} cannot be called with what the docstring names: {problem}"
                return [Tried(number, self.op.__name__, "wrong", told)]
            output = self.names[self.output]
            gradients = backward(draw.values[f"d{output}"].array.real.astype(float))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            pairs = {output: (y, draw.values[output].array)}
            for name, gradient in zip(self.inputs, gradients, strict=False):
                pairs[f"d{self.names[name]}"] = (gradient, draw.computer().of(Ref(f"d{self.names[name]}", ())).array)
            for name, (code, formula) in pairs.items():
                same = np.shape(code) == np.shape(formula)
                gap = float(abs(code - formula).max() / (1.0 + abs(formula).max())) if same else np.inf
                found[name] = max(found.get(name, 0.0), gap)
        told = f"{self.op.__name__} computes other numbers than the formulas of its docstring"
        checked = {f"{name}, as the code computes it": gap < 1e-9 for name, gap in found.items()}
        return [Tried(number, text, "code" if ok else "wrong", "" if ok else told) for text, ok in checked.items()]
