"""`check_gradients(f, *inputs)`: for tests of functions in any form. A failure says what is wrong."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..trace.foreign import as_numpy
from ..trace.values import is_float_array
from ..verify import arguments as given
from ..verify.catalogue import known_ops
from ..verify.contract import CHANGED
from ..verify.foreign import copied_array
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

    op: the name of the op that f should compute, such as "attention". Then its output must be that of the op, for the
    same options or for `causal=True`; without `op`, a backward that is right for a wrong forward passes. If there are
    not as many keys as queries, a causal mask may end at the last key, as ours does, or begin at the first one, which
    is compared on as many keys as queries.

    The message names the wrong gradients, the known mistake that has the same results as f, if there is one, and the
    worst entry; then comes the table. Without `op`, the mistakes of all ops that take such inputs are tried. Raises
    ValueError for an op that does not exist, and if f does not run.
    """
    __tracebackhide__ = True
    if op is not None and op not in known_ops():
        raise ValueError(f"check_gradients: there is no op {op!r}; expected one of {', '.join(sorted(known_ops()))}")
    try:
        form, report = _checked(f, inputs, options)
    except (TypeError, ValueError) as error:  # report the problem without the traceback through the checker
        raise type(error)(str(error)) from error.__cause__
    own = {key: x for key, x in options.items() if key not in _SETTINGS}
    if report.ok and (op is None or any(found.right for _, found in _diagnoses(form, inputs, own, op))):
        return report
    known = next((each for each in _diagnoses(form, inputs, own, op) if each[1].mistakes), None)
    raise AssertionError("\n".join(_message(report, known, op)))


def _message(report: Report, known: tuple[str, Diagnosis] | None, op: str | None) -> Iterator[str]:
    name = report.name.replace("<lambda>", "the function")
    if report.ok:
        yield f"{name}: its gradients are right for its output, but its output is not that of {op}"
        yield _sentence(known, op)
        return
    yield f"{name}: {_wrong(report)}"
    yield _sentence(known, op)
    yield _told(_worst(report))
    shown = [row for row in report.rows if row.checked or not row.ok]
    yield str(replace(report, rows=tuple(shown))).split("\n", 1)[1]
    yield from dict.fromkeys(_without_place(row.name) + f": {row.problem}" for row in report.rows if row not in shown)


def _checked(f: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Report]:
    """The function in our form, and the report on it."""
    leaves = [leaf for x in inputs for _, leaf in given.leaves_of("", x)]
    narrow = any(copied_array(x) is not x and str(x.dtype).endswith("float32") for x in leaves)
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
    if any(copied_array(x) is not x for x in leaves):
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
    """In words, which gradients of inputs and parameters are wrong, and which of other values inside."""
    wrong = [row for row in report.rows if not row.ok]
    given_ones = {row.name for row in report.rows if row.kind != "intermediate"}
    in_place = [row.name for row in wrong if row.problem.startswith(CHANGED)]
    wrong = [row for row in wrong if row.problem != CHANGED]
    names = [f"d{row.name}" for row in wrong if row.kind != "intermediate"]
    inside = dict.fromkeys(_without_place(row.name) for row in wrong if row.kind == "intermediate")
    inside = dict.fromkeys(name for name in inside if name.rpartition(".")[2] not in given_ones)
    told = [f"{', '.join(in_place)} {'was' if len(in_place) == 1 else 'were'} changed in place"] if in_place else []
    told += [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} wrong"] if names else []
    return "; ".join(told + ([f"the gradient of {', '.join(inside)} is wrong"] if inside else []))


def _without_place(title: str) -> str:
    return title.partition("[")[0]


def _told(row: Row) -> str:
    if not row.checked or (row.problem and math.isinf(row.error)):  # right numbers, but something else is wrong
        return f"worst: {row.name}: {row.problem or 'wrong'}"
    place = "" if row.where is None else "[" + ", ".join(map(str, row.where)) + "]"
    along = "" if row.where is not None else " along a random direction"
    return f"worst: d{row.name}{place}{along} is {row.hand:.8g} by hand and {row.numerical:.8g} by finite differences"


def _sentence(known: tuple[str, Diagnosis] | None, op: str | None) -> str:
    if known is None:
        return f"It does what no known mistake of {op or 'any op'} does."
    where, found = known
    told = " Or: ".join(mistake.sentence for mistake in found.mistakes[:2])
    output = "wrong too" if "the output" in found.differing else "right"
    start = f"{where} it does what {found.op} does with a known mistake"
    return f"{start}: {told} ({found.mistakes[0].name}) Its output is {output}."


def _diagnoses(
    f: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any], op: str | None
) -> Iterator[tuple[str, Diagnosis]]:
    """What f does compared with this op, or with all, and on which inputs, in words."""
    for name, known in [(op, known_ops()[op])] if op else sorted(known_ops().items()):
        taken = inspect.signature(known).parameters
        ways: list[tuple[str, Any, dict[str, Any]]] = [("On these inputs", inputs, {})]
        if "causal" in taken and options.get("causal", True):
            # A causal mask begins at the first key or ends at the last: with as many keys as queries both are the same.
            ways += [("On these inputs", inputs, {"causal": True})]
            ways += [("With as many keys as queries", cut, {"causal": True}) for cut in _of_equal_lengths(inputs)]
        for where, arrays, more in ways:
            try:
                found = diagnose(f, name, *arrays, **{key: x for key, x in options.items() if key in taken} | more)
            except Exception:  # not an op for such inputs
                continue
            yield where, found


def _of_equal_lengths(inputs: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The inputs (..., T, d), cut to the shortest T, if they differ in it."""
    arrays = [copied_array(x) for x in inputs]
    lengths = {x.shape[-2] for x in arrays if is_float_array(x) and x.ndim > 1}
    if len(lengths) > 1:
        yield [x[..., : min(lengths), :] if is_float_array(x) and x.ndim > 1 else x for x in arrays]
