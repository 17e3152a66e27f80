"""What a pullback keeps alive: the memory that a forward pass keeps for its backward pass.

    y, backward = attention(q, k, v)
    print(saved(backward))

A pullback is a closure, so the arrays that it needs are in its cells, and in those of the pullbacks that it will call.
"""

import functools
import html
import inspect
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....check.trace.values import is_array
from ....core.arrays.strict import StrictArray
from ....core.layers import Module, Parameter


@dataclass(frozen=True)
class SavedArray:
    """One buffer that is kept alive. names: every name that a pullback has for it or for a view of it."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    parameter: bool


@dataclass(frozen=True)
class Saved:
    """The buffers that a pullback keeps alive: `.rows`, largest first; `.total`, the bytes of all but the parameters;
    and `.parameters`, the bytes of the parameters, which live on anyway.
    """

    rows: tuple[SavedArray, ...]

    @property
    def total(self) -> int:
        """Bytes of inputs and activations."""
        return sum(row.nbytes for row in self.rows if not row.parameter)

    @property
    def parameters(self) -> int:
        """Bytes of parameters."""
        return sum(row.nbytes for row in self.rows if row.parameter)

    def _lines(self) -> list[tuple[str, str, str, str]]:
        """The lines of the table. Arrays with equal names and shapes, as in the layers of a stack, share a line."""
        groups = Counter(self.rows)
        lines = []
        for row in sorted(groups, key=lambda row: row.parameter):
            times = f" × {groups[row]}" if groups[row] > 1 else ""
            size, kind = _bytes(groups[row] * row.nbytes), "parameter" if row.parameter else ""
            lines.append((", ".join(row.names), f"{row.shape} {row.dtype}{times}", size, kind))
        return lines

    def _summary(self) -> str:
        return f"{_bytes(self.total)} kept for backward, and {_bytes(self.parameters)} of parameters"

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max((len(line[i]) for line in lines), default=0) for i in range(3)]
        table = [f"{n:<{widths[0]}}  {s:<{widths[1]}}  {b:>{widths[2]}}  {k}".rstrip() for n, s, b, k in lines]
        return "\n".join([*table, self._summary()])

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in self._lines()
        )
        head = "<tr><th>name</th><th>shape</th><th>size</th><th></th></tr>"
        return f"<p>{html.escape(self._summary())}</p><table>{head}{rows}</table>"


def saved(backward: Any) -> Saved:
    """List the arrays that a pullback keeps alive. Each buffer counts once and whole, even if only a view is held.

    The search follows closures, decorated and partial functions, methods, containers and the attributes of objects.
    Raises TypeError if `backward` cannot be called.
    """
    if not callable(backward):
        raise TypeError(f"saved: expected a pullback, got {type(backward).__name__}")
    found: dict[int, list[tuple[str, Any, bool]]] = {}  # by buffer
    for each in _held("", backward, set()):
        found.setdefault(id(each[1]), []).append(each)
    rows = []
    for holders in found.values():
        names, (root, *_), of_parameters = zip(*holders, strict=True)
        names = tuple(dict.fromkeys(names))
        rows.append(SavedArray(names, tuple(root.shape), str(root.dtype), root.nbytes, any(of_parameters)))
    return Saved(tuple(sorted(rows, key=lambda row: -row.nbytes)))


def _held(name: str, holder: Any, seen: set[int]) -> Iterator[tuple[str, Any, bool]]:
    """(name, buffer, whether it is a parameter's) for every array that can be reached from `holder`."""
    if is_array(holder):
        yield name, _root(holder), False
    elif id(holder) not in seen:
        seen.add(id(holder))
        if isinstance(holder, Parameter):
            yield name, _root(holder.value), True
        else:
            for inner, part in _parts(name, holder):
                yield from _held(inner, part, seen)


def _parts(name: str, holder: Any) -> Iterator[tuple[str, Any]]:
    """What a holder holds, each with its name."""
    match holder:
        case Module():
            yield from ((f"{type(holder).__name__}.{path}", parameter) for path, parameter in holder.parameters())
        case types.FunctionType():
            owner = holder.__qualname__.partition(".<locals>")[0].removesuffix(".__call__")
            cells = zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
            empty = types.CellType()  # a variable that was never set
            yield from ((f"{owner}.{variable}", cell.cell_contents) for variable, cell in cells if cell != empty)
            arguments = inspect.signature(holder, follow_wrapped=False).parameters.values()
            yield from ((f"{owner}.{argument.name}", argument.default) for argument in arguments)
        case types.MethodType():
            yield from ((name, holder.__func__), (name, holder.__self__))
        case functools.partial():
            yield from ((name, part) for part in (holder.func, *holder.args, *holder.keywords.values()))
        case dict():
            yield from ((f"{name}[{key!r}]", part) for key, part in holder.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(holder))
        case object(__dict__=attributes) if not isinstance(holder, type | types.ModuleType):
            yield from ((f"{type(holder).__name__}.{attribute}", part) for attribute, part in attributes.items())


def _root(array: Any) -> Any:
    """The array that owns the memory of this one, which may be a view."""
    if isinstance(array, StrictArray):
        array = array._numpy
    while is_array(base := getattr(array, "base", None)):
        array = base
    return array


def _bytes(n: int) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"
