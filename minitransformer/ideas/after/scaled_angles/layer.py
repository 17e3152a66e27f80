"""Rotary positions with scaled angles, or in a part of each head, in the socket `turn`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ....core.arrays.backend import Array, Pullback, array_module, to_numpy
from ....core.arrays.boundary import check_array, check_positive
from ....core.arrays.declared import declared
from ....core.layers import Module
from ..rotary import rotary_turn
from ..rotate import rotate
from .angles import KINDS, Angles, follow_length, plain, stage


class ScaledRotary(Module):
    """Rotate the first `width` numbers of each vector by scaled angles. heads: (..., H, T, d); turned: like heads.

    scaled: {"kind": one of KINDS, and its options}, such as {"kind": "linear", "factor": 4.0}; None: `plain`.
    width: even, d unless given; the other numbers do not depend on the position (Black et al. 2022, "GPT-NeoX-20B",
    section 2.1.1). interleaved: of `rotate`. Nothing is learned. Raises ValueError for an unknown kind or option.

    Backward. Each pair is multiplied by m times a rotation by θ. The transpose of that is m times the rotation by -θ,
    so the gradient takes the same way with -sin θ. The angles are constants.

    The angles of `dynamic` and `longrope` depend on the length of the text: the largest position of a sequence in this
    call, plus 1. Keys that were turned in an earlier call do not follow: RuntimeError. The model in
    published/rereading.py reads them again.
    """

    @declared("base > 0")
    def __init__(
        self,
        base: float = 10000.0,
        scaled: Mapping[str, Any] | None = None,
        width: int | None = None,
        interleaved: bool = False,
    ) -> None:
        self.base, self.width, self.interleaved = float(base), width, interleaved
        self.angles = _checked(scaled)
        self.follows = dict(scaled) if scaled is not None and follow_length(scaled) else None

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward). positions: integers (..., T), where they do not count from `start`."""
        if positions is not None:
            check_array("ScaledRotary", "positions", positions)
        cos, sin = self._turns(heads, start, positions)
        turned, _ = rotate(heads, cos, sin, self.interleaved)

        def backward(dturned: Array) -> Array:
            dheads, _ = rotate(dturned, cos, -sin, self.interleaved)
            return dheads

        return turned, backward

    def _turns(self, heads: Array, start: int, positions: Array | None) -> tuple[Array, Array]:
        """m cos θ and m sin θ, (..., T, width/2), of angles in float64."""
        xp = array_module(heads)
        at = xp.arange(start, start + heads.shape[-2]) if positions is None else positions[..., None, :]
        options = {}
        if self.follows is not None:  # the length of each text
            length, before = (to_numpy(x)[..., None, None] for x in (at.max(axis=-1) + 1, at.min(axis=-1)))
            if start and (stage(self.follows, length) != stage(self.follows, before)).any():
                raise RuntimeError(
                    "ScaledRotary: the angles change with the length of the text, so the keys in the cache are stale; "
                    "build the model with config.build(), which reads the text again"
                )
            options = {"length": length}
        width = heads.shape[-1] if self.width is None else self.width
        frequencies, m = self.angles(self.base, width, **options)
        angles = at[..., None] * xp.asarray(frequencies)
        return (m * xp.cos(angles)).astype(heads.dtype), (m * xp.sin(angles)).astype(heads.dtype)


def _checked(scaled: Mapping[str, Any] | None) -> Callable[..., Angles]:
    """The function of angles, with its options."""
    if scaled is None:
        return plain
    options = {name: value for name, value in scaled.items() if name != "kind"}
    kind = scaled.get("kind")
    if kind not in KINDS:
        raise ValueError(f"ScaledRotary: kind must be one of {', '.join(KINDS)}, got {str(kind)[:40]!r}")
    takes = [one for one in inspect.signature(KINDS[kind]).parameters.values() if one.kind is one.KEYWORD_ONLY]
    known = {one.name: one.default is one.empty for one in takes if one.name != "length"}
    missing, unknown = [name for name in known if known[name] and name not in options], options.keys() - known.keys()
    if missing or unknown:
        wrong = f"{', '.join(missing)} is missing" if missing else f"got {', '.join(sorted(unknown))[:40]}"
        raise ValueError(f"ScaledRotary: {kind} takes {', '.join(known)}; {wrong}")
    check_positive("ScaledRotary", **{name: x for name, x in options.items() if type(x) in (int, float)})
    return functools.partial(KINDS[kind], **options)


def scaled_turn(base: float = 10000.0, scaled: Mapping[str, Any] | None = None, width: int | None = None) -> Any:
    """What turns queries and keys alike, the `turn` of a MultiHeadAttention: RotaryPositions where that is enough."""
    if scaled is None and width is None:
        return rotary_turn(base)
    positions = ScaledRotary(base, scaled, width)
    return positions, positions
