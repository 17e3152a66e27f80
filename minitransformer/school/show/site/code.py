"""Annotated code: a page for GPT-2 on one page, and one for each file of ops, layers, models and later ideas.

Each is made from the docstrings of the file and its syntax tree.

Beside each statement is its formula. Pointing at `scores` lights up `dscores` and the lines that compute both. A
recording of the stepper's examples gives the shapes and the links to the steps.
"""

import ast
import html
import io
import keyword
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ....check.verify.mistakes import mistakes_in
from ....core.arrays.files import write
from ..page import as_script_data
from ..stepper import expressions as ex
from ..stepper import mathml
from .frame import Site, template
from .modules import ROOMS, address_of, file_of, shown_modules
from .siblings import Siblings, in_turn, listed
from .steppers import Seen

Function = ast.FunctionDef
_NO_FORMULA = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.JoinedStr, ast.Dict)
_SHORT = 30  # characters of a formula that fit beside the code, and on a telephone
_WHOLE = "code/gpt2.html"  # the page of GPT-2 on one page


def write_code(site: Site, seen: Seen, siblings: Siblings, whole: Path) -> None:
    """Write the page of each module, that of the file `whole`, and the list of all."""
    start = _Module(whole.stem, seen, whole)
    write(site.made(f"code/{whole.name}"), whole.read_text(encoding="utf-8"))
    file = f'<p><a href="{whole.name}" download>The file {whole.name}</a> needs NumPy alone.</p>\n'
    site.page(_WHOLE, start.title, start.body(file), ("code.js",), start.about)
    addresses = [(address_of(module), module) for module in shown_modules()]
    rooms: dict[str, list[tuple[str, str]]] = {room: [] for room in ROOMS}
    for address, module in addresses:
        page = _Module(module, seen)
        links = siblings.links([module], leave_out=address)
        body = page.body(listed(links)) + in_turn(addresses, address)
        title = f"{module}: {page.title}"
        site.page(address, title, body, ("code.js",), page.about)
        for name in page.names:
            site.index(address_of(module, name), f"{name} ({module})", page.about)
        rooms[next(room for room in ROOMS if module.startswith(f"{room}."))].append((address[5:], title))
    site.page("code/index.html", "The code, annotated", template("code", start=(_WHOLE[5:], start.title), rooms=rooms))


def _is_overload(node: ast.stmt) -> bool:
    """Whether a function is there for the types alone: the one below it has its name, and its code."""
    return isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "overload" for each in node.decorator_list)


class _Module:
    """A module's page. file: of a program besides the package; there only what has a backward pass is mathematics."""

    def __init__(self, module: str, seen: Seen, file: Path | None = None) -> None:
        self.module, self.seen, self.is_program = module, seen, file is not None
        self.file = file_of(module) if file is None else str(file)
        source = Path(self.file).read_text(encoding="utf-8")
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.tree.body = [node for node in self.tree.body if not _is_overload(node)]
        self.words = _words(source)
        self.about = ast.get_docstring(self.tree) or ""
        self.title = self.about.partition("\n")[0].rstrip(".:")
        self.names = [n.name for n in self.tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        self.notes: dict[str, dict[str, str]] = {}

    def body(self, links: str) -> str:
        """The body of the page. links: to pages about the same."""
        entries = list(self._entries())
        return template("module", page=self, links=links, entries=entries, notes=as_script_data(self.notes))

    def _entries(self) -> Iterator[dict[str, Any]]:
        """The functions and the classes, each before its methods."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                yield self._function(node, node.name, "h2")
            elif isinstance(node, ast.ClassDef):
                bases = ", ".join(map(ast.unparse, node.bases))
                heading = f"class {node.name}({bases})" if bases else f"class {node.name}"
                yield {"id": node.name, "heading": heading, "doc": ast.get_docstring(node) or "", "level": "class"}
                for method in (each for each in node.body if isinstance(each, ast.FunctionDef)):
                    yield self._function(method, f"{node.name}.{method.name}", "h3")

    def _function(self, node: Function, name: str, level: str) -> dict[str, Any]:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        shapes = self.seen.shapes.get((self.file, first), {})
        identity = name if name not in self.notes else f"{name}.setter"  # a property and its setter have one name
        self.notes[identity] = shapes
        rows = self._rows(node, first, {name for name, shape in shapes.items() if shape == "one number"})
        found = {"rows": list(rows), "mistakes": mistakes_in(f"{self.module}:{name}")}
        return found | {"id": identity, "heading": name, "doc": ast.get_docstring(node) or "", "level": level}

    def _rows(self, node: Function, first: int, scalars: set[str]) -> Iterator[dict[str, Any]]:
        """A row for each line: the formula of the statement that begins there, and the code."""
        beginning = {each.lineno: each for each in ast.walk(node) if isinstance(each, ast.stmt)}
        documented = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and ast.get_docstring(each)]
        hidden = {n for each in documented for n in range(each.body[0].lineno, (each.body[0].end_lineno or 0) + 1)}
        is_plain = self.is_program and not any(isinstance(each, ast.FunctionDef) for each in node.body)
        known: set[str] = set()
        for number in range(first, (node.end_lineno or first) + 1):
            if number in hidden or not self.lines[number - 1].strip():
                continue
            begins = beginning.get(number)
            line = ex.statement(begins) if isinstance(begins, ast.Assign | ast.AugAssign | ast.AnnAssign) else None
            is_kept = is_plain or (self.is_program and begins is not None and _keeps_books(begins))
            yield {
                "number": number,
                "binds": [] if line is None else ex.names(*line.targets),
                "formula": _formula(line, scalars) if line and not is_kept else "",
                "code": self._code(number, node.col_offset, known),
                "link": self.seen.steps.get((self.file, number)),
            }

    def _code(self, number: int, indent: int, known: set[str]) -> str:
        """A line with its names marked. The first time that a name occurs, the keyboard reaches it."""
        line, out, end = self.lines[number - 1], [], indent
        for start, stop, kind in self.words.get(number, []):
            text = html.escape(line[start:stop])
            out.append(html.escape(line[end:start]))
            if kind == "name":
                reached = "" if text in known else ' tabindex="0" role="button"'
                known.add(text)
                out.append(f'<span data-name="{text}"{reached}>{text}</span>')
            else:
                out.append(f'<span class="{kind}">{text}</span>')
            end = stop
        return "".join(out) + html.escape(line[end:])


def _words(source: str) -> dict[int, list[tuple[int, int, str]]]:
    """By line, the places of names, keywords, strings and comments that lie on one line."""
    found: dict[int, list[tuple[int, int, str]]] = {}
    kinds = {tokenize.COMMENT: "comment", tokenize.STRING: "string", tokenize.NAME: "name"}
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = kinds.get(token.type)
        if kind == "name" and (keyword.iskeyword(token.string) or previous == "."):
            kind = "keyword" if previous != "." else None
        if kind and token.start[0] == token.end[0]:
            found.setdefault(token.start[0], []).append((token.start[1], token.end[1], kind))
        previous = token.string
    return found


def _keeps_books(node: ast.stmt) -> bool:
    """Whether a line looks something up by its name, or calls what a list holds: there is no formula for that."""
    parts = list(ast.walk(node))
    looks_up = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in parts)
    return looks_up or any(isinstance(each, ast.Call) and isinstance(each.func, ast.Subscript) for each in parts)


def _formula(line: ex.Statement, scalars: set[str]) -> str:
    """The formula of an assignment that computes something; "" for checks and the like."""
    if isinstance(line.node, ast.AnnAssign) or any(isinstance(part.node, _NO_FORMULA) for part in line.everything):
        return ""
    if isinstance(line.value, ex.Applied) and line.value.name.startswith("check"):
        return ""
    row = mathml.Formula(scalars).statement(line)
    if row is None:
        return ""
    element = mathml.block(row)
    element.set("display", "inline")
    scrolls = ' tabindex="0"' if len("".join(element.itertext())) > _SHORT else ""
    return f'<div class="formula"{scrolls}>{ElementTree.tostring(element, encoding="unicode")}</div>'
