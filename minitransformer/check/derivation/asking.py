"""What a definition may not mean, as a question: it is taken as given, so nothing else can be said of it."""

import contextlib
import re

import numpy as np

from .comparing import Trial
from .faults import Fault, Inexact, Unreadable
from .mending import by_entries
from .names import Names
from .parsing import LETTER
from .values import Value

_NOTHING = "Nothing is checked here: "
PLAIN_DOT = "The dot is read as the plain product, a number for two vectors; for entries write ⊙."
DOT_OF_ENTRIES = "The dot is read as ⊙, entry by entry."


class Questions:
    """Asks about definitions."""

    def __init__(self, known: Names, trial: Trial) -> None:
        self.known, self.trial = known, trial

    def like_a_gradient(self, name: str) -> bool:
        """Whether a name is d and that of an array, as people write arrays: dx, dW_1, dX̂, not diff; or DV beside V."""
        return bool(re.match(rf"d{LETTER}(?![^\W\d_]{{2}})", name)) or bool(self._other_d(name))

    def _other_d(self, name: str) -> str:
        """The V of DV, ΔV, gradV and grad_V, if that is an array of the text."""
        match = re.fullmatch(r"(?:D|Δ|∆|grad_?)(.+)", name)
        return match[1] if match and self.known.own_rank(match[1]) else ""

    def remark(self, name: str) -> str:
        """Says so if a name is zero, or looks like a gradient although there is nothing of which it is one."""
        if not any(np.any(abs(draw.values[name].array) > 1e-12) for draw in self.trial.draws):
            return f"{name} is zero on all numbers tried. Is that meant?"
        if base := self._other_d(name):
            return f"{_NOTHING}{name} is a new name, since a gradient has a small d. Is it d{base}?"
        if not self.like_a_gradient(name):
            told = self._unusual(self.trial.draws[0].values[name])
            told = told or self._scaled(self.trial.draws[0].values[name]) or self._dot(name)
            return told or (self._of_nothing(name) if re.match("δ|delta", name) else "")
        like = [n for n in (*self.known.given, *self.known.defined) if n.lower() == name[1:].lower() and n != name]
        told = f" Is it d{like[0]}?" if like else ""
        return f"{_NOTHING}{name[1:]} is not defined, so {name} is a new name, not a gradient.{told}"

    def _of_nothing(self, name: str) -> str:
        """Says so if a δ is not the derivative of the loss by anything above, as people mean it to be."""
        draw = self.trial.draws[0]
        loss, value = self.known.loss(), draw.values[name]
        if loss is None or value.labels:
            return ""
        for other in self.known.defined:
            if other not in (name, loss) and draw.values[other].array.shape == value.array.shape:
                with contextlib.suppress(Fault, Unreadable, Inexact):
                    if np.allclose(draw.gradient(other, loss), value.array):
                        return ""
        return f"{name} is not the derivative of {loss} by a name above. Is that meant?"

    def _unusual(self, value: Value) -> str:
        """Says so if columns sum to one where rows usually do, or if a variance is divided by n - 1."""
        array = value.array
        if array.ndim == 2 and np.all(array >= 0) and np.allclose(array.sum(axis=0), 1) and array.shape[0] > 1:
            return "" if np.allclose(array.sum(axis=1), 1) else "Its columns sum to one, not its rows. Is that meant?"
        for other in list(self.trial.draws[0].values.values()):
            spread = other.array.ndim == array.ndim + 1 and other.array.shape[:-1] == array.shape
            if spread and np.allclose(array, other.array.var(axis=-1, ddof=1)):
                return "This variance is divided by n - 1. LayerNorm's is divided by n. Is that meant?"
        return ""

    def _scaled(self, value: Value) -> str:
        """Says so if this is a softmax of Q Kᵀ, but not of Q Kᵀ / √d."""
        draw = self.trial.draws[0]
        q, k = (next((draw.values[n].array for n in pair if n in draw.values), None) for pair in ("Qq", "Kk"))
        if q is None or k is None or q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1]:
            return ""
        weights, scores = value.array, q @ k.T
        if weights.shape != scores.shape or not np.all(weights > 0) or not np.allclose(weights.sum(axis=1), 1):
            return ""
        own, plain = (x - x.mean(axis=1, keepdims=True) for x in (np.log(weights), scores))
        scale = float((own * plain).sum() / (plain * plain).sum())
        if np.allclose(own, scale * plain):
            for other, told in ((1, "not divided by √d"), (1 / q.shape[1], "divided by d, not by √d")):
                if np.isclose(scale, other):
                    return f"This is attention with Q Kᵀ {told}. Is that meant?"
        return ""

    def _dot(self, name: str) -> str:
        """Says how a dot is read, if it could mean the product of entries as well."""
        made, draw = self.known.defined[name], self.trial.draws[0]
        other = by_entries(made.tree)
        with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError):
            value = draw.computer(made.reading).of(other)
            plain = draw.values[name].array
            if other != made.tree and plain.ndim in (0, value.rank) and not np.array_equal(value.array, plain):
                return PLAIN_DOT
        return ""
