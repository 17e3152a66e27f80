"""`check_gradients(f, *inputs)`: for tests of functions in any form. A failure says what is wrong."""

import contextlib
import functools
import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...core.arrays.boundary import check_flags
from ..trace.values import as_numpy, is_array
from ..verify import arguments as given
from ..verify.anew import TWICE
from ..verify.catalogue import known_ops
from ..verify.contract import CHANGED
from ..verify.foreign import copied_array
from ..verify.gradients import gradients
from ..verify.report import HIDDEN, Report, Row
from .conventions import FROM_THE_FIRST_KEY
from .diagnosis import Diagnosis, diagnose
from .from_jax import from_jax
from .from_pair import from_pair
from .from_torch import from_torch, kept_in
from .other_forms import first_output
from .results import OUTPUT

_OF_JAX = ("jax.", "jaxlib.", "equinox.", "flax.")  # whose functions and modules may be given arrays of NumPy
_SETTINGS = inspect.signature(gradients).parameters.keys() - {"f", "inputs", "options"}


def check_gradients(
    f: Any,
    *inputs: Any,
    op: str | None = None,
    op_options: dict[str, Any] | None = None,
    everything: bool = False,
    **options: Any,
) -> Report:
    """Raise AssertionError unless all gradients of f are right. Returns the report of `verify.gradients`.

    f: a function of tensors or of jax arrays (if the inputs are such), a torch.nn.Module or torch.autograd.Function, a
    tuple of forward and backward, an object with these methods, or a function of our form. See `from_torch`,
    `from_jax` and `from_pair`. If the tensors are float32 and f runs in no other dtype, it is checked as closely as
    float32 allows. options: for `verify.gradients`, for f, or for the op if f does not take them.

    op: the name of the op that f should compute, such as "attention". Then its (first) output must be the op's; without
    `op`, a backward that is right for a wrong forward passes. op_options: options for the op alone, such as
    {"eps": 1e-6}. The parameters of a module are arguments of the op. The conventions of others are tried (causal or
    not, (B, T, H, d), grouped queries, masks of 0 and 1, weights stored as (out, in) and so on), and a note in the
    report names those in which f is right: see check/referee/conventions.py.

    The message names the wrong gradients, the known mistake that has the same results as f, if there is one, and the
    worst entry, says in which pattern gradients or the output are wrong, and ends with the table. Without `op`, the
    mistakes of all ops with the same output are tried. everything: fail as well if something was not checked, such as
    a parameter whose gradient was not found; the first line of the report names it. Raises ValueError for an op that
    does not exist, for op_options that it does not take, and if f does not run.
    """
    __tracebackhide__ = True
    check_flags("check_gradients", everything=everything)
    if op is not None and op not in known_ops():
        raise ValueError(f"check_gradients: there is no op {op!r}; expected one of {', '.join(sorted(known_ops()))}")
    if unknown := (op_options or {}).keys() - (inspect.signature(known_ops()[op]).parameters if op else {}):
        raise ValueError(f"check_gradients: op_options: {', '.join(sorted(unknown))} is no option of op={op!r}")
    leaves = [leaf for x in inputs for _, leaf in given.leaves_of("", x)]
    try:
        form = _in_our_form(f, leaves, "float64")
        for_f, for_op = _split(form, op, options)
        form, report = _checked(f, form, leaves, inputs, for_f)
    except (TypeError, ValueError) as error:  # report the problem without the traceback through the checker
        raise type(error)(str(error)) from error.__cause__
    own = {key: x for key, x in (for_f | report.options).items() if key not in _SETTINGS} | for_op | (op_options or {})
    inputs = report.inputs or inputs
    if op is not None and (others := getattr(form, "shapes", [])[1:]):
        values = [(f"the values of output[{i}]", f"{op} has one output") for i, _ in enumerate(others, 1)]
        report = replace(report, left_out=(*report.left_out, *values))
    if report.ok and op is None:
        report.assert_ok(everything)
        return report
    answer = _Answer(form, inputs, own, op, report.ok and any(row.kinks for row in report.rows))
    if report.ok and answer.right is not None:  # an op is right for repeated ids, too
        report.assert_ok(everything or any(why.startswith(TWICE) for _, why in report.left_out))
        return replace(report, note=" ".join(filter(None, [report.note, _agreement(answer.right)])))
    raise AssertionError("\n".join(_message(report, answer, op)))


def _split(form: Any, op: str | None, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options for f and the check, and those that only the op takes."""
    try:
        taken = inspect.signature(form).parameters
    except (TypeError, ValueError):
        return dict(options), {}
    if op is None or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return dict(options), {}
    alone = inspect.signature(known_ops()[op]).parameters.keys() & options.keys() - taken.keys() - _SETTINGS
    return {k: x for k, x in options.items() if k not in alone}, {k: x for k, x in options.items() if k in alone}


class _Answer:
    """What f does compared with an op, or with all. at_kinks: its gradients are right, and some are one of many."""

    def __init__(
        self, form: Any, inputs: tuple[Any, ...], options: dict[str, Any], op: str | None, at_kinks: bool
    ) -> None:
        self.right: Diagnosis | None = None
        self.known: tuple[str, Diagnosis] | None = None  # where, and what f does there
        self.compared: Diagnosis | None = None
        self.problem = ""  # why nothing could be compared
        for where, found in self._diagnoses(form, inputs, options, op):
            self.compared = self.compared or found
            if found.right or (at_kinks and OUTPUT not in found.differing):
                self.right = found
                return
            if op is None and OUTPUT in found.differing:
                continue  # another function, such as BatchNorm, which is no LayerNorm with a mistake
            if found.mistakes and (self.known is None or found.shared == "all" != self.known[1].shared):
                self.known = (where, found)
                if found.shared == "all":
                    return

    def _diagnoses(
        self, f: Any, inputs: tuple[Any, ...], options: dict[str, Any], op: str | None
    ) -> Iterator[tuple[str, Diagnosis]]:
        """What f, or its first output, does compared with this op, or with all, and on which inputs, in words."""
        f = first_output(f)
        for name, known in [(op, known_ops()[op])] if op else sorted(known_ops().items()):
            taken = inspect.signature(known).parameters
            here = {key: x for key, x in options.items() if key in taken or is_array(copied_array(x))}
            ways: list[tuple[str, Any, dict[str, Any]]] = [("On these inputs", inputs, {})]
            if "causal" in taken and options.get("causal", True):
                # A causal mask begins at the first key or ends at the last; with as many keys as queries both agree.
                ways += [("With as many keys as queries", cut, {"causal": True}) for cut in _of_equal_lengths(inputs)]
            for where, arrays, more in ways:
                try:
                    found = diagnose(f, name, *arrays, **here | more)
                except Exception as error:  # not an op for such inputs
                    self.problem = self.problem or f"{error}"
                    continue
                yield where, found
                if OUTPUT not in found.differing and FROM_THE_FIRST_KEY not in found.conventions:
                    break  # it was read as it is meant


def _agreement(found: Diagnosis) -> str:
    """In which conventions f is right; "" where none is needed."""
    read = f"Its output is that of {found.op}: {'; '.join(found.conventions)}." if found.conventions else ""
    return " ".join(filter(None, [read, found.remark]))


def _message(report: Report, answer: _Answer, op: str | None) -> Iterator[str]:
    name = report.name.replace("<lambda>", "the function")
    found = answer.known[1] if answer.known else answer.compared if op else None
    read = "; ".join(found.conventions) if found else ""
    read = read and f"{'Its call was read so' if answer.known else 'The nearest way to read its call'}: {read}."
    if report.ok and found is None:
        right = f"{name}: its gradients are right for its output"
        yield f"{right}, but nothing could be compared with {op}: {answer.problem}"
        return
    if report.ok:
        yield f"{name}: its gradients are right for its output, but its output is not that of {op}"
        yield from filter(None, [_sentence(answer.known, op), read, found.gap if found else ""])
        return
    yield f"{name}: {_wrong(report)}{report.but}"
    named = _sentence(answer.known, op) if any(row.is_wrong for row in report.rows) else ""
    yield from filter(None, [named, read, found.remark if found else ""])
    yield _told(_worst(report))
    yield from dict.fromkeys(row.pattern for row in report.rows if row.pattern and row.kind != "intermediate")
    shown = [row for row in report.rows if row.checked or not row.ok]
    yield str(replace(report, rows=tuple(shown))).split("\n", 1)[1]
    yield from dict.fromkeys(_without_place(row.name) + f": {row.problem}" for row in report.rows if row not in shown)


def _checked(
    f: Any, form: Any, leaves: list[Any], inputs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, Report]:
    """The function in our form, and the report on it: in float64, or in the widest dtype that it takes."""
    dtypes = {str(x.dtype).rpartition(".")[2] for x in leaves if hasattr(x, "dtype")}
    half = next((dtype for dtype in ("bfloat16", "float16") if dtype in dtypes), None)
    if half and form is not f:
        in_torch = any(as_numpy(x) is not x for x in leaves)
        keeping = functools.partial(kept_in, half) if in_torch else contextlib.nullcontext
        form.as_given = half, _in_our_form(f, leaves, half), keeping
    try:
        return form, gradients(form, *inputs, **options)
    except (TypeError, ValueError) as error:
        if form is f:
            raise
        narrow_ones = half or "float32" in dtypes or any(said in str(error) for said in ("computes in", "not run"))
        for dtype in [*(["float32"] if narrow_ones else []), *([half] if half else [])]:
            try:
                narrow = _in_our_form(f, leaves, dtype)
                return narrow, gradients(narrow, *inputs, **options)
            except (TypeError, ValueError):
                continue  # it does not run in this dtype either: say why it does not run in float64
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
    if any(copied_array(x) is not x for x in leaves) or any(name.startswith(_OF_JAX) for name in origin):
        return from_jax(f, dtype)
    if hasattr(f, "forward") and hasattr(f, "backward"):
        return from_pair(f, dtype=dtype)
    return f


def _worst(report: Report) -> Row:
    """The worst row: that of an input or parameter if one is wrong, because an intermediate only shows the place."""
    wrong = [row for row in report.rows if row.is_wrong] or [row for row in report.rows if not row.ok]
    final = [row for row in wrong if row.kind != "intermediate"]
    return max(final or wrong, key=lambda row: row.error)


def _wrong(report: Report) -> str:
    """In words, which gradients of inputs and parameters are wrong or cannot be seen, and which inside are wrong."""
    wrong = [row for row in report.rows if row.is_wrong]
    given_ones = {row.name for row in report.rows if row.kind != "intermediate"}
    in_place = [row.name for row in wrong if row.problem.startswith(CHANGED)]
    wrong = [row for row in wrong if row.problem != CHANGED]
    names = [f"d{row.name}" for row in wrong if row.kind != "intermediate"]
    inside = dict.fromkeys(_without_place(row.name) for row in wrong if row.kind == "intermediate")
    inside = dict.fromkeys(name for name in inside if name.rpartition(".")[2] not in given_ones)
    told = [f"{', '.join(in_place)} {'was' if len(in_place) == 1 else 'were'} changed in place"] if in_place else []
    told += [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} wrong"] if names else []
    told += [f"the gradient of {', '.join(inside)} is wrong"] if inside else []
    hidden = [f"d{row.name}" for row in report.rows if row.is_hidden and row.kind != "intermediate"]
    told += [f"{', '.join(hidden)} cannot be seen: {HIDDEN}"] if hidden else []
    return "; ".join(told)


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
    name = found.mistakes[0].name
    if found.shared == "each its part":
        told = " And: ".join(f"{mistake.sentence} ({mistake.name})" for mistake in found.mistakes)
        return f"{where} it does what {found.op} does with known mistakes: {told} Its output is right."
    told = " Or: ".join(mistake.sentence for mistake in found.mistakes[:2])
    if found.shared != "all":
        return f"{where} its output is that of {found.op} with a known mistake: {told} ({name})"
    output = "wrong too" if OUTPUT in found.differing else "right"
    return f"{where} it does what {found.op} does with a known mistake: {told} ({name}) Its output is {output}."


def _of_equal_lengths(inputs: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The inputs (..., T, d), cut to the shortest T, if they differ in it. Numbers, flags and None stay as they are."""
    arrays = [copied_array(x) for x in inputs]
    long = [is_array(x) and x.ndim > 1 for x in arrays]
    lengths = {x.shape[-2] for x, cut in zip(arrays, long, strict=True) if cut}
    if len(lengths) > 1:
        yield [x[..., : min(lengths), :] if cut else x for x, cut in zip(arrays, long, strict=True)]
