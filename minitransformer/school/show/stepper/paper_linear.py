"""Linear maps as papers write them: X W + b, its gradients dX = dY Wᵀ, dW = Xᵀ dY, db = Σ dY, and projections.

So, too, the gradient of a cross-entropy: probability minus target.
"""

import ast
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from ....check.trace.calls import Call
from . import elements as ml
from . import expressions as ex
from . import mathml
from .steps import Step, Steps, Summarised
from .walk import Walk, walk_of

AXES = ("j", "i", "h", "b")
_LINEAR = ("Linear", "linear")


def _summed(axes: Sequence[str], term: Element) -> Element:
    """∑ over these axes, if there are any."""
    if not axes:
        return term
    letters = ml.row(ml.separated([ml.letter(axis) for axis in reversed(axes)]))
    return ml.row([ml.element("munder", ml.sign("∑", movablelimits="false"), letters), term])


class LinearFormula(mathml.Formula):
    """What PaperFormula knows of linear maps."""

    recording: Steps
    step: Step
    walk: Walk

    def _value(self, part: ex.Expression) -> Any:
        """Its value in this call; None if it was not recorded whole."""
        try:
            value = self.walk.value(part)
        except ex.NotExpandable:
            return None
        return None if isinstance(value, Summarised) else value

    def _linear(self, whole: ex.Expression) -> ex.Expression | None:
        call = self.walk.call_of(whole)
        if not isinstance(whole, ex.Applied) or call is None or call.backward:
            return None
        if call.name == "Embedding.unembed":
            return ex.Operation("@", (whole.parts[0], ex.Member(self._table(whole), "T")))
        if call.name not in _LINEAR:
            return None
        x, weight, *bias = [*whole.parts, *(self._parameters(whole) if call.name == "Linear" else [])]
        product = ex.Operation("@", (x, weight))
        return ex.Operation("+", (product, bias[0])) if bias and self._value(bias[0]) is not None else product

    @staticmethod
    def _parameters(layer: ex.Applied) -> list[ex.Expression]:
        """The weight and the bias of the layer that is called."""
        assert layer.function is not None
        return [ex.member(layer.function, name, "value") for name in ("weight", "bias")]

    @staticmethod
    def _table(made: ex.Applied) -> ex.Expression:
        """The table of the embedding whose method is called."""
        assert isinstance(made.function, ex.Member)
        return ex.member(made.function.of, "table", "value")

    def _linear_gradients(self, line: ex.Statement) -> list[Element] | None:
        """dX = dY Wᵀ, dW = Xᵀ dY, db = Σ dY for the pullback of a linear map that this call's forward pass made."""
        call = None if line.value is None else self.walk.call_of(line.value)
        maker, made = self._made(call)
        if maker is None or made is None or maker.name not in _LINEAR:
            return None
        x, *parameters = made.parts
        if maker.name == "Linear":
            parameters = self._parameters(made)
        given = [p for p in parameters if self._value(p) is not None]
        assert isinstance(line.value, ex.Applied)
        dy = line.value.parts[0]
        n_axes = np.ndim(self._value(dy))
        if not 2 <= n_axes <= len(AXES):
            return None
        back = self.expression(ex.Operation("@", (dy, ex.Member(given[0], "T"))))
        outer = self.expression(ex.Operation("@", (ex.Member(x, "T"), dy)))
        told = [back, _summed(AXES[2:n_axes], outer), _summed(AXES[1:n_axes], self.expression(dy))]
        names = self._targets(line.targets[0])[::2]
        names += [ml.gradient(self.expression(each)) for each in given[len(names) - 1 :]]
        out: list[Element] = []
        for name, value in zip(names, told, strict=False):
            out += [*([ml.sign(",")] if out else []), name, ml.sign("="), value]
        return out

    def _made(self, call: Call | None) -> tuple[Call, ex.Applied] | tuple[None, None]:
        """The call whose pullback this is, and how this call's forward pass writes it; None, None for another's."""
        maker = self.recording.calls[call.forward_call] if call is not None and call.backward else None
        around = None if maker is None else self.recording.step_around(maker)
        made = None if maker is None or around is None else walk_of(self.recording, around).applied(maker)
        own = maker is not None and maker.parent == self.recording.calls[self.step.call].forward_call
        return (maker, made) if maker is not None and made is not None and own else (None, None)

    def _back(self, whole: ex.Applied, call: Call) -> list[Element] | None:
        """dY Wᵀ for the pullback of a linear map that this call's forward pass made; of heads, Concat(dQ) W_Qᵀ."""
        maker, made = self._made(call)
        if maker is None or made is None:
            return None
        if maker.name == "Embedding.unembed":
            table = self.expression(self._table(made), mathml.MATRICES)
            return [self.expression(whole.parts[0], mathml.MATRICES), ml.space(), table]
        if maker.name == "cross_entropy":
            return self._surprised(whole, made)
        if maker.name == "Linear":
            dy, weight = self.expression(whole.parts[0], mathml.MATRICES), self._parameters(made)[0]
        elif maker.name == "MultiHeadAttention.project" and self._is_unturned(made):
            heads = ml.bracketed(self.expression(whole.parts[0]))
            dy, weight = ml.row([ml.word("Concat"), heads]), ex.member(made.parts[0], "weight", "value")
        else:
            return None
        return [dy, ml.space(), ml.transposed(self.expression(weight, mathml.TIGHT))]

    def _surprised(self, whole: ex.Applied, made: ex.Applied) -> list[Element] | None:
        """(softmax(logits) − (j = wanted_i)) dℒ / n, for a mean over n positions that all count."""
        logits, wanted, *rest = made.parts
        given = dict(zip(("ignored", "smoothing"), map(self._value, rest), strict=False))
        ids, scores = self._value(wanted), self._value(logits)
        if made.options or given.get("smoothing", 0.0) != 0.0 or ids is None or scores is None:
            return None
        if (ids == given.get("ignored", -100)).any():
            return None
        hit = f"(xp.arange({scores.shape[-1]}) == {wanted.text}[..., None])"
        source = f"(softmax({logits.text}) - {hit}) * ({whole.parts[0].text} / {ids.size})"
        return [self.expression(ex.expression(ast.parse(source, mode="eval").body))]

    def _is_unturned(self, made: ex.Applied) -> bool:
        """Whether a projection is not turned by its position."""
        try:
            return len(made.parts) < 4 or self.walk.value(made.parts[3]) is None
        except ex.NotExpandable:
            return False

    def _weight_of(self, part: ex.Expression) -> ex.Expression | None:
        """The weight of a layer that is passed to a call: it tells Q = heads(W_Q, X) from K = heads(W_K, X)."""
        weight = ex.member(part, "weight", "value") if isinstance(part, ex.Member) else None
        return weight if weight is not None and np.ndim(self._value(weight)) == 2 else None
