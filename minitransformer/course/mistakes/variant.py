"""A wrong variant: one snippet of one function's source, exchanged for a mistake that people make."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import linecache
import operator
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class WrongVariant:
    """A mistake that can be put in place of the right code for a while: `with variant.applied(): ...`

    target names the function within the package: "ops.softmax:softmax", "layers.residual:Residual._pre". In its body
    `old` stands exactly once and is replaced by `new`. mistake: a sentence that tells a student what is wrong.

    caught_by: "gradients" where finite differences find the mistake; then each case of the catalogue that `cases` names
    rejects it. "values" where forward and backward are wrong together: then each of these cases accepts it, and only
    independent values, or a look at which inputs an output depends on, can tell.
    """

    name: str
    target: str
    old: str
    new: str
    mistake: str
    cases: tuple[str, ...]
    caught_by: str = "gradients"

    @property
    def wrong_source(self) -> str:
        """The source of the target's module, with the mistake in it. Raises ValueError where `old` does not fit."""
        source = inspect.getsource(self._module)
        node = self._definition(source)
        lines = source.splitlines(keepends=True)
        start, end = node.body[0].lineno - 1, node.end_lineno
        body = "".join(lines[start:end])
        if body.count(self.old) != 1:
            raise ValueError(
                f"wrong variant {self.name}: its snippet must stand exactly once in the body of {self.target}, "
                f"but it stands there {body.count(self.old)} times: {self.old!r}"
            )
        return "".join([*lines[:start], body.replace(self.old, self.new), *lines[end:]])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Run the wrong code wherever the target is called, and the right code again afterwards, also after an error.

        The function keeps its identity and gets another code object; so whoever holds it (a dictionary, a default
        argument, an instance made before) runs the mistake as well. A pullback keeps the code it was made with. The
        change is seen by all threads, so it is not for use while another one computes. A fast twin of
        the target does not run it.
        """
        source = self.wrong_source
        function = inspect.unwrap(operator.attrgetter(".".join(self._path))(self._module))
        right = function.__code__
        filename = f"{right.co_filename} [{self.name}]"  # in the same folder still, so that tracing goes on watching it
        code = compile(source, filename, "exec", dont_inherit=True)
        for name in self._path:
            inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
            code = next(const for const in inner if const.co_name == name)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)  # for tracebacks
        function.__code__ = code
        _forget_kept_results()
        try:
            yield
        finally:
            function.__code__ = right
            _forget_kept_results()

    @property
    def _module(self) -> types.ModuleType:
        return importlib.import_module(f"{_PACKAGE}.{self.target.partition(':')[0]}")

    @property
    def _path(self) -> list[str]:
        return self.target.partition(":")[2].split(".")

    def _definition(self, source: str) -> ast.FunctionDef:
        node: ast.AST = ast.parse(source)
        for name in self._path:
            inner = (n for n in getattr(node, "body", []) if isinstance(n, ast.ClassDef | ast.FunctionDef))
            found = next((n for n in inner if n.name == name), None)
            if found is None:
                raise ValueError(f"wrong variant {self.name}: there is no {self.target}")
            node = found
        if not isinstance(node, ast.FunctionDef):
            raise ValueError(f"wrong variant {self.name}: {self.target} must be a function or a method")
        return node


def _forget_kept_results() -> None:
    """Empty every functools.lru_cache of the package, so that right and wrong results are not taken for each other."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for attribute in list(vars(module).values()):
                if hasattr(attribute, "cache_clear"):
                    attribute.cache_clear()
