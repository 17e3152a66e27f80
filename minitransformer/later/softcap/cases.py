"""The cases of softcapped scores and logits for `minitransformer check`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import layers
from ...verify.catalogue import case
from ...verify.catalogue.case import Random, Setup, call, frozen, layer, ordinary, some_mask
from ...verify.catalogue.ranks import layer_of_every_rank
from .. import Window, grouped
from . import op as own
from .layer import CappedOutput, SoftCapped

op = partial(case.op, room=own)
for _shape in ((3, 5), (5,), (2, 3, 5), (2, 1, 3, 5)):
    _about = "" if _shape == (3, 5) else f" of rank {len(_shape)}"
    op(f"softcap{_about}", _shape, 1.3, along_directions=bool(_about))
_SOFTCAPPED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "": ((2,), {}),
    " looking back, masked": ((2,), {"mask": some_mask(3, 5), "causal": True, "scale": 0.8}),
    " with dropout": ((2,), {"dropout": 0.3, "rng": frozen}),
    " of rank 2": ((), {}),
    " of rank 4": ((2, 3), {}),
    " with a mask of rank 0": ((2,), {"mask": np.array(True)}),
    " with a mask of rank 1": ((2,), {"mask": np.arange(5) != 2}),
    " with a mask of rank 3": ((2,), {"mask": some_mask(2, 3, 5)}),
}
for _about, (_first, _how) in _SOFTCAPPED.items():
    _inputs = [(*_first, *own_axes) for own_axes in ((3, 4), (5, 4), (5, 6))]
    op(f"softcapped_attention{_about}", *_inputs, 0.9, **_how, along_directions="rank" in _about)


def _capped_output(*shape: int) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        output = ordinary(CappedOutput(layers.Embedding(5, 4), 1.3), r)
        return call(r, output.unembed, shape, module=output)

    return build


for _shape in ((4,), (3, 4), (2, 3, 4), (2, 1, 3, 4)):
    case.case("layer", f"CappedOutput of rank {len(_shape)}", _capped_output(*_shape))
layer("SoftCapped", lambda: SoftCapped(0.9), (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3))
layer_of_every_rank("SoftCapped", lambda: SoftCapped(0.9), (..., 5, 4), (..., 5, 4), (..., 5, 3))
layer(
    "MultiHeadAttention with softcapped scores in a window",
    lambda: grouped(8, 4, 2, mix=Window(2, SoftCapped(0.9, 0.7))),
    (2, 4, 8),
    mask=some_mask(2, 4, 4),
)
