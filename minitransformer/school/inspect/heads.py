"""What every head of a model attends to and outputs, and how much it contributes to a logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...check.trace.tracing import textbook_of
from ...core.arrays.backend import Array, to_device, to_numpy
from ...core.arrays.boundary import check_shape
from ...core.layers import Module
from ...core.layers.unread import Discarded
from .watch import Place, Watch, attentions


@dataclass(frozen=True, eq=False)
class Heads:
    """All heads of one kind. weights: (layers, B, H, T_q, T_k); outputs: (layers, B, H, T_q, d_v), before W_O."""

    weights: np.ndarray
    outputs: np.ndarray


def heads(model: Module, *inputs: Any, kind: str | None = None, **options: Any) -> Heads:
    """Run model(*inputs, **options) and return the weights and the output of every head.

    kind: the attention of an encoder-decoder, "encoder", "decoder" or "cross". Raises ValueError for another kind.
    """
    model = textbook_of(model)
    kind = _kind("heads", model, kind)
    found: dict[str, list[np.ndarray]] = {"weights": [], "heads": []}

    def see(place: Place, name: str, array: Array) -> None:
        if place[0] == kind:
            found[name].append(np.array(to_numpy(array)))

    with Watch(model, see):
        model(*inputs, **options)
    if [array.shape[:-1] for array in found["weights"]] != [array.shape[:-1] for array in found["heads"]]:
        mix = type(attentions(model)[kind][0].mix).__name__
        raise ValueError(f"heads: {mix} never holds the weights of all keys, so there are none to return")
    return Heads(np.stack(found["weights"]), np.stack(found["heads"]))


def attribution(model: Module, dlogits: Array, *inputs: Any, kind: str | None = None, **options: Any) -> np.ndarray:
    """Gradient × activation: each head's contribution to sum(dlogits · logits), to first order. (layers, B, H, T_q)

        attribution = sum over d_v of heads · dheads = d sum(dlogits · logits) / ds,    heads multiplied by s, at s = 1

    If the model were linear in the head, removing it would reduce the sum by its attribution; `ablate` measures the
    true change. dlogits: of the shape of the logits of model(*inputs, **options); 1 at one logit and 0 elsewhere asks
    for that logit. kind: see `heads`. The gradients of the parameters stay unchanged. Simonyan et al. 2014 and Michel
    et al. 2019, section 5.
    """
    model = textbook_of(model)
    kind = _kind("attribution", model, kind)
    outputs: dict[Place, Array] = {}
    found: dict[Place, np.ndarray] = {}

    def see(place: Place, name: str, array: Array) -> None:
        if name == "heads":
            outputs[place] = array
        elif name == "dheads" and place[0] == kind:
            found[place] = np.array(to_numpy((outputs[place] * array).sum(axis=-1)))

    grads = [(parameter, parameter.grad) for _, parameter in model.parameters()]
    with Watch(model, see):
        logits, backward = model(*inputs, **options)
        dlogits = to_device(np.asarray(to_numpy(dlogits), logits.dtype), model.device)
        check_shape("attribution", "dlogits", dlogits, logits.shape)
        try:
            for parameter, _ in grads:
                parameter.grad = Discarded()  # real ones would need as much memory as the model
            backward(dlogits)
        finally:
            for parameter, grad in grads:
                parameter.grad = grad
    return np.stack([found[place] for place in sorted(found)])


def _kind(function: str, model: Module, kind: str | None) -> str:
    kinds = attentions(model)
    chosen = next(iter(kinds)) if kind is None and len(kinds) == 1 else kind
    if chosen not in kinds:
        raise ValueError(f"{function}: kind must be one of {', '.join(map(repr, kinds))} for this model, got {kind!r}")
    if not kinds[chosen]:
        raise ValueError(f"{function}: no layer of this model attends, so there are no weights to show")
    return chosen
