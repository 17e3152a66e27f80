"""Chat templates: a Jinja program that comes with a tokenizer and writes a conversation in the form the model expects.

It runs in Jinja's sandbox for untrusted templates: it can read its input, but neither change it nor reach a file. The
sandbox limits neither time nor memory, so a budget does. Each turn of a loop and each call of a macro costs the length
of the template. Each call, filter, operator and output costs the product of the sizes of its arguments, which bounds
the size of its result. The size of a text is its number of characters, that of a number is the number itself, and that
of a list is the sum over its parts. No step between two such operations takes long, so they also check the clock.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.text.tokenizer import load_library

_MOST = 100_000_000  # the budget
_LEAST = 200  # the least cost of any operation
_SECONDS = 5.0
_LONGEST = 200_000  # characters of a template
_PART = 100  # the size of each part of a list or a dict


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
    """The size of a value. Counting stops at _MOST, because a list may contain the same long list many times."""
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
    """The text of a conversation, up to the model's answer. messages: each has a "role" and a "content".

    special: the values that the template can use by name, such as bos_token. Raises ModuleNotFoundError without Jinja,
    and ValueError where the template is wrong, takes too long or too much memory, or refuses these messages.
    """
    if len(template) > _LONGEST:
        raise ValueError(f"the chat template has {len(template):,} characters, but may have at most {_LONGEST:,}")
    load_library("a chat template", "models", "jinja2")
    sandbox = _sandbox(len(template))
    try:
        return sandbox.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=True, **special
        )
    except Exception as error:  # any error can come out of a program that others wrote
        raise ValueError(f"the chat template fails: {type(error).__name__}: {str(error)[:200]}") from error


def _sandbox(length: int) -> Any:
    """The environment in which a template of this length runs."""
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
                _refuse("it formats a text by %, which is not allowed")
            budget.given(left, right)
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # the names as in Jinja
            if getattr(__obj, "__name__", "") in ("format", "format_map"):
                _refuse("it formats a text by format, which is not allowed")
            budget.given(getattr(__obj, "__self__", None), *args, *kwargs.values())
            return super().call(__context, __obj, *args, **kwargs)

        def _parse(self, *source: Any) -> Any:
            """The program, with counting added to every loop and macro, and to every operation that builds a value."""
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
        @functools.wraps(function)  # wraps also copies Jinja's mark that it wants the context
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
    left_out = ("format", "urlize", "wordwrap", "pprint")  # their width is inside a text, or they are slow
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
        _refuse("strftime_now takes a short format without digits")
    return datetime.datetime.now().strftime(form)


def _refuse(message: Any) -> None:
    raise ValueError(message)
