"""Which statement a line of source belongs to, the text of that statement, and the names that it binds."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
import threading

_PARSING = threading.Lock()


def syntax_tree(source: str) -> ast.Module:
    """ast.parse, by one thread at a time: CPython 3.11 counts its recursion for all threads together and loses count.

    See python/cpython#106905: "AST constructor recursion depth mismatch".
    """
    with _PARSING:
        return ast.parse(source)


def source_of(file: str) -> Source:
    """The source of a file as it is now; empty for code that was typed in a terminal or made by exec."""
    linecache.checkcache(file)
    return _parsed(tuple(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parsed(lines: tuple[str, ...]) -> Source:
    return Source(lines)


class Source:
    """The lines of a file, and for each line the first and last line of the statement that it is part of."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        self._spans: dict[int, tuple[int, int]] = {}
        self._functions: dict[int, tuple[str, ...]] = {}
        try:
            tree = syntax_tree("".join(lines))
        except SyntaxError:
            return
        for node in ast.walk(tree):  # from the outside in, so that the innermost statement overwrites the others
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if isinstance(body, list) and body else (node.end_lineno or node.lineno)
                span = (node.lineno, max(last, node.lineno))  # for a compound statement, only the head
                decorators = [part.lineno for part in getattr(node, "decorator_list", [])]
                for line in range(min([node.lineno, *decorators]), span[1] + 1):
                    self._spans[line] = span

    def first_line(self, line: int) -> int:
        """The line where the statement around `line` begins."""
        return self._spans.get(line, (line, line))[0]

    def statement(self, line: int) -> str:
        """The text, without indentation, of the statement around `line`; for a compound statement, of its head."""
        first, last = self._spans.get(line, (line, line))
        return textwrap.dedent("".join(self.lines[first - 1 : last])).rstrip()

    def function(self, first_line: int) -> tuple[str, ...]:
        """The lines of the function whose definition begins at `first_line`."""
        if first_line not in self._functions:
            block = inspect.getblock(self.lines[first_line - 1 :]) if self.lines else []
            self._functions[first_line] = tuple(line.rstrip("\n") for line in block)
        return self._functions[first_line]
