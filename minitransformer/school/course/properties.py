"""What the numbers of a wrong output show that no known mistake explains.

A remark is on what is obvious: it is transposed, always the same, or off by one factor or summand. A property is one of
the right output in every trial: each row sums to 1, no entry is negative, its rows are as long as those of an input. It
is told if the answer breaks it. Then it is said where the answer is right, if that is a pattern.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...check.verify.pattern import pattern
from .comparison import TOLERANCE, Compared, close, differing, of_one_kind

Values = list[np.ndarray]  # one for each trial
_ROUNDING = 1e-6


def remark(compared: Compared, i: int) -> str:
    """A sentence on output i, which is wrong in some trial, or "".

    It must hold in every trial: the output is transposed, always the same, or wrong by one factor or summand.
    """
    if said := _transposed(compared, i) or _constant(compared.got[i]) or _by_summand(compared, i):
        return said
    factors = [factor for factor, _, _ in _factors(compared, i)]
    if not factors or not np.allclose(factors, factors[0], rtol=10.0 * TOLERANCE):
        return ""
    if abs(factors[0] + 1.0) < 10.0 * TOLERANCE:
        return "It has the wrong sign but is otherwise right."
    if abs(factors[0]) < TOLERANCE:
        return "It is zero but for rounding, and must not be."
    return f"It is {factors[0]:.6g} times what it should be."


def changing_factor(compared: Compared, i: int) -> str:
    """A sentence on an output that is wrong by a factor which is not the same for all inputs, or ""."""
    telling = [(factor, where) for factor, where, size in _factors(compared, i) if size > 1]
    (least, here), (most, there) = min(telling, default=(0.0, "")), max(telling, default=(0.0, ""))
    if np.isclose(least, most):
        return ""
    return (
        "It is what it should be times a factor that depends on the inputs. "
        f"The factor is {least:.6g} for {here}, and {most:.6g} for {there}."
    )


def _transposed(compared: Compared, i: int) -> str:
    for x, right, scale in zip(compared.got[i], compared.expected[i], compared.scales[i], strict=True):
        if isinstance(x, str) or x.ndim < 2 or not close(x.swapaxes(-1, -2), right, scale):
            return ""
    how = ".T" if compared.expected[i][0].ndim == 2 else ".swapaxes(-1, -2)"
    return f"It is the transpose of what was expected: transpose it once more, with {how}."


def _constant(got: list[np.ndarray | str]) -> str:
    values = {x for one in got if isinstance(one, np.ndarray) and one.dtype.kind in "bf" for x in np.unique(one)}
    if len(values) != 1 or any(isinstance(one, str) for one in got):
        return ""
    value: object = values.pop().item()
    if isinstance(value, float):
        value = "zero" if value == 0.0 else f"{value:.6g}"
    return f"It is {value} for all inputs." if all(np.ndim(x) == 0 for x in got) else f"All its entries are {value}."


def _numbers(compared: Compared, i: int) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Both as numbers, and their scale, for each trial; nothing unless they can be compared in all."""
    got: list[Any] = compared.got[i]
    rights = compared.expected[i]
    if not all(compared.comparable(i, j) and np.isfinite(right).all() for j, right in enumerate(rights)):
        return []
    if not all(map(of_one_kind, got, rights)):
        return []
    return [
        (x.astype(np.float64), right, scale) for x, right, scale in zip(got, rights, compared.scales[i], strict=True)
    ]


def _by_summand(compared: Compared, i: int) -> str:
    trials = _numbers(compared, i)
    summands = [float((x - right).mean()) for x, right, _ in trials]
    if not trials or not all(close(x - summands[0], right, scale) for x, right, scale in trials):
        return ""
    everywhere = " everywhere" if any(right.size > 1 for _, right, _ in trials) else ""
    return f"It is {abs(summands[0]):.6g} too {'large' if summands[0] > 0 else 'small'}{everywhere}."


def _factors(compared: Compared, i: int) -> list[tuple[float, str, int]]:
    """For each trial the factor by which it is off, the inputs and the number of entries; nothing if one is not.

    Of one entry a factor says nothing: any number is a multiple of any other. Of zeros neither.
    """
    factors = []
    for (x, right, scale), where in zip(_numbers(compared, i), compared.inputs, strict=False):
        norm = float((right * right).sum())
        factor = float((x * right).sum()) / norm if norm else 1.0
        if not close(x, factor * right, scale):
            return []
        if abs(right).max() > TOLERANCE * scale:
            factors.append((factor, where, right.size))
    return factors


def failing(compared: Compared, i: int) -> str:
    """What fails of the right output in this one, and where it is right: at most two sentences, or ""."""
    got: list[Any] = compared.got[i]
    right, scales = compared.expected[i], compared.scales[i]
    arguments = dict(zip(compared.exercise.arguments, map(list, zip(*compared.trials, strict=True)), strict=True))
    if not all(map(_comparable, got, right)):
        return ""
    if not all(np.isfinite(x).all() for x in [*got, *right]):
        return _in_finite_rows(got, right)
    if right[0].dtype.kind == "b":
        return _hidden_and_allowed(got, right)
    told = [*_sums(got, right), *_range(got, right), *_same_numbers(got, right), *_lengths(got, right, arguments)]
    told += [*_clipped(got, right, scales), *_rank(got, right), *_shared_difference(got, right, scales)]
    where = list(_where(got, right, compared.places(i), arguments))
    if told or where:
        return " ".join([*told[:1], *where[:1]])
    usual = [j for j in range(compared.last) if right[j].size > 1 or right[0].size == 1]
    ours, rights, of = [got[j] for j in usual], [right[j] for j in usual], [scales[j] for j in usual]
    rest = [*_sharpness(ours, rights), *_right_lines(ours, rights, of), *_one_sided(ours, rights, of)]
    return "".join([*rest, *_zeros(got, right)][:1])


def _comparable(got: Any, right: np.ndarray) -> bool:
    return not isinstance(got, str) and got.shape == right.shape and of_one_kind(got, right)


def _in_finite_rows(got: Values, right: Values) -> str:
    """What fails in the rows without NaN and infinity, as where exp overflows in some."""
    finite = [np.isfinite(a).all(axis=-1) & np.isfinite(b).all(axis=-1) for a, b in _pairs(got, right) if b.ndim > 1]
    ours, rights = ([x[rows] for x, rows in zip(xs, finite, strict=False) if rows.any()] for xs in (got, right))
    told = "".join([*_sums(ours, rights, "row"), *_range(ours, rights)][:1]) if ours else ""
    return told and f"Where it is finite: {told[0].lower()}{told[1:]}"


def _hidden_and_allowed(got: Values, right: Values) -> str:
    more = sum(int((a & ~b).sum()) for a, b in zip(got, right, strict=True))
    less = sum(int((b & ~a).sum()) for a, b in zip(got, right, strict=True))
    hidden, allowed = (sum(int(x.sum()) for x in xs) for xs in ([~b for b in right], right))
    said = []
    if more:
        said.append(f"allows {more} of the {hidden} places that must be hidden")
    if less:
        said.append(f"hides {less} of the {allowed} places that must be allowed")
    only = "" if more and less else ", and all others are right"
    return f"Over all inputs it {' and '.join(said)}{only}."


def _sums(got: Values, right: Values, only: str = "") -> Iterator[str]:
    """Each row (or column) of the right output has one sum, 0 or 1; these have others."""
    for axis, word in ((-1, "row"), (-2, "column")):
        if right[0].ndim < -axis or only not in ("", word):
            return
        if right[0].ndim == 1:
            word = "one"
        sums = [(a.sum(axis=axis), b.sum(axis=axis), abs(b).max(axis=axis, initial=0.0)) for a, b in _pairs(got, right)]
        ours, rights, largest = (
            np.concatenate([np.atleast_1d(x).ravel() for x in xs]) for xs in zip(*sums, strict=True)
        )
        ours, rights, largest = (x[largest > 0.0] for x in (ours, rights, largest))  # a row that is hidden has no sum
        for total in (0.0, 1.0):
            near = _ROUNDING * np.maximum(largest, 1.0)
            if len(rights) and (abs(rights - total) < near).all() and not (abs(ours - total) < 100.0 * near).all():
                of = "Its entries sum" if word == "one" else f"Its {word}s sum"
                each = "" if word == "one" else " each"
                yield f"{of} to {_span(np.round(ours, 6))}; they must sum to {total:g}{each}."
                return


def _range(got: Values, right: Values) -> Iterator[str]:
    least, most = (min(f(x) for x in xs) for f, xs in ((np.min, right), (np.min, got)))
    if least >= 0.0 > most + _ROUNDING:
        yield f"It has negative entries, down to {most:.4g}; none may be negative."
    least, most = (max(f(x) for x in xs) for f, xs in ((np.max, right), (np.max, got)))
    if least <= 0.0 < most - _ROUNDING:
        yield f"It has positive entries, up to {most:.4g}; none may be positive."


def _same_numbers(got: Values, right: Values) -> Iterator[str]:
    """Whether it has the right numbers, in other places."""
    for axis, said in ((-1, "Each row holds the right numbers, in another order."), (None, "")):
        pairs = [(np.sort(a, axis=axis), np.sort(b, axis=axis)) for a, b in _pairs(got, right) if b.ndim]
        if pairs and all(np.allclose(a, b, rtol=1e-4, atol=1e-9) for a, b in pairs):
            yield said or "It holds the right numbers, but not in their places: an axis or a reshape is mixed up."
            return


def _lengths(got: Values, right: Values, arguments: dict[str, list[Any]]) -> Iterator[str]:
    """Each row of the right output is as long as that of an input, as after a rotation."""
    for name, given in arguments.items():
        if all(np.ndim(x) > 1 and np.shape(x) == b.shape for x, b in zip(given, right, strict=True)):
            ours, rights, wanted = ([np.linalg.norm(x, axis=-1) for x in xs] for xs in (got, right, given))
            if all(np.allclose(a, b, rtol=_ROUNDING) for a, b in zip(rights, wanted, strict=True)):
                ratio = np.concatenate([(a / b).ravel() for a, b in zip(ours, wanted, strict=True)])
                if not np.allclose(ratio, 1.0, rtol=1e-4):
                    yield f"Its rows are {_span(ratio)} times as long as those of {name}; they must be as long."


def _zeros(got: Values, right: Values) -> Iterator[str]:
    """Entries that are zero in one of the two, in all trials together."""
    for one, other, said in (
        (right, got, "It must be zero in {} of its {} entries, and is not in {} of these."),
        (got, right, "It is zero in {} of its {} entries, and must not be in {} of these."),
    ):
        zeros = sum(int((a == 0.0).sum()) for a in one)
        missed = sum(int(((a == 0.0) & (abs(b) > 1e-9 * abs(b).sum())).sum()) for a, b in zip(one, other, strict=True))
        size = sum(x.size for x in right)
        if missed > 0.02 * size and size > 30:
            yield said.format(zeros, size, missed)
            return


def _rank(got: Values, right: Values) -> Iterator[str]:
    """Whether all rows are equal, or multiples of each other, where those of the right output are not."""
    pairs = [pair for pair in _pairs(got, right) if pair[1].ndim > 1 and min(pair[1].shape[-2:]) > 1]
    if len(pairs) > 2:
        if all(np.ptp(a, axis=-2).max() < _ROUNDING * abs(a).max() < np.ptp(b, axis=-2).max() for a, b in pairs):
            yield "All its rows are equal; they must differ."
        elif all(_is_product(a) and not _is_product(b) for a, b in pairs):
            yield "All its rows are multiples of one row; they must not be."


def _is_product(x: np.ndarray) -> bool:
    singular = np.linalg.svd(x.reshape(-1, *x.shape[-2:]), compute_uv=False)
    return bool((singular[:, 1] < _ROUNDING * singular[:, 0]).all())


def _shared_difference(got: Values, right: Values, scales: list[float]) -> Iterator[str]:
    """Whether all rows (or columns) are off by the same numbers."""
    for axis, word in ((-2, "row"), (-1, "column")):
        trials = [i for i, x in enumerate(right) if x.ndim > 1 and min(x.shape[-2:]) > 1]
        off = [got[i] - right[i] for i in trials]
        if len(off) > 2 and all(
            close(x - x.mean(axis=axis, keepdims=True), 0.0 * x, scales[i]) for i, x in zip(trials, off, strict=True)
        ):
            yield f"The same numbers are added to each {word}: all {word}s are off alike."
            return


def _sharpness(got: Values, right: Values) -> Iterator[str]:
    """Of weights that sum to one as they must: whether they are too even, or too uneven."""
    if not all(
        x.ndim and x.shape[-1] and (x >= 0.0).all() and np.allclose(x.sum(-1), 1.0, atol=1e-5) for x in [*got, *right]
    ):
        return
    ours, rights = (np.concatenate([x.max(axis=-1).ravel() for x in xs]) for xs in (got, right))
    for sign, word in ((1.0, "even"), (-1.0, "uneven")):
        if (sign * (rights - ours) > -1e-9).all():
            yield (
                f"Its rows sum to 1, as they must, but are too {word}: the largest weight of a row is "
                f"{ours.mean():.3g} on average; it must be {rights.mean():.3g}. Are the scores those of the exercise?"
            )


def _right_lines(got: Values, right: Values, scales: list[float]) -> Iterator[str]:
    """How many rows are right; or entries."""
    wrong = [differing(a, b, scale) for a, b, scale in zip(got, right, scales, strict=True)]
    rows = np.concatenate([x.any(axis=-1).ravel() if x.ndim > 1 else x.ravel() for x in wrong])
    word = "rows" if right[0].ndim > 1 else "entries"
    if right[0].ndim and 0 < rows.sum() < 0.9 * len(rows):
        yield f"{len(rows) - int(rows.sum())} of its {len(rows)} {word} are right, over all inputs; which are these?"


def _one_sided(got: Values, right: Values, scales: list[float]) -> Iterator[str]:
    """Whether every entry is too large, or too small, or has the right sign but another size."""
    ours, rights = (np.concatenate([np.ravel(x) for x in xs]) for xs in (got, right))
    off, noise = ours - rights, 1e-5 * max(scales)
    for sign, word in ((1.0, "large"), (-1.0, "small")):
        if (sign * off > -noise).all():
            what = "For all usual inputs it is" if right[0].ndim == 0 else "All its entries are right or"
            yield f"{what} too {word}, by up to {float((sign * off).max()):.4g}."
            return
    if right[0].ndim:
        norm, pairs = np.linalg.norm, _pairs(got, right)
        cosines = [float((a * b).sum() / (norm(a) * norm(b) or 1.0)) for a, b in pairs]
        if min(cosines) > 0.9:
            lengths = [norm(a) / norm(b) for a, b in pairs]
            yield (
                f"It is near: the cosine with what it should be is {min(cosines):.3g} or more, and it is "
                f"{_span(np.array(lengths))} times as long."
            )
            return
    if (ours * rights >= 0.0).all() and (rights != 0.0).all() and rights.min() < 0.0 < rights.max():
        ratio = ours / rights
        yield f"All its signs are right, but its entries are {_span(ratio)} times as large as they must be."


def _clipped(got: Values, right: Values, scales: list[float]) -> Iterator[str]:
    """Whether all wrong entries have one size, and are no larger than the right ones."""
    wrong = [differing(a, b, scale) for a, b, scale in zip(got, right, scales, strict=True)]
    ours, rights = (abs(np.concatenate([x[y] for x, y in zip(xs, wrong, strict=True)])) for xs in (got, right))
    if len(ours) > 3 and 0.0 < ours.max() - 1e-9 <= ours.min() and (rights > ours).all():
        yield f"All wrong entries are {ours.max():.4g} or -{ours.max():.4g}, and must be larger: is something clipped?"


def _where(got: Values, right: Values, wrong: list[int], arguments: dict[str, list[Any]]) -> Iterator[str]:
    """Which trials are right, by an argument; or the pattern that the wrong entries have in all of them."""
    last = len(got) - 1
    if wrong == [last]:
        yield "It is right for all usual inputs, and wrong only for the last, whose numbers are extreme."
    elif len(wrong) < len(got):
        for name, given in arguments.items():
            if all(isinstance(x, int | float) for x in given):
                good, bad = ([x for i, x in enumerate(given) if (i in wrong) is of] for of in (False, True))
                for less, more, words in ((good, bad, ("up to", "from")), (bad, good, ("from", "up to"))):
                    if max(less) < min(more) and min(len(good), len(bad)) > 1:
                        ends = (max(good), min(bad)) if less is good else (min(good), max(bad))
                        yield f"It is right for {name} {words[0]} {ends[0]:.4g}, and wrong {words[1]} {ends[1]:.4g}."
    yield from _lines(got, right, [i for i in wrong if i != last])
    told = [pattern("It", got[i].astype(float), right[i].astype(float)) for i in wrong if right[i].size > 1]
    if told and all(told) and len({re.sub(r"[-\d.]+(e[+-]\d+)?", "#", one) for one in told}) == 1:
        yield f"{told[0]}" if len(set(told)) == 1 else f"{told[0]} It is alike for the other inputs."


def _lines(got: Values, right: Values, wrong: list[int]) -> Iterator[str]:
    """Whether in all these trials the first row alone is right or wrong, or the last; or column, and so on."""
    n = right[0].ndim
    words = {n - 1: "column", n - 2: "row"} if n > 1 else {0: "entry"}
    for axis in range(n):
        word = words.get(axis, f"index along axis {axis}")
        others = tuple(j for j in range(n) if j != axis)
        lines = [(abs(got[i] - right[i]) > 1e-5 * abs(right[i]).max()).any(axis=others) for i in wrong]
        lines = [line for line in lines if len(line) > 1]
        for place, which in ((0, "first"), (-1, "last")):
            for is_wrong, said in ((True, "It is wrong only in the {} {}."), (False, "It is right only in the {} {}.")):
                if len(lines) > 2 and all(
                    line[place] == is_wrong and (np.delete(line, place) != is_wrong).all() for line in lines
                ):
                    yield said.format(which, word)


def _pairs(got: Values, right: Values) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(a.astype(np.float64), b) for a, b in zip(got, right, strict=True)]


def _span(values: np.ndarray) -> str:
    low, high = float(values.min()) + 0.0, float(values.max()) + 0.0
    return f"{low:.4g}" if np.isclose(low, high) else f"between {low:.4g} and {high:.4g}"
