"""Weeks 10 to 12: mistakes, what heads do, what came before and after."""

import math

import numpy as np

from ..worksheets.numbers import Draw, score_rows
from .question import Made, Numbers, question


@question(10, 3)
def a_missing_scale(draw: Draw) -> Made:
    """A student's attention with d = {d} is right forward. Backward the student forgets the factor 1/√d and gets

    {dq}

    What is the right dq? Would training with Adam show the mistake? Would a test with d = 1?

    Answer: Divide by {root}: {right}. Hardly: W_Q gets a gradient that is {root} times too large, and Adam cancels a
    constant factor. Layers below get too much of this path, and still train. With d = 1 the factor is 1, so no.
    """
    d, right = draw.choose([4, 16, 64]), draw.matrix(-3, 3, 1, 3) / 2
    root = math.isqrt(d)
    return {"dq": right * root, "d": d}, {"right": right[0]}, {"root": root}


@question(10, 3)
def an_overwritten_gradient(draw: Draw) -> Made:
    """y = {a}x + {b}x², and dy = {dy} at x = {x}. The code computes `dx = dy * {a}` and then `dx = dy * {twice} * x`.
    What does it return, and what is right? Is there an x at which a test would miss the mistake?

    Answer: It returns {returned}; right is {lost} + {returned} = {right}. No: dy·a is missing, whatever x is.
    """
    a, b = draw.choose([2, 3, -2]), draw.choose([4, -3, 5])
    x, dy = draw.choose([1, 2]), draw.choose([2, -1, 3])
    lost, returned = dy * a, dy * 2 * b * x
    given = {"a": a, "b": b, "x": x, "dy": dy}
    return given, {"returned": returned, "right": lost + returned}, {"twice": 2 * b, "lost": lost}


@question(10, 4)
def a_blind_check(draw: Draw) -> Made:
    """A softmax gave y = {odds} / {total}. A student claims dx = y(1 − y) dy. Compute the claim and the right dx for dy
    = {dy}. The student checks the code with a loss that is the sum of y alone. What do finite differences say there,
    and what does the claim say?

    Answer: Claim {claim}, right {right}. With the sum, dy = (1, 1, 1): the finite differences are 0, and the claim
    gives y(1 − y) = {claim for ones}. This check does find it; it would not find dx = 0.
    """
    odds = np.array(draw.several(range(1, 6), 3), dtype=float)
    y, dy = odds / odds.sum(), draw.matrix(-3, 4, 3)
    slopes = y * (1 - y)
    answers = {
        "claim": slopes * dy,
        "right": y * (dy - y @ dy),
        "claim for ones": slopes,
        "right for ones": np.zeros(3),
    }
    return {"y": y, "dy": dy}, answers, {"odds": odds, "total": odds.sum()}


@question(10, 3)
def a_mean_taken_twice(draw: Draw) -> Made:
    """The loss is a mean over {count} tokens. The code divides the gradient by {count} once more, and gets {wrong}.
    What is the right gradient? How far do the weights move with plain gradient descent and the rate {rate}, right and
    wrong?

    Answer: Times {count}: {right}. Right −{rate}·g = {step}, wrong {wrong step}: it trains, {count} times too slowly.
    """
    count = draw.choose([2, 4, 5, 8])
    gradient, rate = draw.matrix(-6, 6, 2), draw.choose([0.1, 0.5])
    answers = {"right": gradient, "step": -rate * gradient, "wrong step": -rate * gradient / count}
    return {"wrong": gradient / count, "count": count, "rate": rate}, answers, {}


@question(10, 3)
def dropout_forgets_its_factor(draw: Draw) -> Made:
    """Dropout with p = {p} keeps (1) or drops (0):

    {kept, dy}

    Forward divides by 1 − p. Backward is coded as `dy * kept`. What does it return, what is right, and by which factor
    is every gradient below this layer wrong?

    Answer: It returns {returned}; right is {right}. Everything below is {factor} of what it should be, once for each
    such dropout on the way.
    """
    p, dy = draw.choose([0.2, 0.5, 0.75]), draw.matrix(-4, 4, 4)
    kept = np.array(draw.several([1, 0, 1, 0], 4), dtype=float)
    answers = {"returned": dy * kept, "right": dy * kept / (1 - p), "factor": 1 - p}
    return {"kept": kept, "dy": dy, "p": p}, answers, {}


@question(11, 3)
def where_induction_looks(draw: Draw) -> Made:
    """A text of {period} random tokens is repeated: {tokens}. Positions count from 0. At position {position}, at which
    position does an induction head look, and which token does it predict? What does a previous-token head write there
    that the induction head needs?

    Answer: At {position} − {period} + 1 = {looks at}, which holds {predicted}: that is the prediction. The
    previous-token head has written there that {before} came before it.
    """
    period = draw.choose([4, 5, 6])
    text = 2 * draw.several("abcdefghij", period)
    place = period + draw.choose(range(period - 1))
    before, predicted = text[place - period : place - period + 2]
    given: Numbers = {"period": period, "position": place, "text": np.array([ord(letter) for letter in text])}
    answers = {"looks at": place - period + 1, "predicts": ord(predicted)}
    return given, answers, {"tokens": " ".join(text), "before": before, "predicted": predicted}


@question(11, 3)
def score_of_a_head(draw: Draw) -> Made:
    """The weights of a causal head:

    {weights}

    Compute its previous-token score and its first-token score, the means of weights[t, t − 1] and of weights[t, 0] over
    t ≥ 1. Why does it not follow that the model needs this head?

    Answer: {previous} and {first}. A score says where the head looks on this text; only an ablation can show whether
    the model uses it.
    """
    weights = np.zeros((4, 4))
    for i in range(4):
        row = np.array(draw.several([6, 3, 1, 0][: i + 1] if i > 1 else [7, 3][: i + 1], i + 1), dtype=float)
        weights[i, : i + 1] = row / row.sum()
    return {"weights": weights}, {"previous": weights.diagonal(-1).mean(), "first": weights[1:, 0].mean()}, {}


@question(11, 4)
def what_a_head_writes(draw: Draw) -> Made:
    """One head of width 1 in a model of width 3:

    {W_V, W_O, x}

    Compute the matrix W_V W_O, its rank, and what the head adds to a token that gives all its weight to the vector x.

    Answer: {OV}

    Rank 1, the width of the head. It adds x W_V W_O = {adds}.
    """
    w_v, w_o, x = draw.matrix(-2, 2, 3, 1), draw.matrix(-2, 2, 1, 3), draw.matrix(-2, 2, 3)
    return {"W_V": w_v, "W_O": w_o, "x": x}, {"OV": w_v @ w_o, "rank": 1, "adds": x @ w_v @ w_o}, {}


@question(11, 3)
def logit_lens(draw: Draw) -> Made:
    """The table of three tokens, the residual path after layer 1, and what layer 2 adds:

    {table, x, update}

    Which token would the model predict after layer 1, which after layer 2? (Without a norm.)

    Answer: After layer 1 the logits are {before}: token {tokens[0]}. After layer 2 {after}: token {tokens[1]}.
    """
    while True:
        table, x, update = draw.matrix(-2, 2, 3, 2), draw.matrix(-2, 3, 2), draw.matrix(-3, 3, 2)
        before, after = table @ x, table @ (x + update)
        if len(set(before)) == len(set(after)) == 3 and before.argmax() != after.argmax():
            break
    answers = {"before": before, "after": after, "tokens": np.array([before.argmax(), after.argmax()])}
    return {"table": table, "x": x, "update": update}, answers, {}


@question(11, 4)
def attribution_and_ablation(draw: Draw) -> Made:
    """A head outputs h, and the logit is z = (w·h + {bias})².

    {h, w}

    Compute gradient × activation of the head, and what z loses if the head is set to 0. Why do they differ?

    Answer: w·h = {product}. The gradient is 2(w·h + {bias}) w, times h: {attribution}. Without the head z falls from
    {whole} to {rest}: by {lost}. The gradient is the slope at full strength; z is not a straight line.
    """
    h, w, bias = draw.matrix(-2, 3, 2), draw.matrix(-2, 2, 2), draw.choose([1, 2, -1])
    product = h @ w
    whole, rest = (product + bias) ** 2, bias**2
    answers = {"attribution": 2 * (product + bias) * product, "lost": whole - rest}
    return {"h": h, "w": w, "bias": bias}, answers, {"product": product, "whole": whole, "rest": rest}


@question(12, 4)
def cost_and_path(draw: Draw) -> Made:
    """A layer of attention (2n²d multiplications) and one of recurrence (2nd²) read n = {n} tokens of width {d}. What
    is the ratio of their counts? How many layers or steps lie between the first token and the last, for each, and for
    dilated convolutions of kernel 3?

    Answer: n/d = {ratio}. Attention 1, recurrence {n}, convolutions log₃ {n} rounded up: {convolution}.
    """
    length, d = draw.choose([64, 100, 243, 1000]), draw.choose([64, 512])
    hops = next(i for i in range(20) if 3**i >= length)
    answers = {"ratio": length / d, "attention": 1, "recurrence": length, "convolution": hops}
    return {"n": length, "d": d}, answers, {}


@question(12, 4)
def step_of_an_lstm(draw: Draw) -> Made:
    """In an LSTM's cell f = ln {f}, i = ln {i}, g = ln {g} and c = {c}. Compute c' = σ(f)·c + σ(i)·tanh(g) and ∂c'/∂c.
    What is left of a gradient along the cell after 10 such steps?

    Answer: σ(ln a) = a/(1 + a): {slope} and {admitted}. tanh(ln {g}) = {candidate}. c' = {c'}; ∂c'/∂c = σ(f) = {slope};
    after 10 steps {after ten}.
    """
    f, i, c = draw.choose([1, 3, 4, 9]), draw.choose([1, 2, 4]), draw.choose([2, -1, 3])
    g = draw.choose([2, 3])
    candidate = (g * g - 1) / (g * g + 1)
    kept, admitted = f / (1 + f), i / (1 + i)
    answers = {"c'": kept * c + admitted * candidate, "slope": kept, "after ten": kept**10}
    return {"f": f, "i": i, "g": g, "c": c}, answers, {"admitted": admitted, "candidate": candidate}


@question(12, 4)
def softmax_over_tiles(draw: Draw) -> Made:
    """A row of scores arrives in two tiles, in units of ln 2: {first}, then {second}. Give the largest score m and the
    sum l of exp(s − m) after each tile, without looking back at the first tile.

    Answer: m = {m[0]}, l = {l[0]}. Then m = {m[1]}; the old sum is multiplied by 2^({m[0]} − {m[1]}), and the new terms
    are added: l = {l[1]}.
    """
    first, second = (score_rows(draw, 1, 3, 10)[0][:2] for _ in range(2))
    m_1, m_2 = first.max(), max(first.max(), second.max())
    sum_1 = (2.0 ** (first - m_1)).sum()
    sum_2 = sum_1 * 2.0 ** (m_1 - m_2) + (2.0 ** (second - m_2)).sum()
    return {"first": first, "second": second}, {"m": np.array([m_1, m_2]), "l": np.array([sum_1, sum_2])}, {}


@question(12, 4)
def gates_of_experts(draw: Draw) -> Made:
    """A router's scores for four experts are the logarithms of {odds}; the two largest are chosen. Give the gates. With
    dgates = {dgates}, what is dscores? Which experts learn from this token?

    Answer: The softmax over the chosen: {gates}. dscores = gates (dgates − gates·dgates) = {dscores}, 0 for those not
    chosen. Only the two chosen experts learn.
    """
    odds = np.array(draw.several(range(1, 8), 4), dtype=float)
    dgates = draw.matrix(-3, 3, 4)
    chosen = odds >= np.sort(odds)[-2]
    gates = odds * chosen / odds[chosen].sum()
    return {"odds": odds, "dgates": dgates}, {"gates": gates, "dscores": gates * (dgates - gates @ dgates)}, {}


@question(12, 4)
def sum_around_a_ring(draw: Draw) -> Made:
    """{ranks} ranks add up gradients of {megabytes} MB around a ring. How much does each rank send? How long does it
    take at {rate} GB/s with a delay of {delay} µs for each message? How much would it be with a thousand ranks?

    Answer: 2(n − 1)/n · {megabytes} = {sent} MB in {messages} messages: {gigabytes:.4g} GB / {rate} GB/s +
    {messages}·{delay} µs = {seconds:.4g} s. It stays below {most} MB.
    """
    ranks, megabytes = draw.choose([4, 8, 16]), draw.choose([80, 400])
    rate, delay = draw.choose([1, 10]), draw.choose([10, 50])
    messages = 2 * (ranks - 1)
    sent = messages / ranks * megabytes
    given = {"ranks": ranks, "megabytes": megabytes, "rate": rate, "delay": delay}
    answers = {"sent": sent, "seconds": sent / (1000 * rate) + messages * delay * 1e-6}
    return given, answers, {"messages": messages, "gigabytes": sent / 1000, "most": 2 * megabytes}
