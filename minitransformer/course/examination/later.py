"""Weeks 10 to 12: mistakes, what heads do, what came before and after."""

from __future__ import annotations

import math

import numpy as np

from ..worksheets.numbers import Draw, score_rows
from .question import Asked, block, n, question


@question(10, 3)
def a_missing_scale(draw: Draw) -> Asked:
    d = draw.choose([4, 16, 64])
    dq = draw.matrix(-3, 3, 1, 3) / 2
    root = math.isqrt(d)
    return Asked(
        f"A student's attention with d = {d} is right forward. Backward the student forgets the factor 1/√d and "
        "gets\n\n"
        f"{block(dq=dq * root)}\n\nWhat is the right dq? Would training with Adam show the mistake? Would a test with "
        "d = 1?",
        {"wrong": dq * root, "d": d},
        f"Divide by {root}: {n(dq[0])}. Hardly: W_Q gets a gradient that is {root} times too large, and Adam cancels "
        "a constant factor. "
        "Layers below get too much of this path, and still train. With d = 1 the factor is 1, so no.",
        {"dq": dq[0]},
    )


@question(10, 3)
def an_overwritten_gradient(draw: Draw) -> Asked:
    a, b, x, dy = (draw.choose([2, 3, -2]), draw.choose([4, -3, 5]), draw.choose([1, 2]), draw.choose([2, -1, 3]))
    return Asked(
        f"y = {a}x + {b}x², and dy = {dy} at x = {x}. The code computes `dx = dy * {a}` and then `dx = dy * {2 * b} * "
        "x`. What does it "
        "return, and what is right? Is there an x at which a test would miss the mistake?",
        {"a": a, "b": b, "x": x, "dy": dy},
        f"It returns {dy * 2 * b * x}; right is {dy * a} + {dy * 2 * b * x} = {dy * (a + 2 * b * x)}. No: dy·a is "
        "missing, whatever x is.",
        {"returned": dy * 2 * b * x, "right": dy * (a + 2 * b * x)},
    )


@question(10, 4)
def a_blind_check(draw: Draw) -> Asked:
    odds = np.array(draw.several(range(1, 6), 3), dtype=float)
    y, dy = odds / odds.sum(), draw.matrix(-3, 4, 3)
    right, wrong = y * (dy - y @ dy), y * (1 - y) * dy
    return Asked(
        f"A softmax gave y = {n(odds)} / {n(odds.sum())}. A student claims dx = y(1 − y) dy. Compute the claim and "
        "the right dx for "
        f"dy = {n(dy)}. The student checks the code with a loss that is the sum of y alone. What do finite "
        "differences say there, "
        "and what does the claim say?",
        {"y": y, "dy": dy},
        f"Claim {n(wrong)}, right {n(right)}. With the sum, dy = (1, 1, 1): the finite differences are 0, and the "
        "claim gives y(1 − y) = "
        f"{n(y * (1 - y))}. This check does find it; it would not find dx = 0.",
        {"claim": wrong, "right": right, "claim for ones": y * (1 - y), "right for ones": np.zeros(3)},
    )


@question(10, 3)
def a_mean_taken_twice(draw: Draw) -> Asked:
    count = draw.choose([2, 4, 5, 8])
    gradient, rate = draw.matrix(-6, 6, 2), draw.choose([0.1, 0.5])
    return Asked(
        f"The loss is a mean over {count} tokens. The code divides the gradient by {count} once more, and gets "
        f"{n(gradient / count)}. What is "
        f"the right gradient? How far do the weights move with plain gradient descent and the rate {rate}, right and "
        "wrong?",
        {"wrong": gradient / count, "count": count, "rate": rate},
        f"Times {count}: {n(gradient)}. Right −{rate}·g = {n(-rate * gradient)}, wrong {n(-rate * gradient / count)}: "
        f"it trains, {count} times "
        "too slowly.",
        {"right": gradient, "step": -rate * gradient, "wrong step": -rate * gradient / count},
    )


@question(10, 3)
def dropout_forgets_its_factor(draw: Draw) -> Asked:
    p, dy = draw.choose([0.2, 0.5, 0.75]), draw.matrix(-4, 4, 4)
    kept = np.array(draw.several([1, 0, 1, 0], 4), dtype=float)
    return Asked(
        f"Dropout with p = {p} keeps (1) or drops (0):\n\n{block(kept=kept, dy=dy)}\n\nForward divides by 1 − p. "
        "Backward is coded as "
        "`dy * kept`. What does it return, what is right, and by which factor is every gradient below this layer "
        "wrong?",
        {"kept": kept, "dy": dy, "p": p},
        f"It returns {n(dy * kept)}; right is {n(dy * kept / (1 - p))}. Everything below is {n(1 - p)} of what it "
        "should be, once for each "
        "such dropout on the way.",
        {"returned": dy * kept, "right": dy * kept / (1 - p), "factor": 1 - p},
    )


@question(11, 3)
def where_induction_looks(draw: Draw) -> Asked:
    period = draw.choose([4, 5, 6])
    letters = draw.several("abcdefghij", period)
    place = period + draw.choose(range(period - 1))
    text = letters * 2
    return Asked(
        f"A text of {period} random tokens is repeated: {' '.join(text)}. Positions count from 0. At position "
        f"{place}, at which position does an "
        "induction head look, and which token does it predict? What does a previous-token head write there that the "
        "induction head "
        "needs?",
        {"period": period, "position": place, "text": np.array([ord(letter) for letter in text])},
        f"At {place} − {period} + 1 = {place - period + 1}, which holds {text[place - period + 1]}: that is the "
        "prediction. The "
        f"previous-token head has written there that {text[place - period]} came before it.",
        {"looks at": place - period + 1, "predicts": ord(text[place - period + 1])},
    )


@question(11, 3)
def score_of_a_head(draw: Draw) -> Asked:
    weights = np.zeros((4, 4))
    for i in range(4):
        row = np.array(draw.several([6, 3, 1, 0][: i + 1] if i > 1 else [7, 3][: i + 1], i + 1), dtype=float)
        weights[i, : i + 1] = row / row.sum()
    score, first = np.mean([weights[t, t - 1] for t in range(1, 4)]), weights[1:, 0].mean()
    return Asked(
        f"The weights of a causal head:\n\n{block(weights=weights)}\n\nCompute its previous-token score and its "
        "first-token score, the means "
        "of weights[t, t − 1] and of weights[t, 0] over t ≥ 1. Why does it not follow that the model needs this "
        "head?",
        {"weights": weights},
        f"{n(score)} and {n(first)}. A score says where the head looks on this text; only an ablation "
        "can show whether the model uses it.",
        {"previous": score, "first": first},
    )


@question(11, 4)
def what_a_head_writes(draw: Draw) -> Asked:
    w_v, w_o, x = draw.matrix(-2, 2, 3, 1), draw.matrix(-2, 2, 1, 3), draw.matrix(-2, 2, 3)
    return Asked(
        f"One head of width 1 in a model of width 3:\n\n{block(W_V=w_v, W_O=w_o, x=x)}\n\nCompute the matrix W_V W_O, "
        "its rank, and what the "
        "head adds to a token that gives all its weight to the vector x.",
        {"W_V": w_v, "W_O": w_o, "x": x},
        f"{block(OV=w_v @ w_o)}\n\nRank 1, the width of the head. It adds x W_V W_O = {n(x @ w_v @ w_o)}.",
        {"OV": w_v @ w_o, "rank": 1, "adds": x @ w_v @ w_o},
    )


@question(11, 3)
def logit_lens(draw: Draw) -> Asked:
    while True:
        table, early, update = draw.matrix(-2, 2, 3, 2), draw.matrix(-2, 3, 2), draw.matrix(-3, 3, 2)
        before, after = table @ early, table @ (early + update)
        if len(set(before)) == len(set(after)) == 3 and before.argmax() != after.argmax():
            break
    return Asked(
        "The table of three tokens, the residual path after layer 1, and what layer 2 adds:\n\n"
        f"{block(table=table, x=early, update=update)}\n\nWhich token would the model predict after layer 1, which "
        "after layer 2? (Without a "
        "norm.)",
        {"table": table, "x": early, "update": update},
        f"After layer 1 the logits are {n(before)}: token {before.argmax()}. After layer 2 {n(after)}: token "
        f"{after.argmax()}.",
        {"before": before, "after": after, "tokens": np.array([before.argmax(), after.argmax()])},
    )


@question(11, 4)
def attribution_and_ablation(draw: Draw) -> Asked:
    head, w, bias = draw.matrix(-2, 3, 2), draw.matrix(-2, 2, 2), draw.choose([1, 2, -1])
    u = float(head @ w)
    return Asked(
        f"A head outputs h, and the logit is z = (w·h + {bias})².\n\n{block(h=head, w=w)}\n\nCompute gradient × "
        "activation of the head, and what "
        "z loses if the head is set to 0. Why do they differ?",
        {"h": head, "w": w, "bias": bias},
        f"w·h = {n(u)}. The gradient is 2(w·h + {bias}) w, times h: {n(2 * (u + bias) * u)}. Without the head z falls "
        f"from {n((u + bias) ** 2)} to "
        f"{bias**2}: by {n((u + bias) ** 2 - bias**2)}. The gradient is the slope at full strength; z is not a "
        "straight line.",
        {"attribution": 2 * (u + bias) * u, "lost": (u + bias) ** 2 - bias**2},
    )


@question(12, 4)
def cost_and_path(draw: Draw) -> Asked:
    length, d = draw.choose([64, 100, 243, 1000]), draw.choose([64, 512])
    hops = next(i for i in range(20) if 3**i >= length)
    return Asked(
        f"A layer of attention (2n²d multiplications) and one of recurrence (2nd²) read n = {length} tokens of width "
        f"{d}. What is the ratio of their "
        "counts? How many layers or steps lie between the first token and the last, for each, and for dilated "
        "convolutions of kernel 3?",
        {"n": length, "d": d},
        f"n/d = {n(length / d)}. Attention 1, recurrence {length}, convolutions log₃ {length} rounded up: {hops}.",
        {"ratio": length / d, "attention": 1, "recurrence": length, "convolution": hops},
    )


@question(12, 4)
def step_of_an_lstm(draw: Draw) -> Asked:
    forget, admit, c = draw.choose([1, 3, 4, 9]), draw.choose([1, 2, 4]), draw.choose([2, -1, 3])
    b = draw.choose([2, 3])
    candidate = (b * b - 1) / (b * b + 1)
    f, i = forget / (1 + forget), admit / (1 + admit)
    return Asked(
        f"In an LSTM's cell f = ln {forget}, i = ln {admit}, g = ln {b} and c = {c}. Compute c' = σ(f)·c + "
        "σ(i)·tanh(g) and ∂c'/∂c. What is left of a "
        "gradient along the cell after 10 such steps?",
        {"f": forget, "i": admit, "g": b, "c": c},
        f"σ(ln a) = a/(1 + a): {n(f)} and {n(i)}. tanh(ln {b}) = {n(candidate)}. c' = {n(f * c + i * candidate)}; "
        f"∂c'/∂c = σ(f) = {n(f)}; after 10 "
        f"steps {n(f**10)}.",
        {"c": f * c + i * candidate, "slope": f, "after ten": f**10},
    )


@question(12, 4)
def softmax_over_tiles(draw: Draw) -> Asked:
    first, second = (score_rows(draw, 1, 3, 10)[0][:2] for _ in range(2))
    m_1, m_2 = first.max(), max(first.max(), second.max())
    sum_1 = float((2.0 ** (first - m_1)).sum())
    sum_2 = sum_1 * 2.0 ** (m_1 - m_2) + float((2.0 ** (second - m_2)).sum())
    return Asked(
        f"A row of scores arrives in two tiles, in units of ln 2: {n(first)}, then {n(second)}. Give the largest "
        "score m and the sum l of exp(s − m) "
        "after each tile, without looking back at the first tile.",
        {"first": first, "second": second},
        f"m = {n(m_1)}, l = {n(sum_1)}. Then m = {n(m_2)}; the old sum is multiplied by 2^({n(m_1)} − {n(m_2)}), and "
        "the new terms are added: "
        f"l = {n(sum_2)}.",
        {"m": np.array([m_1, m_2]), "l": np.array([sum_1, sum_2])},
    )


@question(12, 4)
def gates_of_experts(draw: Draw) -> Asked:
    odds = np.array(draw.several(range(1, 8), 4), dtype=float)
    dgates = draw.matrix(-3, 3, 4)
    chosen = odds >= np.sort(odds)[-2]
    gates = odds * chosen / odds[chosen].sum()
    dscores = gates * (dgates - gates @ dgates)
    return Asked(
        f"A router's scores for four experts are the logarithms of {n(odds)}; the two largest are chosen. Give the "
        f"gates. With dgates = {n(dgates)}, "
        "what is dscores? Which experts learn from this token?",
        {"odds": odds, "dgates": dgates},
        f"The softmax over the chosen: {n(gates)}. dscores = gates (dgates − gates·dgates) = {n(dscores)}, 0 for "
        "those not chosen. Only the two chosen "
        "experts learn.",
        {"gates": gates, "dscores": dscores},
    )


@question(12, 4)
def sum_around_a_ring(draw: Draw) -> Asked:
    ranks, megabytes, rate, delay = (
        draw.choose([4, 8, 16]),
        draw.choose([80, 400]),
        draw.choose([1, 10]),
        draw.choose([10, 50]),
    )
    sent = 2 * (ranks - 1) / ranks * megabytes
    seconds = sent / (1000 * rate) + 2 * (ranks - 1) * delay * 1e-6
    return Asked(
        f"{ranks} ranks add up gradients of {megabytes} MB around a ring. How much does each rank send? How long does "
        f"it take at {rate} GB/s with a delay "
        f"of {delay} µs for each message? How much would it be with a thousand ranks?",
        {"ranks": ranks, "megabytes": megabytes, "rate": rate, "delay": delay},
        f"2(n − 1)/n · {megabytes} = {n(sent)} MB in {2 * (ranks - 1)} messages: {sent / 1000:.4g} GB / {rate} GB/s + "
        f"{2 * (ranks - 1)}·{delay} µs = "
        f"{seconds:.4g} s. It stays below {2 * megabytes} MB.",
        {"sent": sent, "seconds": seconds},
    )
