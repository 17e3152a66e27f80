"""Replace the outputs of heads, and run the rest of the model unchanged: this shows causes, not correlations.

    ablate: the output is 0         patch: the output is a given one, such as the head's output on another text

Michel et al. 2019, "Are Sixteen Heads Really Better than One?"; Vig et al. 2020, "Investigating Gender Bias in Language
Models Using Causal Mediation Analysis".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, array_module, device_of, to_device, to_numpy
from ...core.layers import Module
from .watch import Place, Watch, attentions

Head = tuple[int, int] | tuple[str, int, int]  # (layer, head), in an encoder-decoder (kind, layer, head)


@contextlib.contextmanager
def patch(model: Module, outputs: Mapping[Head, Any]) -> Iterator[None]:
    """In the `with` block, each of these heads outputs the given array, which broadcasts to (B, T_q, d_v).

    outputs: {(layer, head): array}, two indices that count from 0, in an encoder-decoder
    {("cross", layer, head): array}; a head's output on another text is `heads(model, other).outputs[layer][:, head]`.
    Every run of the model in the block is patched: its call, its loss, generation with a cache, `heads` and
    `attribution`. No gradient flows into a patched head.

    Raises ValueError for a head that the model does not have, for the fast twin of a model, and if a patched head did
    not run before the block ended.
    """
    wanted: dict[Place, dict[int, np.ndarray]] = {}
    for head, array in outputs.items():
        kind, layer, number = place_of(model, head)
        wanted.setdefault((kind, layer), {})[number] = to_numpy(array)
    left = set(wanted)

    def see(place: Place, name: str, array: Array) -> Array | None:
        if name == "weights" or place not in wanted:
            return None
        left.discard(place)
        changed = array_module(array).array(array)
        for number, output in wanted[place].items():
            changed[:, number] = 0.0 if name == "dheads" else _fitting(output, changed[:, number])
        return changed

    with Watch(model, see):
        yield
    if left:
        raise ValueError(f"patch: the block ended, but attention {sorted(left)} of this model did not run in it")


def ablate(model: Module, heads: Iterable[Head]) -> contextlib.AbstractContextManager[None]:
    """In the `with` block, these heads output zeros; see `patch`. heads: [(layer, head), ...], indices from 0."""
    return patch(model, dict.fromkeys(heads, np.zeros(())))


def place_of(model: Module, head: Any) -> tuple[str, int, int]:
    """Kind, layer and number of a head. Raises ValueError for one that the model does not have."""
    found = attentions(model)
    given = (next(iter(found)), *head) if isinstance(head, tuple) and len(head) == 2 and len(found) == 1 else head
    if isinstance(given, tuple) and len(given) == 3 and given[0] in found:
        kind, layer, number = given
        if layer in range(len(found[kind])) and number in range(found[kind][layer].n_heads):
            return kind, int(layer), int(number)
    form = "(layer, head)" if len(found) == 1 else f"(kind, layer, head) with a kind of {', '.join(found)}"
    sizes = ", ".join(f"{kind} {len(each)} × {each[0].n_heads if each else 0}" for kind, each in found.items())
    raise ValueError(f"there is no head {head!r}: give {form}, indices from 0; layers × heads: {sizes}")


def _fitting(output: np.ndarray, like: Array) -> Array:
    try:
        fits = np.broadcast_to(output, like.shape)
    except ValueError:
        raise ValueError(f"patch: an output must broadcast to {like.shape}, got {output.shape}") from None
    return to_device(fits.astype(like.dtype), device_of(like).name)
