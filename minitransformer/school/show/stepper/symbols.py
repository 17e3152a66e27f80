"""What papers call the values of a recording: scores is S, inverse_std is σ⁻¹, dscores is dS.

A name of one letter is a capital if it holds a matrix or more, as Q does, and no longer name here has this letter. Of
a name of several words one is the symbol and the others its index: near_k is K with the index "near", scores_1 is S₁.
of_scores, what comes back to the scores on its way to other gradients, is δ with the index S; from_reads, what the
reads send back, δ with the index "from reads".
A name that only passes another's array on has the other's symbol: without dropout, kept is A because weights is. A
helper that its caller calls several times, as MultiHeadAttention does for Q, K and V, works for the name that the
caller gives its result.
"""

from __future__ import annotations

import functools
from xml.etree.ElementTree import Element

import numpy as np

from ....check.trace.calls import Binding, Call
from . import elements as ml
from . import expressions as ex
from . import mathml
from .steps import Steps
from .walk import walk_of

LETTERS = {
    "output": "O", "scores": "S", "weights": "A", "weight": "W", "bias": "b", "mask": "M", "loss": "ℒ", "hidden": "h",
    "temperature": "τ", "label_smoothing": "ε", "cumulative": "Φ", "density": "φ", "sigmoid": "σ", "log_sums": "L",
    "loss_at": "ℓ", "table": "E",
}  # fmt: skip
_MARKED = {  # the letter, and what stands at its upper right
    "inverse_std": ("σ", "−1"), "variance": ("σ", "2"), "inverse_rms": ("ρ", "−1"), "normalized": ("x", "^"),
    "transposed": ("E", "T"),
}  # fmt: skip
_PAIRED = {"xa": ("x", "a"), "xb": ("x", "b"), "dya": ("dy", "a"), "dyb": ("dy", "b")}  # taken in pairs (a, b)
_ELSEWHERE = {  # by the call that has the name
    ("learned_positions", "table"): "P", ("LearnedPositions", "table"): "P", ("LanguageModel", "hidden"): "hidden",
}  # fmt: skip


def symbols_of(recording: Steps) -> Symbols:
    """The symbols of a recording."""
    return recording.kept("symbols", lambda: Symbols(recording))


class Symbols:
    """The symbols of one recording's values."""

    def __init__(self, recording: Steps) -> None:
        self.recording = recording
        self._written: dict[int, Element] = {}

    def of(self, bound: Binding) -> Element:
        """The symbol of a value."""
        if bound.serial not in self._written:
            self._written[bound.serial] = self._write(self.first(bound))
        return self._written[bound.serial]

    def first(self, bound: Binding) -> Binding:
        """The first name of the very array in this call, or in the call whose pullback this is."""
        calls = (bound.call.index, bound.call.forward_call)
        first = bound
        while bound.origin is not None and not bound.in_place:
            bound = self.recording.binding(bound.origin)[1]
            if bound.call.index in calls and len(bound.call.bound[bound.name]) == 1:  # in a loop, it may be bound anew
                first = bound
        return first

    def outside(self, bound: Binding) -> Binding | None:
        """The caller's name for an argument or a result of a call: in attention, softmax's x is S and its y is A."""
        given = None if bound.origin is None else self.recording.binding(bound.origin)[1]
        return given if given is not None and given.call.depth < bound.call.depth else self._results.get(bound.serial)

    @functools.cached_property
    def _results(self) -> dict[int, Binding]:
        """By the serial of a binding: the name that the caller gives this very array, its call's result."""
        found: dict[int, Binding] = {}
        for _, bound in self.recording.bindings:
            made = None if bound.origin is None else self.recording.binding(bound.origin)[1]
            if made is not None and made.call.depth > bound.call.depth:
                found.setdefault(made.serial, bound)
        return found

    @functools.cached_property
    def _taken(self) -> set[str]:
        """The letters that stand for names of several letters here."""
        return {LETTERS[bound.name] for _, bound in self.recording.bindings if bound.name in LETTERS}

    def _chosen(self, bound: Binding) -> Binding | None:
        """Of where(test, a, b) that took the same everywhere, this one: shift is the largest."""
        walk = walk_of(self.recording, self.recording.binding(bound.serial)[0])
        match walk.statement.value:
            case ex.Applied("where", (_, *parts)) if bound.value.array is not None and not bound.call.backward:
                read = [walk.bound[part.id] for part in parts if isinstance(part, ex.Name) and part.id in walk.bound]
                known = [(other, other.value.array) for other in read]
                return next((b for b, a in known if a is not None and np.array_equal(a, bound.value.array)), None)
        return None

    def _write(self, bound: Binding) -> Element:
        if (chosen := self._chosen(bound)) is not None:
            return self.of(chosen)
        call = self.recording.calls[bound.call.forward_call]
        value = call.bound.get(bound.name[1:]) if bound.name.startswith("d") and bound.call.backward else None
        if value is not None:
            return ml.gradient(self.of(value[-1][-1]))
        if bound.call.backward and bound.name[0] == "d" and is_known(bound.name[1:]):
            return ml.gradient(symbol(bound.name[1:], len(bound.value.shape), call.name))
        plain = symbol(bound.name, 0 if bound.name.upper() in self._taken else len(bound.value.shape), call.name)
        subject = self._subject(call)
        if subject is not None and self._is(bound, subject):
            return self.of(subject)
        if subject is None or is_known(bound.name) or not bound.value.shape or call.in_backward:
            return plain
        return ml.indexed_too(self.of(subject), plain)

    def _is(self, bound: Binding, result: Binding) -> bool:
        """Whether the caller's result is this very array."""
        first = self.first(bound)
        while result.origin is not None:
            result = self.recording.binding(result.origin)[1]
            if self.first(result) is first:
                return True
        return False

    def subject(self, call: Call) -> Element | None:
        """The symbol of what a helper works for."""
        result = self._subject(self.recording.calls[call.forward_call])
        return None if result is None else self.of(result)

    def _subject(self, call: Call) -> Binding | None:
        """The caller's name for the result of a helper, if the caller calls several such helpers."""
        around = self.recording.step_around(call)
        is_one = self.recording.is_helper(call) and self.recording.is_one_of_several(call) and not call.backward
        return around.bound[0] if is_one and around is not None and around.bound else None


def is_known(name: str) -> bool:
    """Whether a name is a letter or has one."""
    return len(name) == 1 or name in LETTERS or name in _MARKED or name in mathml.GREEK


def symbol(name: str, axes: int, where: str = "") -> Element:
    """The symbol of a name; of arrays with two axes or more the letter is a capital. where: the call that has it."""
    if (otherwise := _ELSEWHERE.get((where.partition(".")[0], name))) is not None:
        return ml.letter(otherwise)
    if name in _MARKED and (name != "normalized" or where.endswith("_norm")):  # elsewhere it has its gain already
        letter, mark = _MARKED[name]
        if mark == "^":
            return ml.hat(ml.letter(letter.upper() if axes > 1 else letter))
        return ml.raised(ml.letter(letter), mark)
    if name in ("dthrough", "dnear"):  # whose arrays have no names of their own
        return ml.gradient(ml.word(name[1:]))
    if name in _PAIRED:
        of, which = _PAIRED[name]
        return ml.indexed(symbol(of, axes), ml.letter(which))
    letter = LETTERS.get(name, name)
    if letter.startswith("log_"):
        return ml.row([ml.word("log"), ml.space(), symbol(letter[4:], axes)])
    if len(letter) == 1:
        return ml.letter(letter.upper() if axes > 1 and letter.isascii() else letter)
    written, words = mathml.name(name), name.split("_")
    if len(words) > 1 and words[0] not in ("w", "dw") and (axes or written.tag == "mi"):  # not d_k, w_q
        return _of_words(words, axes)
    is_gradient = axes > 0 and len(name) == 2 and name[0] == "d"
    return ml.gradient(symbol(name[1], axes)) if is_gradient else written


def _of_words(words: list[str], axes: int) -> Element:
    """The symbol of a name of several words."""
    first, *rest = words
    if first == "of":  # of_scores
        return ml.indexed(ml.letter("δ"), symbol("_".join(rest), axes))
    if first in ("from", "through"):  # from_reads
        return ml.indexed(ml.letter("δ"), ml.word("\u00a0".join(words)))
    if rest[-1].isdigit():  # scores_1
        return ml.indexed(symbol("_".join(words[:-1]), axes), ml.number(rest[-1]))
    if len(words) > 2 and words[-2] == "by":  # dx_by_q
        return ml.indexed(symbol("_".join(words[:-2]), axes), symbol(words[-1], axes))
    if first[0] == "d" and is_known(first[1:]):  # dh_carried
        return ml.indexed(ml.gradient(symbol(first[1:], axes)), ml.word("\u00a0".join(rest)))
    if is_known(first) and not is_known(words[-1]):  # n_counted
        return ml.indexed(symbol(first, axes), ml.word("\u00a0".join(rest)))
    return ml.indexed(symbol(words[-1], axes), ml.word("\u00a0".join(words[:-1])))
