"""What counts in a hand-in: for each exercise the last definition of its function, and what that function uses.

The cells of a notebook define, print, draw and train. A function needs only the statements that bind the names it
reads, the statements that these need in turn, and so on. Only these are run, in their order. So given code that binds
an exercise's name in another way (`weights, softmax_backward = ops.softmax(scores)`) does not replace the student's
definition. A failing cell costs nothing unless it is needed. And grading takes no longer than the functions do.

This file runs in the process of the hand-in (see sandbox_runner.py) and needs only the standard library.
"""

from __future__ import annotations
import __future__

import ast
import io
import json
import re
import symtable
import tokenize
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

_MOST_CODE = 500_000  # characters of code; a notebook of the course has about ten thousand
_DEFINITION = re.compile(r"^[ \t]*def[ \t]+(\w+)", re.MULTILINE)
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell. title: the cell's name in tracebacks."""

    title: str
    node: ast.stmt


@dataclass
class HandIn:
    """The statements of a hand-in, and which of them bind each name and define each exercise.

    broken: for an exercise defined in a cell that is not valid Python, the reason. assigned: the exercises whose names
    are bound, but not by a definition. problems: the cells that are not valid Python, in words. flags: the compiler
    flags of `from __future__ import ...`.
    """

    statements: list[Statement] = field(default_factory=list)
    definitions: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    assigned: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    flags: int = 0
    _bound: dict[str, list[int]] = field(default_factory=dict)

    def needed(self, exercise: str) -> list[int]:
        """The places of the statements that the definition of an exercise needs, including itself, in order."""
        places = {self.definitions[exercise], *self._bound.get("*", [])}
        names, waiting = {exercise}, list(places)
        while waiting:
            for name in _read_names(self.statements[waiting.pop()].node) - names:
                names.add(name)
                found = [self.definitions[name]] if name in self.definitions else self._bound.get(name, [])
                waiting += [place for place in found if place not in places]
                places.update(found)
        return sorted(places)


def read(name: str, data: bytes, exercises: Collection[str]) -> HandIn:
    """Find the exercises in a file: a notebook (.ipynb) or a Python file. Raises ValueError for any other file."""
    is_notebook = name.endswith(".ipynb")
    cells = _cells(_decoded(data)) if is_notebook else [_decoded(data, _encoding(data))]
    if sum(map(len, cells)) > _MOST_CODE:
        raise ValueError(f"it contains more than {_MOST_CODE:,} characters of code")
    hand_in = HandIn()
    functions: list[set[str]] = []  # the functions that each statement defines
    for i, cell in enumerate(cells, 1):
        title = f"{name}, code cell {i}" if is_notebook else name
        hand_in.sources[title] = cell
        try:
            statements = [(node, *_bindings(node)) for node in _parsed(cell).body]
        except _UNREADABLE as error:
            line = getattr(error, "lineno", None)
            where = f"{title}, line {line}" if line else title
            problem = f"{where}: {type(error).__name__}: {getattr(error, 'msg', None) or error}"
            hand_in.problems.append(problem)
            hand_in.broken.update({found: problem for found in _DEFINITION.findall(cell) if found in exercises})
            continue
        for node, defined, names in statements:
            for bound in names:
                hand_in._bound.setdefault(bound, []).append(len(hand_in.statements))
            hand_in.statements.append(Statement(title, node))
            functions.append(defined)
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    hand_in.flags |= getattr(getattr(__future__, alias.name, None), "compiler_flag", 0)
    known = set().union(*functions)
    classes = {one.node.name for one in hand_in.statements if isinstance(one.node, ast.ClassDef)}
    for place, one in enumerate(hand_in.statements):
        functions[place] |= _named_anew(one.node, known, classes)
        known |= functions[place]
        hand_in.definitions.update(dict.fromkeys(functions[place] & set(exercises), place))
    hand_in.broken = {name: why for name, why in hand_in.broken.items() if name not in hand_in.definitions}
    hand_in.assigned = [name for name in exercises if name in hand_in._bound and name not in hand_in.definitions]
    return hand_in


def _encoding(data: bytes) -> str:
    """The encoding that a Python file names in its first lines (PEP 263), or UTF-8."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        raise ValueError(f"it is not UTF-8 text, or names an encoding that does not exist: {error}") from error


def _decoded(data: bytes, encoding: str = "utf-8-sig") -> str:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise ValueError(f"it is not {encoding.upper().removesuffix('-SIG')} text") from error


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for a student's "\d"
        try:
            return ast.parse(cell)
        except SyntaxError:
            plain = _without_magics(cell)
            if plain == cell:
                raise
            return ast.parse(plain)


def _without_magics(cell: str) -> str:
    """The cell as plain Python. A cell in another language, such as %%bash, becomes empty."""
    lines = cell.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[first].startswith("%%"):
        magic = lines[first][2:].split()[:1]
        if magic not in (["time"], ["timeit"], ["capture"], ["prun"]):
            return ""
        lines[first] = ""
    return "\n".join(_plain(line) for line in lines)


def _plain(line: str) -> str:
    """A line without its magic; `pass` keeps an indented block around it valid."""
    content = line.strip()
    is_magic = content.startswith(("%", "!", "?")) or (content.endswith("?") and not content.startswith("#"))
    _, equals, value = content.partition("=")
    is_magic |= bool(equals) and value.lstrip().startswith(("%", "!"))
    return line[: len(line) - len(line.lstrip())] + "pass" if is_magic else line


def _bindings(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The functions that a statement defines, and every other name that it binds or may change at the top level.

    An assignment to its attributes or entries changes a name; so does a method call that is a statement of its own
    (`kept.append(x)`). `from x import *` binds "*".
    """
    functions: set[str] = set()
    names: set[str] = set()
    for node in _at_this_level(statement):
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Lambda):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            functions |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names.add(_root(node) or _entry_of_globals(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names.add(_root(node.value.func) if isinstance(node.value.func, ast.Attribute) else "")
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    return functions, (names | functions) - {""}


def _named_anew(statement: ast.stmt, functions: set[str], classes: set[str]) -> set[str]:
    """The names that `relu_backward = my_relu`, `= np.vectorize(my_relu)`, `= MyReLU()`, `= MyReLU.backward` or
    `a, relu_backward = my_a, my_relu` gives a function of the hand-in, or an object that it makes.

    An assignment of anything else binds a value and is not a definition.
    """
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    pairs = [pair for target in targets for pair in _one_by_one(target, statement.value)]
    names = {target.id for target, _ in pairs if isinstance(target, ast.Name)}

    def is_function(value: ast.expr) -> bool:
        if isinstance(value, ast.IfExp):
            return is_function(value.body) or is_function(value.orelse)
        if isinstance(value, ast.Attribute):
            owner = value.value.func if isinstance(value.value, ast.Call) else value.value
            return isinstance(owner, ast.Name) and owner.id in classes | functions
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in classes:
            return True
        given = value.args if isinstance(value, ast.Call) else [value]
        used = {one.id for one in given if isinstance(one, ast.Name)}
        return bool(used & functions) and not used & names  # f = jit(f): the definition of f counts

    return {target.id for target, value in pairs if isinstance(target, ast.Name) and is_function(value)}


def _one_by_one(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What each target of an assignment gets; `a, b = x, y` is two assignments."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _at_this_level(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without the bodies of the functions and classes in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _root(node: ast.AST) -> str:
    """The name at the beginning of `name.attribute[entry]`; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _entry_of_globals(node: ast.Attribute | ast.Subscript) -> str:
    """The name that `globals()["name"] = ...` binds, or ""."""
    match node:
        case ast.Subscript(ast.Call(ast.Name("globals" | "locals" | "vars")), ast.Constant(str(name))):
            return name
    return ""


def _read_names(statement: ast.stmt) -> set[str]:
    """The global names that a statement reads, also inside its functions."""
    try:
        waiting = [symtable.symtable(ast.unparse(statement), "", "exec")]
    except _UNREADABLE:  # nested too deeply: every name that occurs
        return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    names = {symbol.get_name() for symbol in waiting[0].get_symbols() if symbol.is_referenced()}
    while waiting:
        table = waiting.pop()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        waiting += table.get_children()
    return names
