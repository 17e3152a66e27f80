"""Weeks 4 to 6: attention forward and backward, masks, dropout, heads."""

import numpy as np

from ..worksheets.numbers import Draw, queries_and_keys, score_rows
from .question import Made, Numbers, question


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Of scores in units of ln 2."""
    powers = 2.0**scores
    return powers / powers.sum(axis=-1, keepdims=True)


@question(4, 3)
def projection(draw: Draw) -> Made:
    """Two tokens x and the matrix of the queries:

    {x, W_Q}

    Compute q. Which row of q belongs to the second token, and does it depend on the first token?

    Answer: {q}

    The second row; it depends on the second token alone. Tokens meet in the scores.
    """
    x, w = draw.matrix(-2, 2, 2, 3), draw.matrix(-2, 2, 3, 2)
    return {"x": x, "W_Q": w}, {"q": x @ w}, {}


@question(4, 4)
def scaled_scores(draw: Draw) -> Made:
    """Queries and keys of width 4:

    {q, k}

    Compute the scaled scores. How far are the best and the worst score of each query apart, and why does only this
    difference count?

    Answer: q kᵀ / √4:

    {scores}

    They are {spread} apart. A constant that is added to a row of scores changes no weight.
    """
    q, k = queries_and_keys(draw, 2, 3)
    scores = q @ k.T / 2
    return {"q": q, "k": k}, {"scores": scores, "spread": np.ptp(scores, axis=1)}, {}


@question(4, 4)
def weights_and_output(draw: Draw) -> Made:
    """Scores in units of ln 2, and the values:

    {scores, v}

    Compute weights and output.

    Answer: exp(s·ln 2) = 2ˢ; divide each row by its sum.

    {weights, output}
    """
    scores, v = score_rows(draw, 2, 3, 10), draw.matrix(-4, 5, 3, 2)
    weights = _softmax(scores)
    return {"scores": scores, "v": v}, {"weights": weights, "output": weights @ v}, {}


@question(4, 3)
def a_query_of_zeros(draw: Draw) -> Made:
    """A query is zero. Whatever the keys are, what does attention return for the values

    {v}

    What does it return if only the first two keys are visible?

    Answer: All scores are 0, so the weights are equal: the mean {all}. With two keys, the mean of two: {two}.
    """
    v = draw.matrix(-3, 6, 4, 2)
    return {"v": v}, {"all": v.mean(axis=0), "two": v[:2].mean(axis=0)}, {}


@question(4, 4)
def order_of_tokens(draw: Draw) -> Made:
    """Attention without positions and without a mask. One query has these scores (in units of ln 2) and the values are
    v:

    {scores, v}

    The three keys are put in the order {order}, with their values. Give the new weights and the new output.

    Answer: The weights move with their keys: {weights}. The sum is the same: {output}. Attention sees a set.
    """
    scores, v = score_rows(draw, 1, 3, 10), draw.matrix(-4, 5, 3, 2)
    order = draw.several(range(3), 3)
    (weights,) = _softmax(scores)
    return {"scores": scores, "v": v, "order": np.array(order)}, {"weights": weights[order], "output": weights @ v}, {}


@question(5, 3)
def gradient_of_the_weights(draw: Draw) -> Made:
    """output = weights · v.

    {doutput, v}

    Compute dweights. Must its rows sum to 0?

    Answer: dweights = doutput vᵀ:

    {dweights}

    No. The rows of dscores sum to 0, after the softmax's pullback.
    """
    doutput, v = draw.matrix(-2, 3, 2, 3), draw.matrix(-3, 3, 3, 3)
    return {"doutput": doutput, "v": v}, {"dweights": doutput @ v.T}, {}


@question(5, 3)
def gradient_of_the_values(draw: Draw) -> Made:
    """{weights, doutput}

    Compute dv. Which value gets the largest part of the first query's gradient?

    Answer: dv = weightsᵀ doutput:

    {dv}

    Value {largest part}, to which the first query gives the largest weight.
    """
    weights = np.zeros((3, 3))
    while (weights[0] == weights[0].max()).sum() > 1:
        weights = _softmax(score_rows(draw, 3, 3, 10))
    doutput = draw.matrix(-2, 3, 3, 2)
    given = {"weights": weights, "doutput": doutput}
    return given, {"dv": weights.T @ doutput, "largest part": int(weights[0].argmax())}, {}


@question(5, 4)
def gradient_of_the_scores(draw: Draw) -> Made:
    """{weights, dweights}

    Compute dscores. What is the sum of each row?

    Answer: The weighted means are {means}. dscores = weights (dweights − mean):

    {dscores}

    Each row sums to 0.
    """
    weights, dweights = _softmax(score_rows(draw, 2, 3, 10)), draw.matrix(-4, 5, 2, 3)
    means = (weights * dweights).sum(axis=1)
    dscores = weights * (dweights - means[:, None])
    return {"weights": weights, "dweights": dweights}, {"dscores": dscores}, {"means": means}


@question(5, 5)
def gradients_of_queries_and_keys(draw: Draw) -> Made:
    """scores = q kᵀ / √4.

    {dscores, q, k}

    Compute dq and dk.

    Answer: dq = dscores k / 2 and dk = dscoresᵀ q / 2: the scale stands in both.

    {dq, dk}
    """
    dscores = draw.matrix(-3, 3, 2, 3)
    q, k = draw.matrix(-2, 2, 2, 4), draw.matrix(-2, 2, 3, 4)
    return {"dscores": dscores, "q": q, "k": k}, {"dq": dscores @ k / 2, "dk": dscores.T @ q / 2}, {}


@question(5, 4)
def three_ways_to_x(draw: Draw) -> Made:
    """Self-attention makes q, k and v from the same x. For one token:

    {dq, dk, dv}

    {W_Q, W_K, W_V}

    Compute dx. What is lost if a student takes dq alone?

    Answer: dx = dq W_Qᵀ + dk W_Kᵀ + dv W_Vᵀ = {first} + {second} + {third} = {dx}. {lost} is lost: what the token does
    as a key and as a value.
    """
    gradients = {name: draw.matrix(-2, 2, 1, 2) for name in ("dq", "dk", "dv")}
    matrices = {name: draw.matrix(-2, 2, 2, 2) for name in ("W_Q", "W_K", "W_V")}
    parts = [(dy @ w.T)[0] for dy, w in zip(gradients.values(), matrices.values(), strict=True)]
    answers = {"dx": sum(parts), "lost": parts[1] + parts[2]}
    return gradients | matrices, answers, dict(zip(("first", "second", "third"), parts, strict=True))


@question(6, 4)
def causal_weights(draw: Draw) -> Made:
    """Scores in units of ln 2:

    {scores}

    Compute the weights under a causal mask. What is the first row of the output?

    Answer: What lies above the diagonal becomes −∞ before the softmax:

    {weights}

    The first query sees itself alone: its output is the first value.
    """
    scores = np.array([draw.several(range(4), 3) for _ in range(3)], dtype=float)
    return {"scores": scores}, {"weights": _softmax(np.where(np.tri(3) > 0, scores, -np.inf))}, {}


@question(6, 3)
def visible_pairs(draw: Draw) -> Made:
    """A batch of two texts with {lengths[0]} and {lengths[1]} tokens, padded to {t}. How many pairs of a real query and
    a visible key are there under a causal mask with padding, in both texts together? How many scores are computed?

    Answer: A text of n tokens has n(n + 1)/2 pairs: {each[0]} + {each[1]} = {pairs}. All 2·{t}² = {computed} scores are
    computed, and the mask hides most of them.
    """
    t = draw.choose([5, 6, 8])
    lengths = np.array(draw.several(range(2, t), 2))
    each = lengths * (lengths + 1) // 2
    return {"t": t, "lengths": lengths}, {"pairs": each.sum(), "computed": 2 * t * t}, {"each": each}


@question(6, 4)
def dropout_both_ways(draw: Draw) -> Made:
    """Dropout with p = {p} keeps the entries marked 1:

    {x, kept, dy}

    Compute y and dx. What are they in evaluation?

    Answer: What is kept is divided by 1 − p = {share}, in both directions.

    {y, dx}

    In evaluation y = x and dx = dy: the mean is the same without the division.
    """
    x, dy = draw.matrix(-4, 5, 4), draw.matrix(-3, 3, 4)
    p = draw.choose([0.2, 0.5])
    kept = np.array(draw.several([1, 1, 1, 0] if p < 0.5 else [1, 1, 0, 0], 4), dtype=float)
    answers = {"y": x * kept / (1 - p), "dx": dy * kept / (1 - p)}
    return {"x": x, "kept": kept, "dy": dy, "p": p}, answers, {"share": 1 - p}


@question(6, 3)
def parameters_of_heads(draw: Draw) -> Made:
    """Multi-head attention of width {D} with {H} heads, with biases. How wide is a head? How many parameters does the
    layer have, and how many with {twice} heads?

    Answer: {D}/{H} = {width}. Four matrices {D}×{D} and four biases: {parameters}. The same with {twice} heads: more
    heads are narrower.
    """
    d, h = draw.choose([64, 128, 512]), draw.choose([4, 8])
    parameters = 4 * d * d + 4 * d
    answers = {"width": d // h, "parameters": parameters, "with twice the heads": parameters}
    return {"D": d, "H": h}, answers, {"twice": 2 * h}


@question(6, 3)
def where_a_number_goes(draw: Draw) -> Made:
    """q has the shape (T, H·d) = ({T}, {all}) with H = {H} heads. It is split into (H, T, d). At which index is the
    number q[{token}, {column}] afterwards? At which index would reshaping alone, without a transpose, put it?

    Answer: Column {column} = {head}·{d} + {place}, so [{head}, {token}, {place}]. In memory it is number {number}; read
    as ({H}, {T}, {d}), that is [{reshaped[0]}, {reshaped[1]}, {reshaped[2]}]: another token's place.
    """
    t, h, d = draw.choose([5, 6]), draw.choose([2, 3, 4]), draw.choose([4, 8])
    token, column = draw.choose(range(1, t)), draw.choose(range(d, h * d))
    head, place = divmod(column, d)
    number = token * h * d + column
    given: Numbers = {"T": t, "H": h, "d": d, "index": np.array([token, column])}
    answers = {"index": np.array([head, token, place]), "reshaped": np.array(np.unravel_index(number, (h, t, d)))}
    more = {"all": h * d, "token": token, "column": column, "head": head, "place": place, "number": number}
    return given, answers, more
