"""The parts of a layer as numbers for the loop of decoding.py: what each part of the tree becomes.

    norm        whether there is one, whether it subtracts the mean, offset, ε, γ, β; the gain is offset + γ
    turn        a norm, cosines, sines, whether pairs are neighbours
    mix         scale, cap, which keys are seen
    map         weight (weights.py), bias
    sub-layer   its norms: before it, of its update, of the sum

A part is known by its exact class, because methods of other classes may do more. `NoForm` says that a part has no form
in the loop, or that its arrays do not fit there: then the layer runs op by op, and an error comes from the op.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...core.layers import FeedForward, KeyValueCache, LayerNorm, Linear, MultiHeadAttention, RMSNorm, ScaledDotProduct
from ...core.layers.residual import Residual
from ...ideas.after.gated import GatedFeedForward
from ...ideas.after.grouped import Grouped
from ...ideas.after.norm_without_bias.layer import LayerNormWithoutBias
from ...ideas.after.plain_norm.layer import PlainRMSNorm
from ...ideas.after.qk_norm import HeadNorm
from ...ideas.after.rotary import RotaryPositions
from ...ideas.after.sandwich import Normed, NormedUpdate, OffsetRMSNorm
from ...ideas.after.scaled_angles import ScaledRotary
from ...ideas.after.score_bias import Biased
from ...ideas.after.softcap import SoftCapped
from ...ideas.after.window import RollingCache, Window
from ...ideas.published.packed import PackedLinear
from .row_blocks import class_of
from .weights import form_of

_NORMS = {  # whether the mean is subtracted, and what the gain adds to γ
    LayerNorm: (True, 0.0),
    LayerNormWithoutBias: (True, 0.0),
    RMSNorm: (False, 0.0),
    OffsetRMSNorm: (False, 1.0),
    PlainRMSNorm: (False, 0.0),
}
_EMPTY, _NO_ANGLES = np.empty(0, np.float32), np.empty((0, 0), np.float32)
_NO_NORM = (False, False, np.float32(0.0), np.float32(0.0), _EMPTY, _EMPTY)
CACHES = KeyValueCache, RollingCache
_tables: dict[str, tuple[Array, Array]] = {}  # cosines and sines of the first positions


class NoForm(Exception):
    """A part has no form in the loop."""


def network(loops: Any, rooms: Any, x: Array, residual: Any) -> tuple[tuple[Any, ...], int]:
    """The loop's arguments for a feed-forward network, and how many numbers it reads."""
    (n, _, width), (part, norms) = x.shape, _sublayer(residual, x.shape[2])
    gated = class_of(part) is GatedFeedForward
    _require(gated or class_of(part) is FeedForward)
    _require(isinstance(part.activation, str) and part.activation in loops.CURVES)
    hidden = _d_out(part.inner)
    inner = _map(part.inner, width, hidden)
    maps = (_map(part.gate, width, hidden) if gated else inner, inner, _map(part.output, hidden, width))
    weights, biases = zip(*maps, strict=True)
    wide, narrow, terms = (n, hidden), (n, width), loops.PARTS
    room = _room(rooms, narrow, (terms, *wide), (terms, *wide), (terms, *narrow), wide, wide, wide, wide)
    numbers = width * hidden * (2 + gated)
    return (norms, weights, biases, gated, loops.CURVES[part.activation], room), numbers


def attention(
    loops: Any, rooms: Any, x: Array, residual: Any, is_new: bool
) -> tuple[MultiHeadAttention, tuple[Any, ...], int]:
    """An attention, the loop's arguments for it, and how many numbers it reads. is_new: whether it reads the token."""
    (n, _, width), (part, norms) = x.shape, _sublayer(residual, x.shape[2])
    _require(class_of(part) is MultiHeadAttention and part.d_k == part.d_v)
    h, g, d = _heads(part)
    maps = (part.query, width, h * d), (part.key, width, g * d), (part.value, width, g * d), (part.output, h * d, width)
    weights, biases = zip(*(_map(*given) for given in maps), strict=True)
    _require(is_new or part.turn_query is None)
    many, terms, shared = (n, h * d), loops.PARTS, (loops.PARTS, n, g * d)
    room = _room(rooms, (n, width), many, many, (terms, *many), shared, shared, (terms, n, width))
    return part, (norms, weights, biases, is_new, room), 2 * width * d * (h + g * is_new)


def state(loops: Any, rooms: Any, n: int, part: Any, cache: Any, memory: Array | None, mask: Any) -> tuple[Any, ...]:
    """What an attention is given with its cache, which gets room for the new token."""
    is_new, is_late, (h, g, d) = memory is None, type(cache) is RollingCache, _heads(part)
    length = length_of(cache, memory)
    _require(cache.memory is memory and (is_new or part.turn_query is None))
    for buffer in cache.buffers():
        _require(_has(buffer, n, g, buffer.shape[-2], d) and (is_late or buffer.flags.carray))
    mix, bias, is_grouped = _mix(cache.around(part.mix), length, d)
    _require(h == g or is_grouped)
    if mask is not None:
        _require(not is_late and type(mask) is np.ndarray and mask.dtype == bool and mask.ndim == 3)
        _require(mask.shape[0] in (1, n) and mask.shape[1:] == (1, length))
        bias = np.ascontiguousarray(np.where(mask, bias if bias.size else np.float32(0.0), np.float32(-np.inf)))
    keys, values = _with_room(cache, np.empty((n, g, 1, d), np.float32)) if is_new else cache.buffers()
    places = keys.shape[-2] if is_new else 0
    turns = _turn(part.turn_query, d, places), _turn(part.turn_key if is_new else None, d, places)
    _require(turns[0][3] == turns[1][3])
    turned = np.empty((n, g, length if is_late else 0, d), np.float32)
    return turns, mix, bias, keys, values, is_late, turned, *_room(rooms, (loops.PARTS, keys.shape[-2]))


def _heads(part: Any) -> tuple[int, int, int]:
    """How many heads of queries and of keys, and how wide they are."""
    h, d = part.n_heads, part.d_k
    _require(type(h) is type(d) is int and d > 0)
    g = _d_out(part.key) // d
    _require(h >= g > 0 and h % g == 0)
    return h, g, d


def length_of(cache: Any, memory: Array | None) -> int:
    """How many keys a new token sees, its own included."""
    kept = cache.buffers()[0].shape[-2] if type(cache) is RollingCache else cache.length
    return int(kept) + (memory is None)


def _with_room(cache: Any, row: Array) -> tuple[Array, Array]:
    """Keys and values with room for a row more. Those of a cache that forgets are copies."""
    if type(cache) is not RollingCache:
        return cache.make_room(row)
    keys, values = (np.ascontiguousarray(np.concatenate([old, row], axis=-2)) for old in cache.read())
    return keys, values


def keep(cache: Any, keys: Array, values: Array) -> None:
    """Count the token that the loop has written into these arrays as one that the cache has read."""
    if type(cache) is RollingCache:
        cache.extend(keys[..., -1:, :], values[..., -1:, :])
    else:
        cache.length += 1


def numbers_of(given: tuple[Any, ...]) -> Iterator[int]:
    """The loop's arguments as integers: of each array its address and its lengths, of each float32 its bits."""
    for item in given:
        if isinstance(item, tuple):
            yield from numbers_of(item)
        elif isinstance(item, np.ndarray):
            _require(item.flags.c_contiguous)  # the loop knows no strides
            yield from (item.ctypes.data, *item.shape)
        else:
            yield int(item.view(np.int32) if isinstance(item, np.float32) else item)


def _sublayer(residual: Any, width: int) -> tuple[Any, tuple[Any, ...]]:
    """A sub-layer, and the norms before it, of its update, and of the sum."""
    kind, part, before, after, last = class_of(residual), residual.sublayer, None, None, None
    _require(kind is NormedUpdate or (kind is Residual and residual.order in ("pre", "post")))
    if kind is NormedUpdate:
        after = residual.norm
    elif residual.order == "pre":
        before = residual.norm
    else:
        last = residual.norm
    if class_of(part) is Normed and after is None:
        part, after = part.sublayer, part.norm
    return part, tuple(_norm(norm, width) for norm in (before, after, last))


def _norm(norm: Any, width: int) -> tuple[Any, ...]:
    if norm is None:
        return _NO_NORM
    _require(class_of(norm) in _NORMS and type(norm.eps) in (int, float) and 0.0 < norm.eps < math.inf)
    is_centred, offset = _NORMS[class_of(norm)]
    gain, shift = norm.gamma.value, norm.beta.value if hasattr(norm, "beta") else _EMPTY
    _require(_fits(gain, width) and (shift is _EMPTY or _fits(shift, width)))
    return True, is_centred, np.float32(offset), np.float32(norm.eps), gain, shift


def _map(part: Any, d_in: int, d_out: int) -> tuple[Any, Array]:
    kind = class_of(part)
    _require(kind is Linear or kind is PackedLinear)
    bias = _EMPTY if part.bias is None else part.bias.value
    weight = form_of(part.weight if kind is PackedLinear else part.weight.value)
    _require(weight is not None and part.d_in == d_in and part.d_out == d_out)
    _require(bias is _EMPTY or _fits(bias, d_out))
    return weight, bias


def _d_out(part: Any) -> int:
    kind = class_of(part)
    _require(kind is PackedLinear or (kind is Linear and part.weight.value.ndim == 2))
    return int(part.d_out)


def _mix(mix: Any, length: int, d: int) -> tuple[tuple[Any, ...], Array, bool]:
    """Scale, cap, and which keys are seen; a bias of the scores; whether heads share keys."""
    width, always, grouped = 0, 0, False
    while (kind := class_of(mix)) in (Grouped, Window):
        if kind is Window:
            _require(not width)
            width, always = mix.width, mix.always
        grouped, mix = grouped or kind is Grouped, mix.inner
    _require(kind in (ScaledDotProduct, SoftCapped, Biased))
    scale = 1.0 / math.sqrt(d) if mix.scale is None else mix.scale
    bias = np.empty((1, 1, 0), np.float32)
    if kind is Biased:
        bias = mix.bias(1, length, like=_EMPTY)[0].reshape(1, -1, length)
        _require(bias.dtype == np.float32 and bias.flags.carray)
    return (np.float32(scale), np.float32(getattr(mix, "cap", 0.0)), always, width), bias, grouped


def _turn(turn: Any, d: int, n: int) -> tuple[Any, ...]:
    """The turn of vectors at the first n positions, or more."""
    norm = _NO_NORM
    if class_of(turn) is HeadNorm:
        norm, turn = _norm(turn.norm, d), turn.then
    if turn is None:
        return norm, _NO_ANGLES, _NO_ANGLES, False
    _require(class_of(turn) is RotaryPositions or (class_of(turn) is ScaledRotary and turn.follows is None))
    return norm, *_angles(turn, d, n), bool(turn.interleaved)


def _angles(turn: Any, d: int, n: int) -> tuple[Array, Array]:
    """Cosines and sines of at least n positions: the turn of vectors whose pairs are all (1, 0)."""
    name = f"{d} {vars(turn)}"
    if name not in _tables or len(_tables[name][0]) < n:
        width = getattr(turn, "width", None) or d
        _require(width % 2 == 0 and width <= d)
        vectors = np.zeros((max(256, 2 * n), d), np.float32)
        a, b = (slice(i, width, 2) if turn.interleaved else slice(i * width // 2, (i + 1) * width // 2) for i in (0, 1))
        vectors[:, a] = 1.0
        turned = turn(vectors)[0]
        if len(_tables) > 64:
            _tables.clear()
        _tables[name] = np.ascontiguousarray(turned[:, a]), np.ascontiguousarray(turned[:, b])
    return _tables[name]


def _require(holds: bool) -> None:
    if not holds:
        raise NoForm


def _fits(x: Any, *shape: int) -> bool:
    """Whether the loop may read these numbers. It would read past the end of a shorter array."""
    return _has(x, *shape) and x.flags.carray


def _has(x: Any, *shape: int) -> bool:
    return type(x) is np.ndarray and x.dtype == np.float32 and x.shape == shape


def _room(rooms: Any, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    """Empty arrays, the same for all sub-layers of these shapes."""
    if shapes not in rooms:
        rooms[shapes] = tuple(np.empty(shape, np.float32) for shape in shapes)
    return rooms[shapes]
