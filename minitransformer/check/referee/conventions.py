"""Layouts and conventions of others: how a call of theirs is read as a call of one of our ops.

Others put the heads behind the positions, store weights as (out, in), hide where a mask is True, or keep ε elsewhere.
Code that follows such a convention is right. A `Reading` says which argument of the op each of their arguments is, and
what is done to it first. Everything it does is a function of our form, so that gradients find their way back, and it is
put around the op: known mistakes of the op are then read in the same way.

The table of conventions is at the end. To add one, say it in a sentence, when it fits, and what it changes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...core.ops import merge_heads
from ..trace.values import is_float_array
from ..verify.catalogue import known_ops
from .readings import Call, Op, Reading, Turn, bound, same


class Convention(NamedTuple):
    """A convention in a sentence. needs: arguments that its ops have; change: from a reading that fits to another."""

    needs: tuple[str, ...]
    sentence: str
    change: Callable[[Reading, Call], Reading | None]


def readings(op: Op, names: list[str], values: list[Any], n_inputs: int, output: Any) -> Iterator[list[Reading]]:
    """The ways to read a call of f, in groups: a later group is for calls that none of the earlier ones can read.

    names, values: f's arguments, the first n_inputs of them its inputs and the others its own parameters.
    """
    takes = set(inspect.signature(op).parameters)
    for group in bound(op, names, values, n_inputs):
        found = []
        for reading in group:
            call = {slot: x for slot, x in zip(reading.slots, values, strict=True) if slot} | {"": output}
            several = [reading]
            for stage in CONVENTIONS:
                fitting = [convention for convention in stage if takes.issuperset(convention.needs)]
                changed = [_changed(one, convention, call) for one in several for convention in fitting]
                several += [each for each in changed if each is not None]
            found += several
        yield sorted(found, key=lambda reading: len(reading.told))


def _changed(reading: Reading, convention: Convention, call: Call) -> Reading | None:
    try:
        changed = convention.change(reading, call)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):  # it does not fit arrays of such shapes
        return None
    return changed and replace(changed, told=(*reading.told, convention.sentence))


# ---------------------------------------------------------------------------------------------- what may be done first


def _swapped(a: int, b: int) -> Turn:
    return lambda x: (x.swapaxes(a, b), lambda dy: dy.swapaxes(a, b))


def _moved(a: int, b: int) -> Turn:
    return lambda x: (np.moveaxis(x, a, b), lambda dy: np.moveaxis(dy, b, a))


def _flat(x: Any) -> Any:
    return x.reshape(-1), lambda dy: dy.reshape(x.shape)


def _one_more(x: Any) -> Any:
    return 1.0 + x, same


def _constant(to: Callable[[Any], Any]) -> Turn:
    """Something that no gradient goes back through."""
    return lambda x: (to(x), lambda dy: np.zeros_like(x))


# ------------------------------------------------------------------------------------------------- the conventions


def _transposed_weight(reading: Reading, call: Call) -> Reading | None:
    fits = call["weight"].ndim == 2 and call["x"].shape[-1] == call["weight"].shape[1]
    return reading.turned({"weight": _swapped(0, 1)}) if fits else None


def _columns(reading: Reading, call: Call) -> Reading | None:
    slots = [slot for slot in ("x", "weight", "q", "k", "v", "logits") if slot in call]
    gamma = call.get("gamma")
    if any(call[slot].ndim != 2 for slot in slots) or (gamma is not None and gamma.shape != (call["x"].shape[0], 1)):
        return None
    turn = _swapped(0, 1)
    return reading.turned(dict.fromkeys(slots, turn), turn if np.ndim(call[""]) == 2 else None)


def _flat_rows(reading: Reading, call: Call) -> Reading | None:
    wide = [slot for slot in ("bias", "gamma", "beta") if slot in call and call[slot].ndim > 1]
    fits = wide and all(call[slot].size == max(call[slot].shape) for slot in wide)
    return reading.turned(dict.fromkeys(wide, _flat)) if fits else None


def _gamma_from_zero(reading: Reading, call: Call) -> Reading | None:
    return reading.turned({"gamma": _one_more}) if "gamma" in call else None


def _without(slot: str, numbers: Callable[[int], np.ndarray]) -> Callable[[Reading, Call], Reading | None]:
    """An argument that f does not have, with the numbers at which it does nothing."""

    def change(reading: Reading, call: Call) -> Reading | None:
        if slot in call:
            return None
        return replace(reading, options={**reading.options, slot: numbers(call["x"].shape[-1])})

    return change


def _heads_third(reading: Reading, call: Call) -> Reading | None:
    slots = [slot for slot in ("q", "k", "v", "x") if slot in call]
    turns = {slot: _swapped(-2, -3) for slot in slots}
    return reading.turned(turns, _swapped(-2, -3)) if call[slots[0]].ndim > 2 else None


def _grouped(reading: Reading, call: Call) -> Reading | None:
    heads = {slot: reading.seen(call, slot).shape[-3] for slot in ("q", "k", "v")}
    times = {slot: heads["q"] // heads[slot] for slot in ("k", "v")}
    if set(times.values()) == {1} or any(heads["q"] % heads[slot] for slot in times):
        return None

    def repeated(times: int) -> Turn:
        return lambda x: known_ops()["repeat_heads"](x, times)

    return reading.turned({slot: repeated(n) for slot, n in times.items() if n > 1})


def _merged(reading: Reading, call: Call) -> Reading | None:
    q, v = reading.seen(call, "q"), reading.seen(call, "v")
    fits = q.ndim > 2 and call[""].shape == (*q.shape[:-3], q.shape[-2], q.shape[-3] * v.shape[-1])
    return reading.turned({}, merge_heads) if fits else None


def _of_mask(to: Callable[[Any], Any], kinds: str, only: tuple[float, ...] = ()) -> Callable[[Reading, Call], Any]:
    """A mask of these kinds, and of these numbers only, read by `to`."""

    def change(reading: Reading, call: Call) -> Reading | None:
        mask = call["mask"]
        fits = mask.dtype.kind in kinds and (not only or np.isin(mask, only).all())
        return reading.turned({"mask": _constant(to)}) if fits else None

    return change


def _as_bias(reading: Reading, call: Call) -> Reading | None:
    mask = call["mask"]
    if mask.dtype.kind != "f" or (mask.any() and np.isin(mask, _1_0).all()):
        return None
    return replace(reading, slots=tuple("bias" if slot == "mask" else slot for slot in reading.slots))


def _of_keys(reading: Reading, call: Call) -> Reading | None:
    k, mask = reading.seen(call, "k"), call["mask"]
    fits = k.ndim > 2 and mask.shape == (k.shape[0], k.shape[-2])
    shape = (mask.shape[0], *[1] * (k.ndim - 2), mask.shape[1])
    turn: Turn = lambda x: (x.reshape(shape), lambda dy: dy.reshape(x.shape))  # noqa: E731
    return reading.turned({"mask": turn}) if fits else None


def _lengths(reading: Reading, call: Call) -> Reading | None:
    k, mask = reading.seen(call, "k"), call["mask"]
    column = (*mask.shape, *[1] * (k.ndim - 1))
    hidden: Turn = _constant(lambda x: np.arange(k.shape[-2]) < x.reshape(column))
    return reading.turned({"mask": hidden}) if mask.dtype.kind in "iu" and mask.shape == k.shape[:1] else None


def _classes_second(reading: Reading, call: Call) -> Reading | None:
    logits, targets = call["logits"], call["targets"]
    fits = logits.ndim > 2 and targets.shape == logits.shape[:1] + logits.shape[2:]
    return reading.turned({"logits": _moved(1, -1)}) if fits else None


def _one_hot(reading: Reading, call: Call) -> Reading | None:
    logits, targets = reading.seen(call, "logits"), call["targets"]
    if targets.shape != logits.shape or not np.isin(targets, (0, 1)).all() or not (targets.sum(-1) == 1).all():
        return None
    return replace(reading, wrap=lambda op: _of_distributions(reading.wrap(op)))


def _of_distributions(op: Op) -> Op:
    """Cross-entropy that takes one-hot rows; their gradient is -log p times that of the losses."""

    def call(logits: Any, targets: Any, **options: Any) -> Any:
        loss, backward = op(logits=logits, targets=targets.argmax(axis=-1), **options)

        def pullback(dloss: Any) -> Any:
            dlogits = backward(dloss)
            log_p = logits - logits.max(axis=-1, keepdims=True)
            log_p = log_p - np.log(np.exp(log_p).sum(axis=-1, keepdims=True))
            rows = targets[..., 0].size if options.get("reduction", "mean") == "mean" else 1
            dtargets = -log_p * np.reshape(dloss, np.shape(dloss) + (1,) * (log_p.ndim - np.ndim(dloss))) / rows
            return (dlogits, dtargets) if is_float_array(targets) else dlogits

        return loss, pullback

    return call


def _column_of_targets(reading: Reading, call: Call) -> Reading | None:
    fits = call["targets"].shape == (*call["logits"].shape[:-1], 1)
    return reading.turned({"targets": _constant(lambda x: x[..., 0])}) if fits else None


def _own_mask_of_dropout(reading: Reading, call: Call) -> Reading | None:
    """Dropout with the mask that f drew: an op that draws it is given the numbers that lead to it."""
    x, y = call["x"], call[""]
    kept = (y != 0.0) | (x == 0.0)
    rate = 1.0 - float(np.median((x / np.where(kept & (x != 0.0), y, np.nan))[kept & (x != 0.0)]))
    wanted = reading.options.get("rate", call.get("rate", rate))
    if y.shape != x.shape or not 0.0 < wanted < 1.0:
        return None
    if abs(kept.mean() - (1.0 - wanted)) > 5.0 * np.sqrt(wanted * (1.0 - wanted) / kept.size):
        return None
    slots = tuple("" if slot in ("rng", "mask") else slot for slot in reading.slots)
    options = {"rate": wanted, **reading.options, "rng": np.random.default_rng(0)}
    return replace(reading, slots=slots, options=options, wrap=lambda op: _drawing(kept.astype(np.float32), op))


def _drawing(numbers: np.ndarray, op: Op) -> Op:
    """Dropout that draws these numbers: its code, as it is at the call, where `uniform` is another function."""
    inner = inspect.unwrap(op)

    def call(**arguments: Any) -> Any:
        scope = inner.__globals__ | {"uniform": lambda *_, **__: numbers}
        return types.FunctionType(inner.__code__, scope)(**arguments)

    return call


def _with(**options: Any) -> Callable[[Reading, Call], Reading | None]:
    """Options of the op, unless f's call says them."""

    def change(reading: Reading, call: Call) -> Reading | None:
        told = any(key in reading.slots or key in reading.options for key in options)
        return None if told else replace(reading, options={**reading.options, **options})

    return change


def _causal_from_the_first_key(reading: Reading, call: Call) -> Reading | None:
    lengths = reading.seen(call, "q").shape[-2], reading.seen(call, "k").shape[-2]
    if lengths[0] == lengths[1]:
        return None  # as ours, which ends at the last key
    return _with(mask=np.tril(np.ones(lengths, dtype=bool)), causal=False)(reading, call)


def _ignored(reading: Reading, call: Call) -> Reading | None:
    below = {int(i) for i in np.unique(call["targets"]) if i < 0}
    return _with(ignore_index=below.pop())(reading, call) if len(below) == 1 and below != {-100} else None


FROM_THE_FIRST_KEY = "it is causal, and its mask begins at the first key"
_QKV = ("q", "k", "v")
_LOSS = ("logits", "targets")
_OF_ROWS = (("weight", "bias"), ("gamma",), _QKV, _LOSS)
_1_0 = (0.0, 1.0)

# In stages: at most one convention of each stage holds in a reading.
CONVENTIONS: tuple[tuple[Convention, ...], ...] = (
    (
        Convention(("weight", "bias"), "its weight is stored as (out, in)", _transposed_weight),
        *(Convention(needs, "its examples are columns", _columns) for needs in _OF_ROWS),
        Convention(("gamma",), "its γ counts from 0: it multiplies by 1 + γ", _gamma_from_zero),
        Convention(("gamma",), "it has no γ", _without("gamma", np.ones)),
    ),
    (Convention(("beta",), "it has no β", _without("beta", np.zeros)),),
    (
        Convention(("weight", "bias"), "it stores its vectors as matrices of one row or column", _flat_rows),
        Convention(("gamma",), "it stores its vectors as matrices of one row or column", _flat_rows),
    ),
    (
        Convention(_QKV, "its heads come after the positions, (B, T, H, d)", _heads_third),
        Convention(("x", "positions"), "its heads come after the positions, (B, T, H, d)", _heads_third),
    ),
    (Convention(_QKV, "each of its key and value heads serves a group of query heads", _grouped),),
    (Convention(_QKV, "it returns the heads of a position side by side", _merged),),
    (Convention(("k", "mask"), "its mask is one of keys, (B, T_k)", _of_keys),),
    (
        Convention(("mask",), "its mask is 1 where a query may attend", _of_mask(lambda x: x != 0, "iuf", _1_0)),
        Convention(("mask",), "its mask is True where a query may not attend", _of_mask(np.logical_not, "b")),
        Convention(("mask",), "its mask is 1 where a query may not attend", _of_mask(lambda x: x == 0, "iuf", _1_0)),
        Convention(("k", "mask"), "its mask says how many keys count, (B,)", _lengths),
        Convention(("mask", "bias"), "its mask is added to the scores", _as_bias),
        Convention(("mask",), "its mask is added to the scores", _of_mask(lambda x: x > -1e3, "f")),
    ),
    (
        Convention(_LOSS, "its classes are the second axis, (B, V, T)", _classes_second),
        Convention(_LOSS, "its targets are a column", _column_of_targets),
    ),
    (Convention(_LOSS, "its targets are one-hot", _one_hot),),
    (Convention(("ignore_index",), "it ignores another index", _ignored),),
    (
        Convention(("reduction",), "it sums the losses", _with(reduction="sum")),
        Convention(("reduction",), "it returns the loss of each position", _with(reduction="none")),
        Convention(("causal",), "it is causal", _with(causal=True)),
        Convention((*_QKV, "mask", "causal"), FROM_THE_FIRST_KEY, _causal_from_the_first_key),
        Convention(("approximate",), "it is GELU by tanh", _with(approximate="tanh")),
        Convention(("interleaved",), "its pairs are neighbours, as in the paper", _with(interleaved=True)),
        Convention(("x", "rate", "rng"), "compared under the mask that it drew", _own_mask_of_dropout),
        *(Convention(("eps",), f"its ε is {eps:g}", _with(eps=eps)) for eps in (1e-6, 1e-5, 1e-8, 1e-12, 1e-3)),
    ),
)
