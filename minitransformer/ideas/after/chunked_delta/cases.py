"""The cases of the delta rule in chunks for `minitransformer check`. Their truth is the recurrence."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import Draw, Random, Setup, call
from ....core.arrays.backend import Array
from ..gated_delta import gated_delta
from . import op as own

op = partial(case.op, room=own)


def decay(*shape: int) -> Draw:
    """Logarithms of what is kept."""
    return lambda r: -r.exponential(0.3, shape)


def rates(*shape: int) -> Draw:
    """Of writing."""
    return lambda r: r.uniform(0.2, 0.9, shape)


_CHUNK = (4, 3), (4, 3), (4, 2), decay(4), rates(4), (3, 2)
_TEXT = (2, 5, 3), (2, 5, 3), (2, 5, 4), decay(2, 5), rates(2, 5)
op("delta_chunk", *_CHUNK)
op("chunked_delta", *_TEXT, (2, 3, 4), chunk=3, along_directions=True)
op("chunked_delta of an empty memory, scaled", *_TEXT, scale=0.7, chunk=5, along_directions=True)


def _recurrent(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array, **options: Any) -> Array:
    return gated_delta(q, k, v, decay[..., None], beta, state)[0]


def _as_a_recurrence(r: Random) -> Setup:
    setup = call(r, own.chunked_delta, *_TEXT, (2, 3, 4), chunk=2)
    return dataclasses.replace(setup, truth=_recurrent, intermediates=False)


case.case("op", "chunked_delta as a recurrence", _as_a_recurrence)


def after_by_recurrence(q: Array, k: Array, v: Array, decay: Array, beta: Array, memory: Array) -> Array:
    """The memory after a text: what unit queries read there, at positions that change nothing."""
    width = k.shape[-1]

    def longer(x: Array, more: Any) -> Array:
        return np.concatenate([x, np.broadcast_to(more, (*x.shape[:-2], width, x.shape[-1]))], axis=-2)

    decays = decay[..., None] if decay.ndim < q.ndim else decay.swapaxes(-1, -2)  # one for a key, or for each entry
    text = longer(q, np.eye(width)), longer(k, 0.0), longer(v, 0.0), longer(decays, 0.0)
    none = np.zeros((*beta.shape[:-1], width))
    return gated_delta(*text, np.concatenate([beta, none], axis=-1), memory, scale=1.0)[0]


def _chunk_as_a_recurrence(r: Random) -> Setup:
    return dataclasses.replace(call(r, own.delta_chunk, *_CHUNK), truth=after_by_recurrence, intermediates=False)


case.case("op", "delta_chunk as a recurrence", _chunk_as_a_recurrence)
