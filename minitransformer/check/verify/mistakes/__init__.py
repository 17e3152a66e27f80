"""Mistakes people make: in the library's own code and in the reference solutions of the exercises.

Each is described once, in one of the text files here, or in the mistakes.txt or the folder `mistakes` of the room that
its target is in. Many parts of the project use these descriptions: the tests of the checker, which must reject each
mistake; the exercises, which name a student's mistake; the stepper's menu; the annotated code of the site; notebooks;
and the bug hunt.

    @ core.ops.softmax:softmax
    gradients: softmax; softmax along another axis, with temperature

    softmax-no-sum: The term -sum_i dy_i y_i is missing. It comes from the denominator, which all entries share.
    - y * (dy - (dy * y).sum(axis=axis, keepdims=True))
    + y * dy

A line "@ target" opens a section. It names the function that contains the mistakes below it; several targets are
functions that share these mistakes. "gradients: case; case" or "values: case; case" says where the mistakes show (see
Mistake): for the section or, after the edits of a mistake, for that mistake. A mistake begins with its name and its
sentence, which may continue in indented lines. Its edits follow: lines "- old" and "+ new", where several lines in a
row form one snippet, the second and later ones indented as in the file. Lines that begin with "#" are comments.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import linecache
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....core.arrays import rooms

__all__ = ["MISTAKES", "Mistake", "mistakes_in", "read"]

_KEEPING = type(functools.lru_cache(len))  # the type of functions that keep results
_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Mistake:
    """A mistake that can replace the right code for a while: `with mistake.applied(): ...`

    target names the function within the package: "core.ops.softmax:softmax", "core.layers.residual:Residual._pre". In
    its body each `old` of the edits (old, new) occurs exactly once, and `new` replaces it. sentence: what is wrong,
    and how to see it, for the student who made the mistake.

    caught_by: "gradients" if finite differences find the mistake. Then each case of the catalogue that `cases` names
    rejects it. "values" if forward and backward are wrong together. Then each of these cases accepts it; only
    independent values, or a test of which inputs an output depends on, detect it. Mistakes in the reference solution of
    an exercise name no cases: they show in what the exercise returns.
    """

    name: str
    target: str
    edits: tuple[tuple[str, str], ...]
    sentence: str
    cases: tuple[str, ...] = ()
    caught_by: str = "gradients"

    def edited(self, body: str) -> str:
        """A body of the target with the mistake in it. Raises ValueError unless each snippet occurs exactly once."""
        for old, new in self.edits:
            if body.count(old) != 1:
                raise ValueError(
                    f"mistake {self.name}: its snippet must occur exactly once in the body of {self.target}, "
                    f"but it occurs {body.count(old)} times: {old!r}"
                )
            body = body.replace(old, new)
        return body

    @property
    def wrong_source(self) -> str:
        """The source of the target's module, with the mistake in it. Raises ValueError if a snippet does not fit."""
        source = inspect.getsource(self._module)
        node = self._definition(source)
        lines = source.splitlines(keepends=True)
        start, end = node.body[0].lineno - 1, node.end_lineno
        return "".join([*lines[:start], self.edited("".join(lines[start:end])), *lines[end:]])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Run the wrong code wherever the target is called, and the right code again afterwards, also after an error.

        The function keeps its identity and gets another code object. So every reference to it (in a dictionary, a
        default argument, an older instance) runs the mistake as well. A pullback keeps the code it was made with. All
        threads see the change, so do not use it while another thread computes. A fast twin of the target does not run
        the mistake.
        """
        code, lines = self._wrong
        function = self.function
        right, function.__code__ = function.__code__, code
        linecache.cache[code.co_filename] = lines  # for tracebacks
        forget_kept_results()
        try:
            yield
        finally:
            function.__code__ = right
            forget_kept_results()

    @functools.cached_property  # whoever applies a mistake does so at every call of the function
    def _wrong(self) -> tuple[types.CodeType, tuple[int, None, list[str], str]]:
        """The wrong code, and the lines of its file as linecache keeps them."""
        source, filename = self.wrong_source, f"{self.file} [{self.name}]"  # in that folder, so that tracing watches it
        code = compile(source, filename, "exec", dont_inherit=True)
        for name in self._path:
            inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
            code = next(const for const in inner if const.co_name == name)
        return code, (len(source), None, source.splitlines(keepends=True), filename)

    @functools.cached_property
    def file(self) -> str:
        """The path of the file that the target is in."""
        return str(_ROOT.joinpath(*self.target.partition(":")[0].split(".")).with_suffix(".py"))

    @property
    def function(self) -> Any:
        """The target itself, inside its decorators."""
        function: Any = inspect.unwrap(operator.attrgetter(".".join(self._path))(self._module))
        return function

    def inside(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """f with the mistake: a new function that runs the wrong code, as do its pullbacks."""

        @functools.wraps(f)
        def mistaken(*inputs: Any, **options: Any) -> Any:
            with self.applied():
                returned = f(*inputs, **options)
            if not (isinstance(returned, tuple) and callable(returned[-1])):
                return returned
            pullback = returned[-1]

            def backward(*dy: Any) -> Any:
                with self.applied():
                    return pullback(*dy)

            return *returned[:-1], backward

        return mistaken

    @property
    def _module(self) -> types.ModuleType:
        return importlib.import_module(f"{_PACKAGE}.{self.target.partition(':')[0]}")

    @property
    def _path(self) -> tuple[str, ...]:
        return tuple(self.target.partition(":")[2].split("."))

    def _definition(self, source: str) -> ast.FunctionDef:
        node: ast.AST = _parsed(source)
        for name in self._path:
            inner = (n for n in getattr(node, "body", []) if isinstance(n, ast.ClassDef | ast.FunctionDef))
            found = next((n for n in inner if n.name == name), None)
            if found is None:
                raise ValueError(f"mistake {self.name}: there is no {self.target}")
            node = found
        if not isinstance(node, ast.FunctionDef):
            raise ValueError(f"mistake {self.name}: {self.target} must be a function or a method")
        return node


@functools.lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def forget_kept_results() -> None:
    """Empty every functools.lru_cache of the mathematics, so that right and wrong results are not confused."""
    for kept in _keeping(len(sys.modules)):
        kept.cache_clear()


@functools.lru_cache(maxsize=1)
def _keeping(modules: int) -> list[Any]:
    """Those caches. How many modules are loaded tells when to look again."""
    rooms = tuple(f"{_PACKAGE}.core.{room}" for room in ("arrays", "ops", "layers", "models"))
    loaded = [vars(module).values() for name, module in list(sys.modules.items()) if name.startswith(rooms)]
    return [x for attributes in loaded for x in attributes if isinstance(x, _KEEPING)]


_HEAD = re.compile(r"([\w-]+): (.+)")
_CASES = re.compile(r"(gradients|values):(?: (.+))?")


def read(text: str, where: str) -> Iterator[Mistake]:
    """The mistakes that a text describes. Raises ValueError, which names the file `where` and the unreadable line."""
    found: list[tuple[list[str], dict[str, Any], list[tuple[list[str], list[str]]]]] = []  # targets, fields, edits
    targets: list[str] = []
    shared: dict[str, Any] = {}
    fields: dict[str, Any] = shared  # those of the section, then of the mistake that is read
    edits: list[tuple[list[str], list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        is_open = fields is not shared
        if line.startswith("@ "):
            targets, shared = line[2:].split(), {}
            fields = shared
        elif match := _CASES.fullmatch(line):
            fields |= {"caught_by": match[1], "cases": tuple(match[2].split("; ")) if match[2] else ()}
        elif (match := _HEAD.fullmatch(line)) and targets:
            fields, edits = {**shared, "name": match[1], "sentence": match[2]}, []
            found.append((targets, fields, edits))
        elif line.startswith("    ") and is_open and not edits:
            fields["sentence"] += f" {line.strip()}"
        elif line[:1] == "-" and is_open:
            if not edits or edits[-1][1]:
                edits.append(([], []))
            edits[-1][0].append(line[2:])
        elif line[:1] == "+" and is_open and edits:
            edits[-1][1].append(line[2:])
        elif line and not line.startswith("#"):
            raise ValueError(f"{where}, line {number}: this is not part of a mistake: {line!r}")
    for targets, fields, edits in found:
        pairs = tuple(("\n".join(old), "\n".join(new)) for old, new in edits)
        yield from (Mistake(target=target, edits=pairs, **fields) for target in targets)


def _all() -> Iterator[Mistake]:
    for path in rooms.files("mistakes.txt", "mistakes/*.txt"):
        yield from read(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}")


_by_target: dict[str, list[Mistake]] = {}
for _mistake in _all():
    _by_target.setdefault(_mistake.target, []).append(_mistake)

# The mistakes in the library's own code, by name.
MISTAKES: dict[str, Mistake] = {
    mistake.name: mistake
    for target, mistakes in _by_target.items()
    for mistake in mistakes
    if not (target.startswith("school.course.exercises.") or ".lesson:" in target)
}


def mistakes_in(target: str) -> tuple[Mistake, ...]:
    """The mistakes in a function of the package, such as "core.ops.softmax:softmax"."""
    return tuple(_by_target.get(target, ()))
