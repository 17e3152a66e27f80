"""`check_gradients(f, *inputs)`: for tests of functions in any form. A failure says what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..trace.foreign import as_numpy
from ..verify import arguments as given
from ..verify.catalogue import known_ops
from ..verify.foreign import as_array
from ..verify.gradients import gradients
from ..verify.report import Report, Row
from .diagnosis import Diagnosis, diagnose
from .from_jax import from_jax
from .from_pair import from_pair
from .from_torch import from_torch

_SETTINGS = inspect.signature(gradients).parameters.keys() - {"f", "inputs", "options"}


def check_gradients(f: Any, *inputs: Any, op: str | None = None, **options: Any) -> Report:
    """Raise AssertionError unless all gradients of f are right. Returns the report of `verify.gradients`.

    f: a function of tensors or of jax arrays (if the inputs are such), a torch.nn.Module or torch.autograd.Function, a
    tuple of forward and backward, an object with these methods, or a function of our form. See `from_torch`,
    `from_jax` and `from_pair`. If the tensors are float32 and f runs in no other dtype, it is checked as closely as
    float32 allows. options: for `verify.gradients` or for f.

    The message names the wrong gradients, the known mistake that has the same results as f, if there is one, and the
    worst entry; then comes the table, without the intermediates that could not be checked. op: the name of the op that
    f should compute, for this comparison; without it, all ops that take such inputs are tried.
    """
    __tracebackhide__ = True
    try:
        form, report = _checked(f, inputs, options)
    except (TypeError, ValueError) as error:  # report the problem without the traceback through the checker
        raise type(error)(str(error)) from error.__cause__
    if report.ok:
        return report
    own = {key: x for key, x in options.items() if key not in _SETTINGS}
    known = next(_named(form, inputs, own, op), None)
    shown = [row for row in report.rows if row.checked or not row.ok]
    left = len(report.rows) - len(shown)
    _, table = str(replace(report, rows=tuple(shown))).split("\n", 1)
    said = [_wrong(report), _sentence(known), _told(_worst(report)), table]
    said += [f"{left} more could not be checked; the report of verify.gradients says why"] if left else []
    raise AssertionError("\n".join(said))


def _checked(f: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Report]:
    """The function in our form, and the report on it."""
    leaves = [leaf for x in inputs for _, leaf in given.leaves_of("", x)]
    narrow = any(as_array(x) is not x and str(x.dtype).endswith("float32") for x in leaves)
    form = _in_our_form(f, leaves, "float64")
    try:
        return form, gradients(form, *inputs, **options)
    except (TypeError, ValueError):
        if not narrow:
            raise
        try:
            single = _in_our_form(f, leaves, "float32")
            return single, gradients(single, *inputs, **options)
        except (TypeError, ValueError):
            pass  # it does not run in float32 either: say why it does not run in float64
        raise


def _in_our_form(f: Any, leaves: list[Any], dtype: str) -> Any:
    if getattr(f, "separate", False):
        return f
    if isinstance(f, tuple):
        forward, backward = f
        return from_pair(forward, backward, dtype)
    origin = [*(kind.__module__ for kind in (f if isinstance(f, type) else type(f)).__mro__)]
    if any(as_numpy(x) is not x for x in leaves) or any(name.startswith("torch.") for name in origin):
        return from_torch(f, dtype)
    if any(as_array(x) is not x for x in leaves):
        return from_jax(f, dtype)
    if hasattr(f, "forward") and hasattr(f, "backward"):
        return from_pair(f, dtype=dtype)
    return f


def _worst(report: Report) -> Row:
    """The worst row: that of an input or parameter if one is wrong, because an intermediate only shows the place."""
    wrong = [row for row in report.rows if not row.ok]
    final = [row for row in wrong if row.kind != "intermediate"]
    return max(final or wrong, key=lambda row: row.error)


def _wrong(report: Report) -> str:
    """The wrong gradients of inputs and parameters in words; those of intermediates if only they are wrong."""
    wrong = [row for row in report.rows if not row.ok]
    names = [f"d{row.name}" for row in wrong if row.kind != "intermediate"] or [f"d{row.name}" for row in wrong]
    name = report.name.replace("<lambda>", "the function")
    return f"{name}: {', '.join(names)} {'is' if len(names) == 1 else 'are'} wrong"


def _told(row: Row) -> str:
    if not row.checked:
        return f"worst: {row.name}: {row.problem or 'wrong'}"
    place = "" if row.where is None else "[" + ", ".join(map(str, row.where)) + "]"
    along = "" if row.where is not None else " along a random direction"
    return f"worst: d{row.name}{place}{along} is {row.hand:.8g} by hand and {row.numerical:.8g} by finite differences"


def _sentence(known: tuple[str, Diagnosis] | None) -> str:
    if known is None:
        return "On these inputs it does what no known mistake does."
    where, found = known
    told = " Or: ".join(mistake.sentence for mistake in found.mistakes[:2])
    output = "wrong too" if "the output" in found.differing else "right"
    start = f"On {where} it does what {found.op} does with a known mistake"
    return f"{start}: {told} ({found.mistakes[0].name}) Its output is {output}."


def _named(
    f: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any], op: str | None
) -> Iterator[tuple[str, Diagnosis]]:
    """The diagnoses that name a mistake of f, as one op or another, with the inputs in words."""
    all_ops = known_ops()
    for name in [op] if op else sorted(all_ops):
        taken = inspect.signature(all_ops[name]).parameters
        ways: list[tuple[str, Any, dict[str, Any]]] = [("these inputs", inputs, {})]
        if "causal" in taken and "causal" not in options:
            ways += [("these inputs", inputs, {"causal": True})]
            # A causal mask begins at the first key or ends at the last: with as many keys as queries both are the same.
            ways += [("as many keys as queries", cut, {"causal": True}) for cut in _of_equal_lengths(inputs)]
        for where, arrays, more in ways:
            try:
                found = diagnose(f, name, *arrays, **{key: x for key, x in options.items() if key in taken}, **more)
            except Exception:  # not an op for such inputs
                continue
            if found.mistakes:
                yield where, found


def _of_equal_lengths(inputs: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The inputs (..., T, d), cut to the shortest T, if they differ in it."""
    arrays = [as_array(x) for x in inputs]
    lengths = {x.shape[-2] for x in arrays if x.ndim > 1}
    if len(lengths) > 1:
        yield [x[..., : min(lengths), :] if x.ndim > 1 else x for x in arrays]
