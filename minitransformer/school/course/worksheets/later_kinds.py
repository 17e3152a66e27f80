"""Worksheets of what came before the Transformer and after it: an LSTM through two steps, rotary positions, routing."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np

from .... import ideas
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw
from .sheet import LN2, UNITS, Given, Run, kind


def _logit(p: Array) -> Array:
    return np.log(p / (1.0 - p))


def two_lstm_steps(
    f1: Array, i1: Array, g1: Array, o1: Array, f2: Array, i2: Array, g2: Array, o2: Array, c0: Array
) -> tuple[Array, Pullback]:
    """h = (h1; h2) of two steps of ideas.lstm_cell whose gates do not read the state. Each argument: (1, n).

    f, i, o are the gates after σ, and g the candidate after tanh. backward(dh) returns the gradients of all nine.
    """
    n = c0.shape[-1]
    unread = np.zeros((n, 4 * n), c0.dtype)
    zeros = np.zeros_like(c0)
    sums1 = np.concatenate([_logit(i1), _logit(f1), np.arctanh(g1), _logit(o1)], axis=-1)
    sums2 = np.concatenate([_logit(i2), _logit(f2), np.arctanh(g2), _logit(o2)], axis=-1)
    state1, backward1 = ideas.lstm_cell(sums1, np.concatenate([zeros, c0], axis=-1), unread)
    state2, backward2 = ideas.lstm_cell(sums2, state1, unread)
    h = np.concatenate([state1[:, :n], state2[:, :n]])

    def backward(dh: Array) -> tuple[Array, ...]:
        of_sums2, from_second, _ = backward2(np.concatenate([dh[1:], zeros], axis=-1))
        dstate1 = from_second + np.concatenate([dh[:1], zeros], axis=-1)
        of_sums1, of_start, _ = backward1(dstate1)
        gradients: list[Array] = []
        for of_sums, f, i, g, o in ((of_sums1, f1, i1, g1, o1), (of_sums2, f2, i2, g2, o2)):
            of_i, of_f, of_g, of_o = np.split(of_sums, 4, axis=-1)
            gradients += [of_f / (f * (1 - f)), of_i / (i * (1 - i)), of_g / (1 - g * g), of_o / (o * (1 - o))]
        return *gradients, of_start[:, n:]

    return h, backward


@cache
def _tidy_cells(start: int) -> tuple[tuple[int, int, int, int], ...]:
    """(f, i, g, c), all in tenths, such that f c + i g is 1 or -1. start: c, in tenths; 0 for any."""
    found = []
    for f, i, g in itertools.product(range(1, 10), range(1, 10), [*range(-14, 0), *range(1, 15)]):
        for c in [start] if start else [*range(-40, 0), *range(1, 41)]:
            if abs(f * c + i * g) == 100:
                found.append((f, i, g, c))
    return tuple(found)


@kind(2, 4)
def lstm_backward(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """An LSTM, backward through two steps.

    f, i, o are the gates after σ, g the candidate after tanh, as computed from the inputs; c0 is the initial cell. ⊙
    multiplies entry by entry.

    Cells are multiples of ln 2; the boxes hold the factor. tanh(ln 2) = 0.6 and tanh(−ln 2) = −0.6.

    The gradient of c1 arrives along two paths: from c2, and from h1.

    c1 = f1 ⊙ c0 + i1 ⊙ g1 | f1 * c0 + i1 * g1 | lstm_cell.new_cell | unit ln 2
    s1 = tanh(c1) | np.tanh(c1) | lstm_cell.shown
    c2 = f2 ⊙ c1 + i2 ⊙ g2 | f2 * c1 + i2 * g2 | lstm_cell#2.new_cell | unit ln 2
    s2 = tanh(c2) | np.tanh(c2) | lstm_cell#2.shown
    h = o1 ⊙ s1 in row 1, o2 ⊙ s2 in row 2 | np.concatenate([o1 * s1, o2 * s2]) | two_lstm_steps.h
    dc2 = row 2 of dh ⊙ o2 ⊙ (1 − s2²) | dh[1:] * o2 * (1 - s2**2)
    do2 = row 2 of dh ⊙ s2 | dh[1:] * s2
    df2 = dc2 ⊙ c1 | dc2 * c1 | | unit ln 2
    di2 = dc2 ⊙ g2 | dc2 * g2 | | unit ln 2
    dg2 = dc2 ⊙ i2 | dc2 * i2
    dc1 = dc2 ⊙ f2 + row 1 of dh ⊙ o1 ⊙ (1 − s1²) | dc2 * f2 + dh[:1] * o1 * (1 - s1**2) | lstm_cell.dnew_cell
    do1 = row 1 of dh ⊙ s1 | dh[:1] * s1
    df1 = dc1 ⊙ c0 | dc1 * c0 | | unit ln 2
    di1 = dc1 ⊙ g1 | dc1 * g1 | | unit ln 2
    dg1 = dc1 ⊙ i1 | dc1 * i1
    dc0 = dc1 ⊙ f1 | dc1 * f1 | lstm_cell.dcell
    """
    tenths: dict[str, list[int]] = {name: [] for name in "f1 i1 g1 o1 f2 i2 g2 o2 c0".split()}
    for _ in range(size):
        f1, i1, g1, c0 = draw.choose(_tidy_cells(0))
        f2, i2, g2, _c1 = draw.choose(_tidy_cells((f1 * c0 + i1 * g1) // 10))
        o1, o2 = draw.choose(range(1, 10)), draw.choose(range(1, 10))
        for name, number in zip(tenths, (f1, i1, g1, o1, f2, i2, g2, o2, c0), strict=True):
            tenths[name].append(number)
    units = {name: "0.1 ln 2" if name[0] in "gc" else "0.1" for name in tenths}
    values = {name: np.array([row]) * UNITS[units[name]] for name, row in tenths.items()}
    dh = 5.0 * draw.matrix(-2, 2, 2, size)
    given = [*(Given(name, values[name], units[name]) for name in values), Given("dh", dh)]
    return given, lambda: (*two_lstm_steps(*values.values()), dh)


_TURN = np.array([[0.6, 0.8], [-0.8, 0.6]])  # a row times this is turned by the angle whose cosine is 0.6
_BASE = math.acos(0.6) ** -2.0  # of rotary positions whose second pair turns by that angle at each position


def rotated_scores(q: Array, k: Array) -> tuple[Array, Pullback]:
    """scores = q' k'ᵀ, with row p of q and k turned by p times the angle of _TURN. q: (T_q, 2); k: (T_k, 2).

    It is the second of two pairs of ideas.rotary; the first is zero. backward(dscores) returns (dq, dk).
    """
    turned_q, q_backward = ideas.rotary(_second_pair(q), base=_BASE)
    turned_k, k_backward = ideas.rotary(_second_pair(k), base=_BASE)
    scores = turned_q @ turned_k.T

    def backward(dscores: Array) -> tuple[Array, Array]:
        dturned_q = dscores @ turned_k
        dturned_k = dscores.T @ turned_q
        return q_backward(dturned_q)[:, 1::2], k_backward(dturned_k)[:, 1::2]

    return scores, backward


def _second_pair(x: Array) -> Array:
    wide = np.zeros((len(x), 4), x.dtype)
    wide[:, 1::2] = x
    return wide


@kind(3, 3)
def rotary(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """Rotary positions, by hand.

    The rows of q and k are at the positions 0, 1, 2. Position p multiplies its row by R p times: row 0 stays, row 1 is
    multiplied by R, row 2 by R².

    R is a rotation by the angle with cosine 0.6 and sine 0.8, so its transpose turns back.

    Compare scores on one diagonal: with equal queries and equal keys, they would be equal.

    R² = R R | R @ R
    q' = rows of q, turned | turned(q, R)
    k' = rows of k, turned | turned(k, R)
    scores = q' k'ᵀ | q_ @ k_.T | rotated_scores.scores
    dq' = dscores k' | dscores @ k_
    dk' = dscoresᵀ q' | dscores.T @ q_
    dq = rows of dq', turned back | turned(dq_, R.T)
    dk = rows of dk', turned back | turned(dk_, R.T)
    """
    q, k = draw.matrix(-3, 3, size, 2), draw.matrix(-3, 3, 3, 2)
    dscores = draw.matrix(-2, 2, size, 3)
    given = [Given("q", q), Given("k", k), Given("R", _TURN, "0.1"), Given("dscores", dscores)]
    return given, lambda: (*rotated_scores(q, k), dscores)


def two_of_many(logits: Array, outputs: Array) -> tuple[Array, Pullback]:
    """y = the mean of the outputs of the two best experts, weighted by their gates. logits, outputs: (N, E); y: (N, 1).

    backward(dy) returns (dlogits, doutputs).
    """
    gates, gates_backward = ideas.top_k_gates(logits, 2)
    y = (gates * outputs).sum(axis=-1, keepdims=True)

    def backward(dy: Array) -> tuple[Array, Array]:
        doutputs = gates * dy
        dgates = outputs * dy
        dlogits = gates_backward(dgates)
        return dlogits, doutputs

    return y, backward


@kind(3, 5)
def routing(draw: Draw, size: int) -> tuple[list[Given], Run]:
    """A mixture of experts: two of many.

    Each row is a token, each column an expert, whose output is one number. The two largest logits of a row are chosen.

    Logits are multiples of ln 2; the boxes hold the factor. For example e^(3 ln 2) = 2³ = 8.

    Before e^, subtract the smaller of the two chosen logits of the row. ⊙ multiplies entry by entry.

    chosen = 1 for the two largest of the row, else 0 | 1.0 * (logits >= np.sort(logits, axis=1)[:, -2:-1])
    E = chosen ⊙ e^(logits − smaller of the chosen) | chosen * np.exp(logits - np.sort(logits, axis=1)[:, -2:-1])
    total = sum of the row of E | row_sum(E)
    gates = E / total | E / total | top_k_gates.gates
    y = row sums of gates ⊙ outputs | row_sum(gates * outputs) | two_of_many.y
    doutputs = gates ⊙ dy | gates * dy | two_of_many.doutputs
    dgates = outputs ⊙ dy | outputs * dy | two_of_many.dgates
    r = row sums of dgates ⊙ gates | row_sum(dgates * gates) | | moves gates * (1 + t)
    dlogits = gates ⊙ (dgates − r) | gates * (dgates - r) | top_k_gates.dlogits
    """
    rows = []
    for _ in range(size - 1):
        low, more = draw.choose(range(-1, 4)), draw.choose((0, 2))  # gates of 0.5 and 0.5, or of 0.2 and 0.8
        best = [low, low + more]
        others = [min(best) - draw.choose((1, 2, 3)) for _ in range(size - 2)]
        rows.append(draw.several([*best, *others], size))
    logits, outputs = np.array(rows) * LN2, draw.matrix(-5, 6, size - 1, size)
    dy = draw.matrix(-3, 4, size - 1, 1)
    given = [Given("logits", logits, "ln 2"), Given("outputs", outputs), Given("dy", dy)]
    return given, lambda: (*two_of_many(logits, outputs), dy)
