"""Chat templates: how a model wants a conversation written down, a program in Jinja that comes with its tokenizer.

It runs in Jinja's sandbox for programs that nobody vouches for: it can read what it is given, change nothing of it and
reach no file. The sandbox limits neither time nor memory, so a budget does. Each turn of a loop and each call of a
macro costs the length of the template. Each call, filter, operator and output costs the product of the sizes of what it
is given, which bounds the size of what it makes: a text counts its characters, a number itself, a list its parts.
Nothing between two of them takes long, so the clock is read there, too.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_MOST = 100_000_000  # the budget
_LEAST = 200  # that anything costs
_SECONDS = 5.0
_LONGEST = 200_000  # characters of a template
_PART = 100  # what each part of a list or a dict counts


class _Budget:
    def __init__(self) -> None:
        self.spent, self.deadline = 0, time.monotonic() + _SECONDS

    def spend(self, cost: int) -> None:
        self.spent += max(cost, _LEAST)
        if self.spent >= _MOST or time.monotonic() > self.deadline:
            raise RuntimeError("it takes too long, or too much memory")

    def given(self, *values: Any) -> None:
        self.spend(math.prod(max(1, _size(value)) for value in values))


def _size(value: Any) -> int:
    """How large a value is; at least _MOST once it is that large, since the parts of a list may be one list again."""
    size, rest = 0, [value]
    while rest and size < _MOST:
        each = rest.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, int | float):
            size += int(min(abs(each), _MOST)) if each == each else 1
        elif isinstance(each, dict):
            size += _PART * len(each)
            rest += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple):
            size += _PART * len(each)
            rest += each
    return size


def render(template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """The text of a conversation, up to where the model answers. messages: each of a "role" and a "content".

    special: what the template knows by name, such as bos_token. Raises ModuleNotFoundError without Jinja, and
    ValueError where the template is wrong, takes too long or too much memory, or refuses these messages.
    """
    if len(template) > _LONGEST:
        raise ValueError(
            f"the chat template has {len(template):,} characters, and {_LONGEST:,} is the most that is run"
        )
    try:
        sandbox = _sandbox(len(template))
    except ImportError as error:
        raise ModuleNotFoundError(
            'a chat template needs the library jinja2; install it: pip install "minitransformer[models]"'
        ) from error
    try:
        return sandbox.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=True, **special
        )
    except Exception as error:  # of any kind: it is a program of others
        raise ValueError(f"the chat template fails: {type(error).__name__}: {str(error)[:200]}") from error


def _sandbox(length: int) -> Any:
    """The environment that a template of this length runs in."""
    from jinja2 import nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    budget = _Budget()

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

        def turn(self) -> bool:
            budget.spend(length)
            return True

        def kept(self, value: Any) -> Any:
            return value  # call() has counted it

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "%" and isinstance(left, str):
                _refuse("a text is formatted by %, which is not run")
            budget.given(left, right)
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # the names as in Jinja
            if getattr(__obj, "__name__", "") in ("format", "format_map"):
                _refuse("a text is formatted by format, which is not run")
            budget.given(getattr(__obj, "__self__", None), *args, *kwargs.values())
            return super().call(__context, __obj, *args, **kwargs)

        def _parse(self, *source: Any) -> Any:
            """The program, with a turn counted wherever code may run again, and what is put together counted, too."""
            program = super()._parse(*source)

            def method(name: str, *arguments: Any) -> Any:
                return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)

            again: Any = [*program.find_all((nodes.For, nodes.Macro, nodes.CallBlock))]
            for block in again:
                block.body.insert(0, nodes.ExprStmt(method("turn")))
                if isinstance(block, nodes.For) and block.test is not None:
                    block.test = nodes.And(method("turn"), block.test)

            def counted(node: Any) -> Any:
                made = isinstance(node, nodes.Concat | nodes.List | nodes.Tuple | nodes.Dict)
                return method("kept", node) if made and getattr(node, "ctx", "load") == "load" else node

            return _replaced(program, counted)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # also what Jinja notes on it: whether it wants the context
        def run(*values: Any, **options: Any) -> Any:
            budget.given(*values, *options.values())
            return function(*values, **options)

        return run

    def written(value: Any) -> Any:
        budget.given(value)
        return value

    sandbox = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
        autoescape=False,
        finalize=written,
        optimized=False,  # nothing is computed while the template is compiled
    )
    sandbox.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    left_out = ("format", "urlize", "wordwrap", "pprint")  # their width is in a text, or they are slow
    sandbox.filters = {name: counted(f) for name, f in sandbox.filters.items() if name not in left_out}
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    del sandbox.globals["lipsum"]
    return sandbox


def _replaced(node: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of Jinja's nodes with each one changed, from the leaves on."""
    for name, part in list(node.iter_fields()):
        if isinstance(part, list):
            setattr(node, name, [_replaced(each, change) if hasattr(each, "fields") else each for each in part])
        elif hasattr(part, "fields"):
            setattr(node, name, _replaced(part, change))
    return change(node)


def _now(form: str) -> str:
    if len(form) > 100 or any(letter.isdigit() for letter in form):  # a digit may be a width
        _refuse("strftime_now takes a short form without digits")
    return datetime.datetime.now().strftime(form)


def _refuse(message: Any) -> None:
    raise ValueError(message)
