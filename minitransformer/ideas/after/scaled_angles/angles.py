"""The angles of rotary positions for texts longer than those of training.

Rotary positions turn pair i of a head of width d by ω_i at each step (rotary.py),

    ω_i = base^(-2i/d)         for i from 0 to d/2 - 1

so a pair comes round after λ_i = 2π / ω_i tokens. A slow pair never came round in a training text of L tokens. In a
longer text its angles are new, and the model fails. All ways to read s times as many tokens slow pairs down:

    linear      ω_i / s               every pair: no angle is new, but neighbours are harder to tell apart
    dynamic     a larger base         by as much as the text at hand needs; the fastest pair keeps its speed
    yarn        between ω_i and       fast pairs keep their speed, slow ones get ω_i / s, a ramp lies between them;
                ω_i / s               and all scores are multiplied by m²
    llama3      likewise              with a ramp over another quantity, and no m
    longrope    ω_i / f_i             a factor for each pair, found by a search; one list for short texts, one for long

Each function returns (frequencies, m): ω, (d/2,) in float64, and the factor of the cosines and sines. It makes a
turned query and a turned key m times as long, so their score is m² times as large. Angles are constants: nothing here
has a gradient.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Angles = tuple[np.ndarray, float]


def plain(base: float, width: int) -> Angles:
    """ω_i = base^(-2i/width), m = 1. Su et al. 2021, "RoFormer", section 3.2."""
    return base ** (-np.arange(0, width, 2) / width), 1.0


def linear(base: float, width: int, *, factor: float) -> Angles:
    """ω_i / factor, m = 1. Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
    Interpolation", section 2.3: position p lies where p / factor was.
    """
    return plain(base, width)[0] / factor, 1.0


def dynamic(base: float, width: int, *, factor: float, trained: int, length: Any) -> Angles:
    """A base that grows with the text, m = 1. Peng et al. 2023, "YaRN", sections 3.1 and 3.3.

        s = factor · length / trained - (factor - 1)  where length > trained, otherwise 1
        ω_i of the base  base · s^(width / (width - 2))

    So ω_0 is 1 as before, and the slowest pair turns s times more slowly, as with `linear`. length: an integer, or
    integers (..., 1), one for each text; then ω is (..., width/2). Raises ValueError for a
    width below 4.
    """
    if width < 4:
        raise ValueError(
            f"dynamic: the rotated width must be at least 4, since its first pair keeps its speed; got {width}"
        )
    times = np.maximum(length, trained) / trained
    stretch = factor * times - (factor - 1.0)
    return plain(base * stretch ** (width / (width - 2)), width)[0], 1.0


def yarn(
    base: float,
    width: int,
    *,
    factor: float,
    trained: int,
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
    attention: float | None = None,
) -> Angles:
    """(1 - γ_i) ω_i / factor + γ_i ω_i. Peng et al. 2023, "YaRN", sections 3.2 and 3.4.

    Pair i comes round trained · ω_i / 2π times in a training text. One that comes round `fast` times has γ = 1: it
    tells neighbours apart, and keeps its speed. One that comes round `slow` times has γ = 0: it is slowed down by the
    factor. Solved for i, r rounds belong to

        i(r) = width · ln(trained / 2πr) / (2 ln base)

    The paper lets γ fall with the number of rounds; its code, as all published models, with i, from i(fast) to i(slow).
    truncate: these two are rounded, down and up. m is `attention`, by default `sharper(factor)`.
    """
    turns, _ = plain(base, width)
    low = width * np.log(trained / (2.0 * np.pi * fast)) / (2.0 * np.log(base))
    high = width * np.log(trained / (2.0 * np.pi * slow)) / (2.0 * np.log(base))
    first = np.maximum(0.0, np.floor(low) if truncate else low)
    last = np.minimum(width - 1.0, np.ceil(high) if truncate else high)
    span = last - first if last != first else 0.001
    ramp = (np.arange(width // 2) - first) / span
    keep = 1.0 - np.clip(ramp, 0.0, 1.0)
    frequencies = (1.0 - keep) * turns / factor + keep * turns
    return frequencies, sharper(factor) if attention is None else attention


def sharper(factor: float, weight: float = 1.0) -> float:
    """YaRN's m, 0.1 · weight · ln(factor) + 1: a softmax over more keys needs larger scores. 1 if nothing stretches."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def llama3(base: float, width: int, *, factor: float, trained: int, low: float = 1.0, high: float = 4.0) -> Angles:
    """(1 - γ_i) ω_i / factor + γ_i ω_i, m = 1. Grattafiori et al. 2024, "The Llama 3 Herd of Models", and its code.

    γ grows with the number of rounds r_i = trained · ω_i / 2π, from 0 at `low` to 1 at `high`, in a straight line.
    Raises ValueError unless high is above low.
    """
    if high <= low:
        raise ValueError(f"llama3: high must be above low, got {high} and {low}")
    turns, _ = plain(base, width)
    rounds = trained * turns / (2.0 * math.pi)
    keep = ((rounds - low) / (high - low)).clip(0.0, 1.0)
    return (1.0 - keep) * turns / factor + keep * turns, 1.0


def longrope(
    base: float,
    width: int,
    *,
    short: Sequence[float],
    long: Sequence[float],
    trained: int,
    length: Any = 0,
    attention: float = 1.0,
) -> Angles:
    """ω_i / f_i. Ding et al. 2024, "LongRoPE", section 3; with two lists, as in Phi-3 (Abdin et al. 2024).

    f: width/2 factors, `short` for a text of at most `trained` tokens, otherwise `long`. m is `attention`.
    length: an integer, or integers (..., 1), one for each text; then ω is (..., width/2). Raises ValueError for other
    numbers of factors.
    """
    if not len(short) == len(long) == width // 2:
        raise ValueError(
            f"longrope: short and long must have a factor for each of the {width // 2} pairs, got {len(short)} and "
            f"{len(long)}"
        )
    factors = np.where(np.asarray(length) > trained, long, short)
    return plain(base, width)[0] / factors, attention


KINDS: dict[str, Callable[..., Angles]] = {
    "linear": linear,
    "dynamic": dynamic,
    "yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
}


def follow_length(scaled: Mapping[str, Any] | None) -> bool:
    """Whether these angles depend on how long the text is. scaled: as of ScaledRotary."""
    kind = None if scaled is None else scaled["kind"]
    return kind == "dynamic" or (scaled is not None and kind == "longrope" and scaled["short"] != scaled["long"])


def stage(scaled: Mapping[str, Any], length: Any) -> Any:
    """What such angles know of a length: equal stages have equal angles."""
    return length > scaled["trained"] if scaled["kind"] == "longrope" else np.maximum(length, scaled["trained"])
