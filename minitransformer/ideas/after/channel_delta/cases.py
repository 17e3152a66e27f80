"""The cases of Kimi Delta Attention for `minitransformer check`. The truth of the op is the recurrence."""

import dataclasses
from functools import partial

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.caches import X, read_in_pieces
from ....check.verify.catalogue.case import Random, Setup, call, layer
from ....check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..chunked_delta.cases import after_by_recurrence, decay, rates
from ..gated_delta_net import DeltaCache
from . import op as own
from .layer import KimiDeltaAttention, NarrowMap

op = partial(case.op, room=own)


_CHUNK = (4, 3), (4, 3), (4, 2), decay(3, 4), rates(4), (3, 2)
op("channel_chunk", *_CHUNK)


def _as_a_recurrence(r: Random) -> Setup:
    return dataclasses.replace(call(r, own.channel_chunk, *_CHUNK), truth=after_by_recurrence, intermediates=False)


case.case("op", "channel_chunk as a recurrence", _as_a_recurrence)
_REAL = np.array([[True] * 5, [False] * 2 + [True] * 3])[:, None]
layer_of_every_rank("NarrowMap", lambda: NarrowMap(4, 2, 3), (..., 4))
layer("KimiDeltaAttention", lambda: KimiDeltaAttention(3, 2, 3, kernel=2, chunk=2), (3, 3))
layer("KimiDeltaAttention padded", lambda: KimiDeltaAttention(6, 2, 3), (2, 5, 6), mask=_REAL, along_directions=True)
layer_of_every_rank("KimiDeltaAttention", lambda: KimiDeltaAttention(4, 2, 3, kernel=2), (..., 3, 4))
_NET = partial(KimiDeltaAttention, 8, 2, 5, eps=1e-3, chunk=2)
read_in_pieces("KimiDeltaAttention with a cache", _NET, X, cache=DeltaCache, along_directions=True)
