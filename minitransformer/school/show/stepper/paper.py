"""A line as a paper writes it: S = QKᵀ/√d_k for `scores = (q @ k.swapaxes(-1, -2)) * factor`.

symbols.py has the symbols. The rules here rewrite an expression, one part at a time, for the call that was recorded:

    a if test else b, xp.where(test, a, b)    the one that was taken, if it was the same everywhere
    a / temperature, where that is 1          a
    a * factor, with factor = 1.0 / b         a / b; a number of the function's own is written out
    a * a                                     a²
    linear(x, w, b), and a layer that is one  x w + b
    f(x, mask, rng), f another function       f(x): of the arguments only the arrays, of a layer its weight;
                                              where there is none, the numbers, the rows
    axis=-1, axis=-2                          j, i; axes before these two are h and b
    self.project(layer, x, width)             heads(x w + b)
    q_backward(dq), of that projection        Concat(dq) wᵀ
    residual(x), post-norm or pre-norm        LayerNorm(x + FFN(x)), x + FFN(LayerNorm(x))
    self._finish(x), which makes one call     LayerNorm(x)
    x[..., None], x[:, None], x[None, :]      x_i, x_i, x_j
    x[..., w:2 * w], a quarter of the last axis    x with the index "2 of 4"
    softmax_backward(dweights)                the one formula of this pullback, with the names that its caller has
    take_along_axis(x, ids, axis=-1)[..., 0]  x with the index i, ids_i
    concatenate((x, y)), stack((x, y))        Concat(x, y)
    x.reshape(...)                            vec(x) with fewer axes, else split(x); not written where it is done last
    x[..., :t, :]                             x with the index "first 3 rows"
    arange(n)                                 (0, 1, 2)
    x tableᵀ, which a method computes         x Eᵀ
    causal_mask(t_q, t_k)                     j ≤ i
    zeros(n) + x                              x
    arange(n) == ids                          j = ids_i

A line that only gives an array another name has no formula.
"""

import ast
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from ....check.trace.calls import Binding, Call
from . import elements as ml
from . import expressions as ex
from . import mathml
from .naming import as_function
from .paper_linear import AXES, LinearFormula
from .steps import Step, Steps, Summarised
from .symbols import symbol, symbols_of
from .walk import walk_of

_PROJECTIONS = {"query": "q", "key": "k", "value": "v"}  # papers call their weights W_Q, W_K and W_V
_OF_FEED_FORWARD = {"inner": "1", "output": "2"}  # and these W_1 and W_2; W_O is that of attention
_SAME = ("ascontiguousarray", "asarray", "copy", "_as_tuple")
SHORT = 8  # numbers of a count that are written out


def inlined(recording: Steps, step: Step) -> Element | None:
    """The one formula of a pullback that the line calls, with the caller's symbols: dS = A ⊙ (dA − ∑ dA ⊙ A).

    None where there are more formulas, or a value that the caller does not know.
    """
    walk = walk_of(recording, step)
    call = None if walk.statement.value is None else walk.call_of(walk.statement.value)
    if call is None or not call.backward:
        return None
    lines = [other for other in recording.steps_of(call)[1:] if paper(recording, other) is not None]
    if any("reshape(" in other.source for other in lines):  # its axes are not those of the caller
        return None
    try:
        return PaperFormula(recording, lines[0], outside=True).line() if len(lines) == 1 else None
    except KeyError:
        return None


def paper(recording: Steps, step: Step, is_head: bool = False) -> Element | None:
    """The formula as a <math> element; None for a line that computes nothing new."""
    return PaperFormula(recording, step).line(is_head)


def returned(recording: Steps, step: Step) -> Element | None:
    """return dQ, dK: a return of names, which no list of formulas has."""
    line = walk_of(recording, step).statement
    match line:
        case ex.Statement("return", _, ex.Expression() as value):
            parts = ex.inner(value) if ex.is_joined(value, ",") else (value,)
            if all(isinstance(ex.unstarred(part), ex.Name) for part in parts):
                return mathml.block(mathml.Formula.statement(PaperFormula(recording, step), line) or [])
    return None


def parameter(recording: Steps, bound: Binding) -> Element | None:
    """W_O or dW_O: what the caller of a linear map calls its weight W, or the gradient of that; None for the rest."""
    maker = recording.calls[bound.call.forward_call]
    if maker.name == "linear" and maker.parent is not None:
        maker = recording.calls[maker.parent]
    name = bound.name.removeprefix("d")
    around = recording.step_around(maker) if maker.name == "Linear" and name in ("weight", "bias") else None
    made = None if around is None else walk_of(recording, around).applied(maker)
    if around is None or made is None:
        return None
    weight, bias = PaperFormula._parameters(made)
    written = PaperFormula(recording, around).expression(weight if name == "weight" else bias)
    return written if name == bound.name else ml.gradient(written)


class PaperFormula(LinearFormula):
    """The formulas of a step in the symbols of papers."""

    def __init__(self, recording: Steps, step: Step, outside: bool = False) -> None:
        """outside: whether with the symbols of the caller; then line() raises KeyError for a value that has none."""
        super().__init__(recording.scalars(step))
        self.outside = self.low = outside
        self.recording, self.step = recording, step
        self.walk = walk_of(recording, step)
        self.symbols = symbols_of(recording)
        self.seen = self.walk.bound
        self.bound = {bound.name: bound for bound in step.bound}

    def line(self, is_head: bool = False) -> Element | None:
        call = self.recording.calls[self.step.call]
        if is_head:
            arrays = [self.symbols.of(b) for b in self.step.bound if b.value.shape]
            if call.parent is not None or not arrays:
                return None
            name = "backward" if call.backward else self.recording.function_for(call)
            return mathml.block([ml.word(name), ml.bracketed(*ml.separated(arrays))])
        if (whole := inlined(self.recording, self.step)) is not None:
            return whole
        if not self.walk.statement.kind or not any(self.symbols.first(b) is b for b in self.step.bound):
            return None
        parts = self.statement(self.walk.statement)
        return None if parts is None else mathml.block(parts)

    def statement(self, line: ex.Statement) -> list[Element] | None:
        if line.kind == "return":
            return None
        if line.kind != "assign" or line.value is None:
            return super().statement(line)
        equations = self._linear_gradients(line)
        if equations:
            return equations
        target, value = line.targets[0], _unmoved(self.rewritten(line.value))
        if ex.is_joined(target, ",") and ex.is_joined(value, ","):
            kept = [(t, v) for t, v in zip(ex.inner(target), ex.inner(value), strict=True) if not _names_pullback(t)]
            target = ex.Operation(",", tuple(t for t, _ in kept))
            value = ex.Operation(",", tuple(_unmoved(v) for _, v in kept))
        left, right = self._targets(target), self._values(value)
        same = list(map(mathml.as_lists, left)) == list(map(mathml.as_lists, right))  # bias = self.bias.value
        return None if same else [*left, ml.sign("="), *right]

    def _targets(self, target: ex.Expression) -> list[Element]:
        if ex.is_joined(target, ","):  # without *dbias, where there is none
            target = ex.Operation(",", tuple(part for part in ex.inner(target) if not self._is_nothing(part)))
        return super()._targets(target)

    def _is_nothing(self, part: ex.Expression) -> bool:
        name = ex.unstarred(part)
        return isinstance(name, ex.Name) and (name.id == "_" or (name is not part and name.id not in self.bound))

    def expression(self, whole: ex.Expression, within: int = 0) -> Element:
        return super().expression(self.rewritten(whole), within)

    # ---- Rules: each returns another expression, or None where it has nothing to say. ----

    def rewritten(self, whole: ex.Expression) -> ex.Expression:
        for rule in (self._taken, self._passed, self._own_number, self._unscaled, self._product, self._linear):
            if (other := rule(whole)) is not None:
                return self.rewritten(other)
        return whole

    def _is_array(self, part: ex.Expression) -> bool:
        """Whether its value is an array, or several, as far as that can be told."""
        try:
            return _holds_arrays(self.walk.value(part))
        except ex.NotExpandable:
            return True

    def _is_number(self, part: ex.Expression) -> bool:
        return type(self._value(part)) in (int, float, slice)

    def _taken(self, whole: ex.Expression) -> ex.Expression | None:
        match whole:
            case ex.Operation("if", (test, yes, no)):
                truth = self._value(test)
                return None if truth is None or np.ndim(truth) else yes if truth else no
            case ex.Applied("where", (test, yes, no)):
                truth = self._value(test)
                if truth is not None and np.size(truth) and np.all(truth == np.ravel(truth)[0]):
                    return yes if np.all(truth) else no
        return None

    def _passed(self, whole: ex.Expression) -> ex.Expression | None:
        return whole.parts[0] if isinstance(whole, ex.Applied) and whole.name in _SAME and whole.parts else None

    def _own_number(self, whole: ex.Expression) -> ex.Expression | None:
        """What a number of the function's own was computed from, if that is only sizes and arguments."""
        bound = self.seen.get(whole.id) if isinstance(whole, ex.Name) and not whole.stored else None
        if bound is None or bound.value.shape or bound.value.dtype != "float":
            return None
        walk = walk_of(self.recording, self.recording.binding(bound.serial)[0])
        match walk.statement:
            case ex.Statement("assign", (ex.Name(), *_), ex.Expression() as value):
                value = walk.chosen(value)
                return value if self._is_single(value) or _is_size(value) else None
        return None

    def _unscaled(self, whole: ex.Expression) -> ex.Expression | None:
        """What is divided by 1, where the caller asked for nothing else: softmax without a temperature."""
        within = self.recording.calls[self.recording.calls[self.step.call].forward_call].parent is not None
        match whole:
            case ex.Operation("/", (part, ex.Name() as divisor)) if within and self._is_single(divisor):
                return part if self._value(divisor) == 1.0 else None
        return None

    def _product(self, whole: ex.Expression) -> ex.Expression | None:
        """A quotient, or a square."""
        if not ex.is_joined(whole, "*"):
            return None
        left, right = ex.inner(whole)
        match self.rewritten(right):
            case ex.Operation("/", (ex.Number(1), divisor)):
                return ex.Operation("/", (left, divisor))
        return ex.Operation("**", (left, ex.Number(2))) if isinstance(left, ex.Name) and left == right else None

    # ---- What papers write otherwise. ----

    def _name(self, whole: ex.Name) -> tuple[list[Element], int]:
        where = self.bound if whole.stored else self.seen
        bound = where.get(whole.id) or self.seen.get(whole.id)
        if bound is None:
            return super()._name(whole)
        named = self.symbols.outside(bound) if self.outside else bound
        if named is None:
            raise KeyError(whole.id)
        return [self.symbols.of(named)], mathml.TIGHT

    def _member(self, whole: ex.Member) -> tuple[list[Element], int]:
        if whole.name == "value" and isinstance(whole.of, ex.Member):
            return [self._parameter_symbol(whole, whole.of)], mathml.TIGHT
        return super()._member(whole)

    def _parameter_symbol(self, whole: ex.Member, parameter: ex.Member) -> Element:
        """W for self.weight, and W with the layer's name for self.output.weight."""
        call = self.recording.calls[self.step.call]
        name = self.recording.calls[call.forward_call].name
        letter = symbol(parameter.name, np.ndim(self._value(whole)), name)
        owner = parameter.of.text.rpartition(".")[2]
        if owner == "self" or parameter.name == "table":
            return letter
        if name == "FeedForward" and owner in _OF_FEED_FORWARD:
            return ml.indexed(letter, ml.number(_OF_FEED_FORWARD[owner]))
        subject = self.symbols.subject(call)
        return ml.indexed(letter, subject if subject is not None else symbol(_PROJECTIONS.get(owner, owner), 2))

    def _operation(self, whole: ex.Operation) -> tuple[list[Element], int]:
        match whole:
            case ex.Operation("[]", (ex.Member(ex.Name(array), "shape"), _)) if _is_size(whole):
                return [mathml.name("d_" + {"q": "k"}.get(array, array))], mathml.TIGHT
            case ex.Operation(
                "[]", (ex.Applied("take_along_axis", (array, ids)), ex.Expression(text="(..., 0)" | "..., 0"))
            ):
                at = ml.separated([ml.letter("i"), self.expression(ids, mathml.TIGHT)])
                return [ml.indexed(self.expression(array, mathml.TIGHT), ml.row(at))], mathml.TIGHT
            case ex.Operation("[]", (array, at)) if (letter := mathml.new_axis(at.text)) is not None:
                rows = self.expression(array, mathml.TIGHT)
                return [ml.indexed(rows, ml.letter(letter)) if np.ndim(self._value(array)) else rows], mathml.TIGHT
            case ex.Operation("[]", (array, _)) if told := self._block(whole, array):
                return [ml.indexed(self.expression(array, mathml.TIGHT), ml.text(told))], mathml.TIGHT
            case ex.Operation("==", (ex.Applied("arange", (_,)), ids)):
                compared = ml.sign("=", lspace="0.3em", rspace="0.3em")
                return [ml.bracketed(ml.letter("j"), compared, self.expression(ids, mathml.SUM))], mathml.TIGHT
            case ex.Operation("+", (ex.Applied("zeros" | "zeros_like"), added)):
                return [self.expression(added, mathml.SUM)], mathml.SUM
            case ex.Operation("[]", (array, at)) if told := mathml.part_in_words(at.text, self.walk.names):
                return [ml.indexed(self.expression(_unmoved(array), mathml.TIGHT), ml.text(told))], mathml.TIGHT
        return super()._operation(whole)

    def _method(self, whole: ex.Applied, base: ex.Expression) -> tuple[list[Element], int] | None:
        if whole.name != "reshape":
            return super()._method(whole, base)
        before, after = (np.shape(self._value(part)) for part in (base, whole))
        if before == after:
            return [self.expression(base, mathml.TIGHT)], mathml.TIGHT
        word = ml.word("vec" if len(after) < len(before) else "split")
        return [word, ml.bracketed(self.expression(base))], mathml.TIGHT

    def _block(self, whole: ex.Operation, array: ex.Expression) -> str:
        """Which part of the last axis a slice takes, "2 of 4"; "" if it is no such slice."""
        part, all_of_it = self._value(whole), self._value(array)
        is_slice = isinstance(whole.node, ast.Subscript) and ":" in whole.parts[1].text and "..." in whole.parts[1].text
        if not is_slice or not isinstance(part, np.ndarray) or not isinstance(all_of_it, np.ndarray):
            return ""
        width, full = part.shape[-1], all_of_it.shape[-1]
        if not width or full % width or part.shape[:-1] != all_of_it.shape[:-1]:
            return ""
        blocks = np.split(all_of_it, full // width, axis=-1)
        found = [i for i, block in enumerate(blocks, 1) if np.array_equal(block, part)]
        return f"{found[0]} of {len(blocks)}" if len(found) == 1 and len(blocks) > 1 else ""

    def axis(self, axis: ex.Expression, base: ex.Expression) -> Element:
        places, array = self._value(axis), self._value(base)
        if places is None or not isinstance(array, np.ndarray):
            return super().axis(axis, base)
        from_end = sorted((int(a) % np.ndim(array)) - np.ndim(array) for a in np.atleast_1d(places))
        if not from_end or from_end[0] < -len(AXES):
            return super().axis(axis, base)
        return ml.row(ml.separated([ml.letter(AXES[-place - 1]) for place in from_end]))

    def _applied(self, whole: ex.Applied) -> tuple[list[Element], int]:
        call = self.walk.call_of(whole)
        if whole.of_library and whole.name in ("concatenate", "stack"):
            parts = ex.inner(whole.parts[0]) if ex.is_joined(whole.parts[0], ",") else whole.parts[:1]
            return [ml.word("Concat"), ml.bracketed(*ml.separated(list(map(self.expression, parts))))], mathml.TIGHT
        counted = self._value(whole) if whole.of_library and whole.name == "arange" else None
        if counted is not None and 0 < np.size(counted) <= SHORT:
            return [ml.bracketed(*ml.separated([ml.number(str(n)) for n in counted]))], mathml.TIGHT
        if whole.of_library and whole.name == "tril":
            return [ml.word(as_function(whole.name)), ml.bracketed(self.expression(whole.parts[0]))], mathml.TIGHT
        if whole.name == "causal_mask":  # queries are the last of the positions
            t_q, t_k = (self._value(part) for part in whole.parts[:2])
            last = [ml.sign("+"), ml.number(str(t_k - t_q))] if t_k != t_q else []
            return [ml.bracketed(ml.letter("j"), ml.sign("≤"), ml.letter("i"), *last)], mathml.TIGHT
        if call is not None and call.backward and (back := self._back(whole, call)) is not None:
            return back, mathml.MATRICES
        if call is None or call.backward or _names_pullback(whole.function):
            return super()._applied(whole)
        if call.name == "MultiHeadAttention.project" and self._is_unturned(whole):
            layer, x = whole.parts[:2]
            weight, bias = (ex.member(layer, name, "value") for name in ("weight", "bias"))
            product = ex.Operation("@", (x, weight))
            sums = product if self._value(bias) is None else ex.Operation("+", (product, bias))
            return [ml.word("heads"), ml.bracketed(self.expression(sums))], mathml.TIGHT
        if call.name == "Residual":
            return self._residual(whole)
        given = [ex.unstarred(part) for part in (*whole.parts, *whole.options.values())]
        given = [self._weight_of(argument) or argument for argument in given]
        arrays = [part for part in given if self._is_array(part)] or list(filter(self._is_number, given))
        brackets = [ml.bracketed(*ml.separated(list(map(self.expression, arrays))))] if arrays else []
        name = self.recording.function_for(self._inner(call))
        return [ml.letter(name) if len(name) == 1 else ml.word(name), *brackets], mathml.TIGHT

    def _inner(self, call: Call) -> Call:
        """Of a helper that makes one call and hands arrays on to it, this one."""
        inner = [other for other in self.recording.calls if other.parent == call.index and not other.in_backward]
        if len(inner) != 1 or not call.name.rpartition(".")[2].startswith("_"):
            return call
        taken = [inner[0].bound[name][0][-1] for name in ex.arguments(inner[0].code) if name in inner[0].bound]
        return inner[0] if any(bound.value.shape for bound in taken) else call

    def _residual(self, whole: ex.Applied) -> tuple[list[Element], int]:
        """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) with the norm first."""
        layer = self.walk.callee(whole)
        x, *others = [self.expression(part) for part in whole.parts if self._is_array(part)]
        norm, sublayer = (ml.word(as_function(type(part).__name__)) for part in (layer.norm, layer.sublayer))
        if layer.order == "pre":
            inner = ml.row([norm, ml.bracketed(x)])
            return [x, ml.sign("+"), sublayer, ml.bracketed(*ml.separated([inner, *others]))], mathml.SUM
        update = ml.bracketed(*ml.separated([x, *others]))
        return [norm, ml.bracketed(x, ml.sign("+"), sublayer, update)], mathml.TIGHT


# ---- What the rules ask of an expression or a value. ----


def _holds_arrays(value: Any) -> bool:
    """Whether it is an array with axes, or a tuple of such arrays."""
    if isinstance(value, tuple):
        return bool(value) and all(map(_holds_arrays, value))
    return isinstance(value, np.ndarray | Summarised) and value.ndim > 0


def _unmoved(whole: ex.Expression) -> ex.Expression:
    """Without the last change of shape: the numbers and their order are the same."""
    moved = whole.of_array if isinstance(whole, ex.Applied) and whole.name == "reshape" else None
    return whole if moved is None else moved


def _names_pullback(part: ex.Expression | None) -> bool:
    """Whether it is the name of a backward function."""
    return isinstance(part, ex.Name) and mathml.is_pullback(part.id)


def _is_size(whole: ex.Expression) -> bool:
    """x.shape[-1], or an expression of numbers and such a size."""
    match whole:
        case ex.Operation("[]", (ex.Member(ex.Name(), "shape"), ex.Operation("negative", (ex.Number(1),)))):
            return True
        case ex.Operation(parts=parts):
            return all(_is_size(part) or isinstance(part, ex.Number) for part in parts)
        case ex.Applied("sqrt", (part,)):
            return _is_size(part)
    return False
