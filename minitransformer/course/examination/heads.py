"""Weeks 4 to 6: attention forward and backward, masks, dropout, heads."""

from __future__ import annotations

import numpy as np

from ..worksheets.numbers import Draw, queries_and_keys, score_rows
from .question import Asked, block, n, question


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Of scores in units of ln 2."""
    powers = 2.0**scores
    return powers / powers.sum(axis=-1, keepdims=True)


@question(4, 3)
def projection(draw: Draw) -> Asked:
    x, w = draw.matrix(-2, 2, 2, 3), draw.matrix(-2, 2, 3, 2)
    return Asked(
        f"Two tokens x and the matrix of the queries:\n\n{block(x=x, W_Q=w)}\n\nCompute q. Which row of q belongs to "
        "the second "
        "token, and does it depend on the first token?",
        {"x": x, "W_Q": w},
        f"{block(q=x @ w)}\n\nThe second row; it depends on the second token alone. Tokens meet in the scores.",
        {"q": x @ w},
    )


@question(4, 4)
def scaled_scores(draw: Draw) -> Asked:
    q, k = queries_and_keys(draw, 2, 3)
    scores = q @ k.T / 2
    spread = scores.max(axis=1) - scores.min(axis=1)
    return Asked(
        f"Queries and keys of width 4:\n\n{block(q=q, k=k)}\n\nCompute the scaled scores. How far are the best and "
        "the worst "
        "score of each query apart, and why does only this difference count?",
        {"q": q, "k": k},
        f"q kᵀ / √4:\n\n{block(scores=scores)}\n\nThey are {n(spread)} apart. A constant that is added to a row of "
        "scores changes "
        "no weight.",
        {"scores": scores, "spread": spread},
    )


@question(4, 4)
def weights_and_output(draw: Draw) -> Asked:
    scores, v = score_rows(draw, 2, 3, 10), draw.matrix(-4, 5, 3, 2)
    weights = _softmax(scores)
    return Asked(
        f"Scores in units of ln 2, and the values:\n\n{block(scores=scores, v=v)}\n\nCompute weights and output.",
        {"scores": scores, "v": v},
        f"exp(s·ln 2) = 2ˢ; divide each row by its sum.\n\n{block(weights=weights, output=weights @ v)}",
        {"weights": weights, "output": weights @ v},
    )


@question(4, 3)
def a_query_of_zeros(draw: Draw) -> Asked:
    v = draw.matrix(-3, 6, 4, 2)
    return Asked(
        f"A query is zero. Whatever the keys are, what does attention return for the values\n\n{block(v=v)}\n\nWhat "
        "does it return "
        "if only the first two keys are visible?",
        {"v": v},
        f"All scores are 0, so the weights are equal: the mean {n(v.mean(axis=0))}. With two keys, the mean of two: "
        f"{n(v[:2].mean(axis=0))}.",
        {"all": v.mean(axis=0), "two": v[:2].mean(axis=0)},
    )


@question(4, 4)
def order_of_tokens(draw: Draw) -> Asked:
    scores, v = score_rows(draw, 1, 3, 10), draw.matrix(-4, 5, 3, 2)
    order = draw.several(range(3), 3)
    weights = _softmax(scores)
    return Asked(
        "Attention without positions and without a mask. One query has these scores (in units of ln 2) and the values "
        "are v:\n\n"
        f"{block(scores=scores, v=v)}\n\nThe three keys are put in the order {n(np.array(order, dtype=float))}, with "
        "their values. "
        "Give the new weights and the new output.",
        {"scores": scores, "v": v, "order": np.array(order)},
        f"The weights move with their keys: {n(weights[0][order])}. The sum is the same: {n((weights @ v)[0])}. "
        "Attention sees a "
        "set.",
        {"weights": weights[0][order], "output": (weights @ v)[0]},
    )


@question(5, 3)
def gradient_of_the_weights(draw: Draw) -> Asked:
    doutput, v = draw.matrix(-2, 3, 2, 3), draw.matrix(-3, 3, 3, 3)
    return Asked(
        f"output = weights · v.\n\n{block(doutput=doutput, v=v)}\n\nCompute dweights. Must its rows sum to 0?",
        {"doutput": doutput, "v": v},
        f"dweights = doutput vᵀ:\n\n{block(dweights=doutput @ v.T)}\n\nNo. The rows of dscores sum to 0, after the "
        "softmax's "
        "pullback.",
        {"dweights": doutput @ v.T},
    )


@question(5, 3)
def gradient_of_the_values(draw: Draw) -> Asked:
    weights = np.zeros((3, 3))
    while (weights[0] == weights[0].max()).sum() > 1:
        weights = _softmax(score_rows(draw, 3, 3, 10))
    doutput = draw.matrix(-2, 3, 3, 2)
    return Asked(
        f"{block(weights=weights, doutput=doutput)}\n\nCompute dv. Which value gets the largest part of the first "
        "query's "
        "gradient?",
        {"weights": weights, "doutput": doutput},
        f"dv = weightsᵀ doutput:\n\n{block(dv=weights.T @ doutput)}\n\nValue {int(weights[0].argmax())}, to which the "
        "first query "
        "gives the largest weight.",
        {"dv": weights.T @ doutput, "largest part": int(weights[0].argmax())},
    )


@question(5, 4)
def gradient_of_the_scores(draw: Draw) -> Asked:
    weights, dweights = _softmax(score_rows(draw, 2, 3, 10)), draw.matrix(-4, 5, 2, 3)
    means = (weights * dweights).sum(axis=1, keepdims=True)
    return Asked(
        f"{block(weights=weights, dweights=dweights)}\n\nCompute dscores. What is the sum of each row?",
        {"weights": weights, "dweights": dweights},
        f"The weighted means are {n(means[:, 0])}. dscores = weights (dweights − mean):\n\n"
        f"{block(dscores=weights * (dweights - means))}\n\nEach row sums to 0.",
        {"dscores": weights * (dweights - means)},
    )


@question(5, 5)
def gradients_of_queries_and_keys(draw: Draw) -> Asked:
    dscores = draw.matrix(-3, 3, 2, 3)
    q, k = draw.matrix(-2, 2, 2, 4), draw.matrix(-2, 2, 3, 4)
    return Asked(
        f"scores = q kᵀ / √4.\n\n{block(dscores=dscores, q=q, k=k)}\n\nCompute dq and dk.",
        {"dscores": dscores, "q": q, "k": k},
        f"dq = dscores k / 2 and dk = dscoresᵀ q / 2: the scale stands in both.\n\n"
        f"{block(dq=dscores @ k / 2, dk=dscores.T @ q / 2)}",
        {"dq": dscores @ k / 2, "dk": dscores.T @ q / 2},
    )


@question(5, 4)
def three_ways_to_x(draw: Draw) -> Asked:
    names = ("q", "k", "v")
    gradients = {f"d{name}": draw.matrix(-2, 2, 1, 2) for name in names}
    matrices = {f"W_{name.upper()}": draw.matrix(-2, 2, 2, 2) for name in names}
    parts = [gradients[f"d{name}"] @ matrices[f"W_{name.upper()}"].T for name in names]
    return Asked(
        "Self-attention makes q, k and v from the same x. For one token:\n\n"
        f"{block(**gradients)}\n\n{block(**matrices)}\n\nCompute dx. What is lost if a student takes dq alone?",
        gradients | matrices,
        f"dx = dq W_Qᵀ + dk W_Kᵀ + dv W_Vᵀ = {n(parts[0][0])} + {n(parts[1][0])} + {n(parts[2][0])} = "
        f"{n(sum(parts)[0])}. "
        f"{n((parts[1] + parts[2])[0])} is lost: what the token does as a key and as a value.",
        {"dx": sum(parts)[0], "lost": (parts[1] + parts[2])[0]},
    )


@question(6, 4)
def causal_weights(draw: Draw) -> Asked:
    scores = np.array([draw.several(range(4), 3) for _ in range(3)], dtype=float)
    weights = _softmax(np.where(np.tri(3) > 0, scores, -np.inf))
    return Asked(
        f"Scores in units of ln 2:\n\n{block(scores=scores)}\n\nCompute the weights under a causal mask. Which entry "
        "of the output "
        "the output?",
        {"scores": scores},
        f"What lies above the diagonal becomes −∞ before the softmax:\n\n{block(weights=weights)}\n\nThe first query "
        "sees itself "
        "alone: its output is the first value.",
        {"weights": weights},
    )


@question(6, 3)
def visible_pairs(draw: Draw) -> Asked:
    t = draw.choose([5, 6, 8])
    lengths = draw.several(range(2, t), 2)
    pairs = [length * (length + 1) // 2 for length in lengths]
    return Asked(
        f"A batch of two texts with {lengths[0]} and {lengths[1]} tokens, padded to {t}. How many pairs of a real "
        "query and a "
        "visible key are there under a causal mask with padding, in both texts together? How many scores are computed?",
        {"t": t, "lengths": np.array(lengths)},
        f"A text of n tokens has n(n + 1)/2 pairs: {pairs[0]} + {pairs[1]} = {sum(pairs)}. All 2·{t}² = "
        f"{2 * t * t} scores are computed, and the "
        "mask hides most of them.",
        {"pairs": sum(pairs), "computed": 2 * t * t},
    )


@question(6, 4)
def dropout_both_ways(draw: Draw) -> Asked:
    x, dy = draw.matrix(-4, 5, 4), draw.matrix(-3, 3, 4)
    p = draw.choose([0.2, 0.5])
    kept = np.array(draw.several([1, 1, 1, 0] if p < 0.5 else [1, 1, 0, 0], 4), dtype=float)
    return Asked(
        f"Dropout with p = {p} keeps the entries marked 1:\n\n{block(x=x, kept=kept, dy=dy)}\n\nCompute y and dx. "
        "What are they in "
        "evaluation?",
        {"x": x, "kept": kept, "dy": dy, "p": p},
        f"What is kept is divided by 1 − p = {n(1 - p)}, in both directions.\n\n"
        f"{block(y=x * kept / (1 - p), dx=dy * kept / (1 - p))}\n\nIn evaluation y = x and dx = dy: the mean is the "
        "same without "
        "the division.",
        {"y": x * kept / (1 - p), "dx": dy * kept / (1 - p)},
    )


@question(6, 3)
def parameters_of_heads(draw: Draw) -> Asked:
    d, h = draw.choose([64, 128, 512]), draw.choose([4, 8])
    return Asked(
        f"Multi-head attention of width {d} with {h} heads, with biases. How wide is a head? How many parameters does "
        "the layer have, and "
        f"how many with {2 * h} heads?",
        {"D": d, "H": h},
        f"{d}/{h} = {d // h}. Four matrices {d}×{d} and four biases: {4 * d * d + 4 * d}. The same with {2 * h} "
        "heads: more heads are "
        "narrower.",
        {"width": d // h, "parameters": 4 * d * d + 4 * d, "with twice the heads": 4 * d * d + 4 * d},
    )


@question(6, 3)
def where_a_number_goes(draw: Draw) -> Asked:
    t, h, d = draw.choose([5, 6]), draw.choose([2, 3, 4]), draw.choose([4, 8])
    token, column = draw.choose(range(1, t)), draw.choose(range(d, h * d))
    head, place = divmod(column, d)
    return Asked(
        f"q has the shape (T, H·d) = ({t}, {h * d}) with H = {h} heads. It is split into (H, T, d). At which index "
        "is the number "
        f"q[{token}, {column}] afterwards? At which index would reshaping alone, without a transpose, put it?",
        {"T": t, "H": h, "d": d, "index": np.array([token, column])},
        f"Column {column} = {head}·{d} + {place}, so [{head}, {token}, {place}]. In memory it is number "
        f"{token * h * d + column}; read "
        f"as ({h}, {t}, {d}), that is {[int(i) for i in np.unravel_index(token * h * d + column, (h, t, d))]}: "
        "another token's place.",
        {
            "index": np.array([head, token, place]),
            "reshaped": np.array(np.unravel_index(token * h * d + column, (h, t, d))),
        },
    )
