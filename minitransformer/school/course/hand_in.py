"""What counts in a hand-in: for each exercise the last function of its name, and what that function uses.

The cells of a notebook define, print, draw and train. A function needs only the statements that bind the names it
reads, the statements that these need in turn, and so on. Only these are run, in their order (`HandIn.run`). So a
failing cell costs nothing unless it is needed, and grading takes no longer than the functions do.

Whether a statement defines the function is seen when it has run. Given code that binds an exercise's name to a value
(`weights, softmax_backward = ops.softmax(scores)`) or to a function of other arguments does not replace the student's.

This file runs in the process of the hand-in (see sandbox_runner.py) and needs only the standard library.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
import json
import linecache
import re
import symtable
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_MAGICS = 20  # of a cell are found one by one; beyond, each line that looks like one is taken for one
_MOST_CODE = 500_000  # characters of code; a notebook of the course has about ten thousand
_DEFINITION = re.compile(r"^[ \t]*def[ \t]+(\w+)", re.MULTILINE)
_CHANGE_THEIR_FIRST = {"at", "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"}  # of NumPy
_CHANGE_THEIR_FIRST |= {"heapify", "heappush", "shuffle"}
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell. title: the cell's name in tracebacks; reads: global names."""

    title: str
    node: ast.stmt
    reads: frozenset[str]

    def defines(self, name: str) -> bool:
        """Whether it holds `def name`, apart from what it comes to when it runs."""
        return any(isinstance(node, ast.FunctionDef) and node.name == name for node in _at_this_level(self.node))


@dataclass
class HandIn:
    """The statements of a hand-in, and the places of those that bind each name.

    problems: the cells that are not valid Python, in words; broken: those by the functions that they define. sources:
    the code of each cell; flags: the compiler flags of `from __future__ import ...`.
    """

    statements: list[Statement] = field(default_factory=list)
    bound: dict[str, list[int]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    flags: int = 0

    def function(self, name: str, fits: Callable[[str, Any], bool]) -> tuple[Any, list[str]]:
        """The function of an exercise, or None, and what failed on the way to it.

        Of the statements that bind the name the last counts that makes a function of the exercise's arguments; if none
        does, the last that makes a function. fits(name, value): whether there is an exercise of that name, and the
        value is a function of its arguments.
        """
        second: tuple[Any, list[str]] = None, []
        for place in reversed(self.bound.get(name, [])):
            value, problems = self.run(place, name, fits)
            if fits(name, value):
                return value, problems
            if not is_function(second[0]) and (is_function(value) or self.statements[place].defines(name)):
                second = value, problems
        return second

    def is_defined(self, name: str) -> bool:
        """Whether some statement holds `def name`."""
        return any(self.statements[place].defines(name) for place in self.bound.get(name, []))

    def needed(self, place: int, name: str) -> list[int]:
        """The places of the statements that the one here needs to bind `name`, including itself, in order."""
        places = {place, *self.bound.get("*", [])}
        names, waiting = set[str](), list(places)
        while waiting:
            for read in self.statements[waiting.pop()].reads - names:
                names.add(read)
                found = [one for one in self.bound.get(read, []) if read != name or one < place]
                waiting += [one for one in found if one not in places]
                places.update(found)
        return sorted(places)

    def run(self, place: int, name: str, fits: Callable[[str, Any], bool]) -> tuple[Any, list[str]]:
        """Run the statement and what it needs: what it binds `name` to, and the failures. One stops none of the rest.

        A function of an exercise stays where a later statement binds its name to something that does not fit.
        """
        module = types.ModuleType("__main__")
        scope = module.__dict__
        scope.update(display=lambda *args, **options: None)
        sys.modules["__main__"] = module
        value, problems = None, []
        for one in self.needed(place, name):
            statement = self.statements[one]
            title, source = statement.title, self.sources[statement.title]
            linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)  # for tracebacks
            before = dict(scope)
            try:
                code = compile(ast.Module([statement.node], []), title, "exec", flags=self.flags, dont_inherit=True)
                exec(code, scope)
            except BaseException as error:
                problems.append(f"{title}, line {statement.node.lineno}: {said(error)}")
            else:
                value = scope.get(name) if one == place else value
            for other, old in before.items():
                if scope.get(other) is not old and fits(other, old) and not fits(other, scope.get(other)):
                    scope[other] = old
        if value is not None:
            scope[name] = value
        return value, problems


def is_function(value: Any) -> bool:
    """Whether it can be called. What stands in for this package can be, too, and says that it is not here."""
    return callable(value) and not isinstance(value, types.ModuleType)


def said(error: BaseException) -> str:
    """An exception in words, safe against its own class."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return f"{type(error).__name__}: (its message cannot be shown)"


def read(name: str, data: bytes) -> HandIn:
    """Read a file: a notebook (.ipynb) or a Python file. Raises ValueError for any other file."""
    is_notebook = name.endswith(".ipynb")
    text = _decoded(data, is_notebook)
    cells = _cells(text) if is_notebook else [text]
    if sum(map(len, cells)) > _MOST_CODE:
        raise ValueError(f"it contains more than {_MOST_CODE:,} characters of code")
    hand_in = HandIn()
    for i, cell in enumerate(cells, 1):
        title = f"{name}, code cell {i}" if is_notebook else name
        hand_in.sources[title] = cell
        try:
            statements = [(node, *_names(node)) for node in _parsed(cell).body]
        except _UNREADABLE as error:
            line = getattr(error, "lineno", None)
            where = f"{title}, line {line}" if line else title
            problem = f"{where}: {type(error).__name__}: {getattr(error, 'msg', None) or error}"
            hand_in.problems.append(problem)
            hand_in.broken.update(dict.fromkeys(_DEFINITION.findall(cell), problem))
            continue
        for node, binds, reads in statements:
            for bound in binds:
                hand_in.bound.setdefault(bound, []).append(len(hand_in.statements))
            hand_in.statements.append(Statement(title, node, frozenset(reads)))
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    hand_in.flags |= getattr(getattr(__future__, alias.name, None), "compiler_flag", 0)
    return hand_in


def _decoded(data: bytes, is_notebook: bool) -> str:
    """The text of a notebook, or of a Python file, which may name its encoding in its first lines (PEP 263)."""
    try:
        return data.decode("utf-8-sig") if is_notebook else importlib.util.decode_source(data)
    except (UnicodeError, SyntaxError, LookupError) as error:
        raise ValueError(f"it is not UTF-8 text, or not in the encoding that it names: {error}") from error


def _cells(text: str) -> list[str]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not a notebook: it is not JSON") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it is not a notebook: it has no list of cells (format 4)")
    sources = [cell.get("source", "") for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    return ["".join(map(str, source)) if isinstance(source, list) else str(source) for source in sources]


def _parsed(cell: str) -> ast.Module:
    """The statements of a cell. Only where Python fails a line may be a magic: % also divides, and stands in texts."""
    lines = _without_cell_magic(cell.split("\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for a student's "\d"
        for _ in range(_MAGICS):
            try:
                return ast.parse("\n".join(lines))
            except SyntaxError as error:
                i = (error.lineno or 0) - 1
                if not 0 <= i < len(lines) or (plain := _plain(lines[i])) == lines[i]:
                    raise
                while lines[i].rstrip().endswith("\\") and i + 1 < len(lines):  # it goes on in the next line
                    lines[i], plain, i = plain, "", i + 1
                lines[i] = plain
        return ast.parse("\n".join(map(_plain, lines)))


def _without_cell_magic(lines: list[str]) -> list[str]:
    """The lines of a cell without %%time and the like. A cell in another language, such as %%bash, becomes empty."""
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if not lines[first].startswith("%%"):
        return lines
    magic = lines[first][2:].split()[:1]
    if magic not in (["time"], ["timeit"], ["capture"], ["prun"]):
        return []
    return _without_cell_magic([*lines[:first], "", *lines[first + 1 :]])


def _plain(line: str) -> str:
    """A line without its magic; `pass` keeps an indented block around it valid. What %time measures stays."""
    content = line.strip()
    start = line[: len(line) - len(line.lstrip())]
    if content.startswith("%time "):
        return start + content.removeprefix("%time ").lstrip()
    is_magic = content.startswith(("%", "!", "?", "pip ", "conda ", "cd ", "ls "))
    is_magic |= content.endswith("?") and "#" not in content
    _, equals, value = content.partition("=")
    is_magic |= bool(equals) and value.lstrip().startswith(("%", "!"))
    return start + "pass" if is_magic else line


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The global names that a statement binds or changes, and those that it reads, also inside its functions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(ast.unparse(statement), "", "exec")
    except _UNREADABLE:  # nested too deeply: every name that occurs
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        return names, names
    symbols, inner = table.get_symbols(), table.get_children()
    binds = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    reads = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    for one in inner:
        reads |= {symbol.get_name() for symbol in one.get_symbols() if symbol.is_global()}
        inner += one.get_children()
    return binds | _changed(statement), reads


def _changed(statement: ast.stmt) -> set[str]:
    """The names that a statement changes without binding them.

    By an assignment to attributes or entries, also of `globals()`, or by a call that is a statement of its own, of a
    method (`kept.append(x)`) or like `np.fill_diagonal(mask, True)`. `from x import *` may bind any name: "*".
    """
    names = set()
    for node in _at_this_level(statement):
        match node:
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                names.add(_root(node))
            case ast.Expr(ast.Call(ast.Attribute() as method, given)):
                names.add(_root(method))
                names.update(map(_root, given[:1] if method.attr in _CHANGE_THEIR_FIRST else []))
            case ast.ImportFrom(names=[ast.alias("*")]):
                names.add("*")
    return names - {""}


def _at_this_level(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without the bodies of the functions and classes in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _root(node: ast.AST) -> str:
    """The name at the beginning of `name.attribute[entry]`, or the one in `globals()["name"]`; "" if there is none."""
    match node:
        case ast.Name(name) | ast.Subscript(ast.Call(ast.Name("globals" | "locals" | "vars")), ast.Constant(str(name))):
            return name
        case ast.Attribute(value) | ast.Subscript(value):
            return _root(value)
    return ""
