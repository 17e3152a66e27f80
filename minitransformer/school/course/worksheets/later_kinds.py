"""Worksheets of what came before the Transformer and after it: an LSTM through two steps, rotary positions, routing."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np

from .... import ideas
from ....core.arrays.backend import Array, Pullback
from .numbers import Draw
from .sheet import LN2, Given, Step, Task
from .softmax_kinds import row_sum_step


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


def lstm_backward(draw: Draw, size: int) -> Task:
    """The cell and the output of two LSTM steps, and their gradients. Each vector: (1, size)."""
    tenths: dict[str, list[int]] = {name: [] for name in "f1 i1 g1 o1 f2 i2 g2 o2 c0".split()}
    for _ in range(size):
        f1, i1, g1, c0 = draw.choose(_tidy_cells(0))
        f2, i2, g2, _c1 = draw.choose(_tidy_cells((f1 * c0 + i1 * g1) // 10))
        o1, o2 = draw.choose(range(1, 10)), draw.choose(range(1, 10))
        for name, number in zip(tenths, (f1, i1, g1, o1, f2, i2, g2, o2, c0), strict=True):
            tenths[name].append(number)
    units = {name: "0.1 ln 2" if name[0] in "gc" else "0.1" for name in tenths}
    values = {name: np.array([row]) * (0.1 * (LN2 if name[0] in "gc" else 1.0)) for name, row in tenths.items()}
    dh = 5.0 * draw.matrix(-2, 2, 2, size)

    def gates(t: int) -> tuple[Step, ...]:
        return (
            Step(f"do{t} = row {t} of dh ⊙ s{t}", lambda dh, s: dh[t - 1 : t] * s, of=("dh", f"s{t}")),
            Step(f"df{t} = dc{t} ⊙ c{t - 1}", np.multiply, unit="ln 2", of=(f"dc{t}", f"c{t - 1}")),
            Step(f"di{t} = dc{t} ⊙ g{t}", np.multiply, unit="ln 2", of=(f"dc{t}", f"g{t}")),
            Step(f"dg{t} = dc{t} ⊙ i{t}", np.multiply, of=(f"dc{t}", f"i{t}")),
        )

    return Task(
        title="An LSTM, backward through two steps",
        notes=(
            "f, i, o are the gates after σ, g the candidate after tanh, as computed from the inputs; c0 is the "
            "initial cell. ⊙ multiplies entry by entry.",
            "Cells are multiples of ln 2; the boxes hold the factor. tanh(ln 2) = 0.6 and tanh(−ln 2) = −0.6.",
            "The gradient of c1 arrives along two paths: from c2, and from h1.",
        ),
        given=(*(Given(name, values[name], units[name]) for name in values), Given("dh", dh)),
        steps=(
            Step("c1 = f1 ⊙ c0 + i1 ⊙ g1", lambda f1, c0, i1, g1: f1 * c0 + i1 * g1, "lstm_cell.new_cell", "ln 2"),
            Step("s1 = tanh(c1)", lambda c1: np.tanh(c1), "lstm_cell.shown"),
            Step("c2 = f2 ⊙ c1 + i2 ⊙ g2", lambda f2, c1, i2, g2: f2 * c1 + i2 * g2, "lstm_cell#2.new_cell", "ln 2"),
            Step("s2 = tanh(c2)", lambda c2: np.tanh(c2), "lstm_cell#2.shown"),
            Step(
                "h = o1 ⊙ s1 in row 1, o2 ⊙ s2 in row 2",
                lambda o1, s1, o2, s2: np.concatenate([o1 * s1, o2 * s2]),
                "two_lstm_steps.h",
            ),
            Step("dc2 = row 2 of dh ⊙ o2 ⊙ (1 − s2²)", lambda dh, o2, s2: dh[1:] * o2 * (1.0 - s2**2)),
            *gates(2),
            Step(
                "dc1 = dc2 ⊙ f2 + row 1 of dh ⊙ o1 ⊙ (1 − s1²)",
                lambda dc2, f2, dh, o1, s1: dc2 * f2 + dh[:1] * o1 * (1.0 - s1**2),
                "lstm_cell.dnew_cell",
            ),
            *gates(1),
            Step("dc0 = dc1 ⊙ f1", lambda dc1, f1: dc1 * f1, "lstm_cell.dcell"),
        ),
        output="h",
        run=lambda: (*two_lstm_steps(*values.values()), dh),
    )


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


def _turned(x: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Row p of x, multiplied p times by the matrix."""
    return np.stack([row @ np.linalg.matrix_power(turn, p) for p, row in enumerate(x)])


def _turned_back(x: np.ndarray, turn: np.ndarray) -> np.ndarray:
    return _turned(x, turn.T)


def rotary_scores(draw: Draw, size: int) -> Task:
    """Scores of rotated queries and keys, and their gradients. q: (size, 2); k: (3, 2)."""
    q, k = draw.matrix(-3, 3, size, 2), draw.matrix(-3, 3, 3, 2)
    dscores = draw.matrix(-2, 2, size, 3)
    return Task(
        title="Rotary positions, by hand",
        notes=(
            "The rows of q and k are at the positions 0, 1, 2. Position p multiplies its row by R p times: row 0 "
            "stays, row 1 is multiplied by R, row 2 by R².",
            "R is a rotation by the angle with cosine 0.6 and sine 0.8, so its transpose turns back.",
            "Compare scores on one diagonal: with equal queries and equal keys, they would be equal.",
        ),
        given=(Given("q", q), Given("k", k), Given("R", _TURN, "0.1"), Given("dscores", dscores)),
        steps=(
            Step("R² = R R", lambda R: R @ R),
            Step("q' = rows of q, turned", _turned, lambda r: r["rotary.y"][:, 1::2], of=("q", "R")),
            Step("k' = rows of k, turned", _turned, lambda r: r["rotary#2.y"][:, 1::2], of=("k", "R")),
            Step("scores = q' k'ᵀ", lambda q, k: q @ k.T, "rotated_scores.scores", of=("q'", "k'")),
            Step("dq' = dscores k'", np.matmul, of=("dscores", "k'")),
            Step("dk' = dscoresᵀ q'", lambda dscores, q: dscores.T @ q, of=("dscores", "q'")),
            Step("dq = rows of dq', turned back", _turned_back, of=("dq'", "R")),
            Step("dk = rows of dk', turned back", _turned_back, of=("dk'", "R")),
        ),
        output="scores",
        run=lambda: (*rotated_scores(q, k), dscores),
    )


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


def routing(draw: Draw, size: int) -> Task:
    """Top-2 routing of size - 1 tokens to size experts, and its gradients."""
    rows = []
    for _ in range(size - 1):
        low, more = draw.choose(range(-1, 4)), draw.choose((0, 2))  # gates of 0.5 and 0.5, or of 0.2 and 0.8
        best = [low, low + more]
        others = [min(best) - draw.choose((1, 2, 3)) for _ in range(size - 2)]
        rows.append(draw.several([*best, *others], size))
    logits = np.array(rows) * LN2
    outputs = draw.matrix(-5, 6, size - 1, size)
    dy = draw.matrix(-3, 4, size - 1, 1)

    def smaller(logits: np.ndarray) -> np.ndarray:
        return np.sort(logits, axis=1)[:, -2:-1]

    return Task(
        title="A mixture of experts: two of many",
        notes=(
            "Each row is a token, each column an expert, whose output is one number. "
            "The two largest logits of a row are chosen.",
            "Logits are multiples of ln 2; the boxes hold the factor. For example e^(3 ln 2) = 2³ = 8.",
            "Before e^, subtract the smaller of the two chosen logits of the row. ⊙ multiplies entry by entry.",
        ),
        given=(Given("logits", logits, "ln 2"), Given("outputs", outputs), Given("dy", dy)),
        steps=(
            Step("chosen = 1 for the two largest of the row, else 0", lambda logits: 1.0 * (logits >= smaller(logits))),
            Step(
                "E = chosen ⊙ e^(logits − smaller of the chosen)",
                lambda chosen, logits: chosen * np.exp(logits - smaller(logits)),
            ),
            Step("total = sum of the row of E", lambda E: E.sum(axis=1, keepdims=True)),
            Step("gates = E / total", lambda E, total: E / total, "top_k_gates.gates"),
            Step(
                "y = row sums of gates ⊙ outputs",
                lambda gates, outputs: (gates * outputs).sum(axis=1, keepdims=True),
                "two_of_many.y",
            ),
            Step("doutputs = gates ⊙ dy", lambda gates, dy: gates * dy, "two_of_many.doutputs"),
            Step("dgates = outputs ⊙ dy", lambda outputs, dy: outputs * dy, "two_of_many.dgates"),
            row_sum_step("gates"),
            Step(
                "dlogits = gates ⊙ (dgates − r)", lambda gates, dgates, r: gates * (dgates - r), "top_k_gates.dlogits"
            ),
        ),
        output="y",
        run=lambda: (*two_of_many(logits, outputs), dy),
    )
