"""The cases of state space duality for `minitransformer check`. The truth of one form is the other."""

import dataclasses
from functools import partial

from ....check.verify.catalogue import case
from ....check.verify.catalogue.case import Draw, Random, Setup, call
from ....core.arrays.backend import Array
from . import op as own

op = partial(case.op, room=own)


def _decay(*shape: int) -> Draw:
    return lambda r: -r.exponential(0.3, shape)


_TEXT = (2, 5, 3), (2, 5, 3), (2, 5, 4), _decay(2, 5)
op("state_space", *_TEXT, (2, 3, 4), chunk=2)
op("state_space of an empty state", *_TEXT, along_directions=True)
op("state_space_recurrent", *_TEXT, (2, 3, 4))
op("state_space_recurrent of an empty state", *_TEXT, along_directions=True)


def _recurrent(q: Array, k: Array, v: Array, decay: Array, state: Array, chunk: int = 2) -> Array:
    return own.state_space_recurrent(q, k, v, decay, state)[0]


def _as_a_recurrence(r: Random) -> Setup:
    setup = call(r, own.state_space, *_TEXT, (2, 3, 4), chunk=2)
    return dataclasses.replace(setup, truth=_recurrent, intermediates=False)


case.case("op", "state_space as a recurrence", _as_a_recurrence)
