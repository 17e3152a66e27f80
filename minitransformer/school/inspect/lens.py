"""The logit lens: what the model would predict if it ended after this layer. nostalgebraist 2020, "interpreting GPT".

    logits_l = head(norm(x_l)),    x_l the residual path after layer l; x_0 is the embedding

Head and norm are those that the model applies after its last layer, so the last logits are the model's own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ...check.trace.tracing import textbook_of
from ...core.arrays.backend import Array
from ...core.layers import Module
from ...ideas.published import TextEncoder
from .watch import stack_of


def logit_lens(model: Module, *inputs: Any, **options: Any) -> Iterator[Array]:
    """Yield the logits after the embedding and after each layer; of an encoder-decoder, of its decoder.

    Each has the shape of the logits of model(*inputs, **options). They come one by one, because for a large vocabulary
    all at once would take gigabytes. Raises TypeError for a model without logits.
    """
    model = textbook_of(model)
    name, stack = stack_of(model)
    if isinstance(model, TextEncoder):
        raise TypeError("logit_lens: a TextEncoder has no logits; give a model with a head")
    seen: list[Array] = []

    def noting(layer: Module) -> Any:
        def run(x: Array, *others: Array, **further: Any) -> Any:
            seen.append(x)
            return layer(x, *others, **further)

        return run

    last = _with_layers(model, name, [noting(layer) for layer in stack.layers])(*inputs, **options)[0]
    for x in seen:

        def at_once(_: Array, *others: Array, x: Array = x, **further: Any) -> Any:
            return x, None

        yield _with_layers(model, name, [at_once])(*inputs, **options)[0]
    yield last


def _with_layers(model: Module, name: str, layers: list[Any]) -> Any:
    """The same model with the same parameters, but with other layers in the stack of this name."""
    copied, stack = copy.copy(model), copy.copy(getattr(model, name))
    stack.layers = layers
    setattr(copied, name, stack)
    return copied
