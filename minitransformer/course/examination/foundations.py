"""Weeks 1 to 3: finite differences, vector-Jacobian products, softmax, cross-entropy."""

from __future__ import annotations

import math

import numpy as np

from ..worksheets.numbers import Draw
from .question import Asked, block, n, question


@question(1, 4)
def central_difference(draw: Draw) -> Asked:
    a, h = draw.choose([2, 3, 4, 5]), draw.choose([0.1, 0.2, 0.5])
    one, both = 3 * a * a + 3 * a * h + h * h, 3 * a * a + h * h
    return Asked(
        "f(x) = x³. Compute the one-sided quotient (f(x + h) − f(x)) / h and the central one (f(x + h) − f(x − h)) / "
        "2h "
        f"at x = {a} with h = {h}. How large is the error of each, and why is one smaller?",
        {"x": a, "h": h},
        f"The slope is 3x² = {3 * a * a}. One-sided: 3x² + 3xh + h² = {n(one)}, error {n(one - 3 * a * a)}. Central: "
        f"3x² + h² = {n(both)}, error {n(h * h)}. Even powers of h cancel between the two sides, so no term in h is "
        "left.",
        {"one-sided": one, "central": both},
    )


@question(1, 3)
def chain_rule(draw: Draw) -> Asked:
    a, b, x, g = (
        draw.choose([2, 3, 4, 5]),
        draw.choose([-3, -2, 1, 2]),
        draw.choose([1, 2, 3]),
        draw.choose([2, 3, -2]),
    )
    u = a * x + b
    dx = g * 2 * u * a
    return Asked(
        f"y = (ax + b)² with a = {a}, b = {b}. The gradient of the loss with respect to y is dy = {g}. What are dx "
        "and db at "
        f"x = {x}?",
        {"a": a, "b": b, "x": x, "dy": g},
        f"Let u = ax + b = {u}. du = 2u·dy = {2 * u * g}. dx = a·du = {dx}, db = du = {2 * u * g}.",
        {"dx": dx, "db": 2 * u * g},
    )


@question(1, 4)
def gradient_of_two(draw: Draw) -> Asked:
    a, b, c, g = (draw.choose(range(1, 5)), draw.choose(range(1, 5)), draw.choose([2, 3, -1]), draw.choose([2, -1, 3]))
    return Asked(
        f"f(x₁, x₂) = x₁²·x₂ + {c}·x₂, and the upstream gradient is {g}. Compute the gradient at ({a}, {b}). A "
        "checker moves "
        f"x₂ alone by 0.01 in both directions. By how much do its two losses differ?",
        {"x": np.array([a, b]), "c": c, "upstream": g},
        f"dx₁ = {g}·2x₁x₂ = {g * 2 * a * b}, dx₂ = {g}·(x₁² + {c}) = {g * (a * a + c)}. The losses differ by 0.02·dx₂ "
        "= "
        f"{n(0.02 * g * (a * a + c))}, exactly, since f is linear in x₂.",
        {"gradient": np.array([g * 2 * a * b, g * (a * a + c)]), "difference": 0.02 * g * (a * a + c)},
    )


@question(1, 3)
def directional_derivative(draw: Draw) -> Asked:
    g, u = draw.matrix(-4, 4, 3), draw.matrix(-3, 3, 3)
    return Asked(
        f"A loss is 2 where its gradient is g; the parameters move by 0.01·u:\n\n{block(g=g, u=u)}\n\nWhich loss does "
        "the "
        "gradient predict? Which multiple of g would lower the loss fastest, for steps of equal length: a "
        "positive or "
        "a negative one?",
        {"g": g, "u": u},
        f"g·u = {n(g @ u)}, so the predicted loss is 2 + 0.01·{n(g @ u)} = {n(2 + 0.01 * (g @ u))}. A negative "
        "multiple: "
        "−g is the direction of steepest descent.",
        {"loss": 2 + 0.01 * (g @ u)},
    )


@question(1, 3)
def relative_error(draw: Draw) -> Asked:
    a, e = draw.choose([2.0, 4.0, 5.0, 8.0]), draw.choose([0.001, 0.01, 0.00001])
    by_hand = a * (1 + e)
    error = abs(by_hand - a) / abs(by_hand)
    verdict = "no" if error > 1e-4 else "yes"
    return Asked(
        f"A derivation gives the gradient {by_hand:.5f}, finite differences in float64 give {a:.5f}. Compute the "
        "relative "
        "error (the difference divided by the larger of the two). Does a check with the tolerance 10⁻⁴ accept it? "
        "Could "
        "rounding explain the difference?",
        {"by_hand": by_hand, "numerical": a},
        f"{abs(by_hand - a):.5f} / {by_hand:.5f} = {error:.1e}: {verdict}. Rounding cannot explain it: central "
        "differences "
        "in float64 are right to about ten digits.",
        {"error": error, "accepted": float(error <= 1e-4)},
    )


@question(2, 5)
def matmul_gradients(draw: Draw) -> Asked:
    a, b, dc = draw.matrix(-3, 3, 2, 3), draw.matrix(-3, 3, 3, 2), draw.matrix(-2, 2, 2, 2)
    return Asked(
        f"C = AB, and dC is the gradient of the loss with respect to C:\n\n{block(A=a, B=b, dC=dc)}\n\nCompute dA and "
        "dB, "
        "and say how the shapes tell where the transposes go.",
        {"A": a, "B": b, "dC": dc},
        f"dA = dC Bᵀ (2×2 times 2×3) and dB = Aᵀ dC (3×2 times 2×2):\n\n{block(dA=dc @ b.T, dB=a.T @ dc)}",
        {"dA": dc @ b.T, "dB": a.T @ dc},
    )


@question(2, 3)
def used_twice(draw: Draw) -> Asked:
    w, x, dz = draw.choose([2, 3, -2]), draw.choose([2, 3, 5]), draw.choose([1, 2, -3])
    return Asked(
        f"The same weight w is used twice: y = wx and z = wy. w = {w}, x = {x}, dz = {dz}. Compute dw and dx.",
        {"w": w, "x": x, "dz": dz},
        f"y = {w * x}. The second use gives dz·y = {dz * w * x} and dy = dz·w = {dz * w}; the first gives dy·x = "
        f"{dz * w * x}. "
        f"The two add up: dw = {2 * dz * w * x}. dx = dy·w = {dz * w * w}.",
        {"dw": 2 * dz * w * x, "dx": dz * w * w},
    )


@question(2, 4)
def broadcasting(draw: Draw) -> Asked:
    dy = draw.matrix(-4, 4, 3, 2)
    return Asked(
        "y = x + b + c, where x is (3, 2), b is (2,) and is added to every row, and c is a single number. The "
        "gradient of "
        f"the loss with respect to y is\n\n{block(dy=dy)}\n\nCompute dx, db and dc.",
        {"dy": dy},
        f"dx = dy. What is copied forward is summed backward: db is the sum over the rows, dc the sum of all.\n\n"
        f"{block(db=dy.sum(axis=0), dc=np.array([dy.sum()]))}",
        {"dx": dy, "db": dy.sum(axis=0), "dc": dy.sum()},
    )


@question(2, 4)
def softmax_of_logarithms(draw: Draw) -> Asked:
    odds = np.array(draw.several(range(1, 7), 3), dtype=float)
    logs = ", ".join(f"ln {n(x)}" for x in odds)
    squares = odds**2
    return Asked(
        f"Without a calculator: the softmax of ({logs}). Then: of the same scores plus 5, and of twice the scores.",
        {"odds": odds},
        f"exp undoes ln: {n(odds)} divided by {n(odds.sum())} is {n(odds / odds.sum())}. Adding 5 multiplies all by "
        "e⁵ and "
        f"changes nothing. Doubling squares them: {n(squares)} / {n(squares.sum())} = {n(squares / squares.sum())}.",
        {"weights": odds / odds.sum(), "shifted": odds / odds.sum(), "doubled": squares / squares.sum()},
    )


@question(2, 4)
def why_the_root(draw: Draw) -> Asked:
    d, m = draw.choose([16, 64, 256]), draw.choose([1, 2, 3])
    root = math.isqrt(d)
    return Asked(
        f"The entries of a query and a key are independent, with mean 0 and variance 1; d = {d}. What is the standard "
        "deviation "
        f"of q·k, before and after dividing by √d? Two raw scores differ by {m * root}·ln 2. What is the ratio of "
        "their weights "
        "with the division, and what power of 2 is it without?",
        {"d": d, "difference": m * root},
        f"q·k is a sum of {d} products of variance 1, so its deviation is √{d} = {root}; divided by √d, 1. With the "
        "division "
        f"the scores differ by {m}·ln 2: the ratio is 2^{m} = {2**m}. Without it the ratio is 2^{m * root}: one "
        "weight takes "
        "all, and the softmax is flat there, so nothing is learned.",
        {"before": root, "after": 1.0, "ratio": 2**m, "power": m * root},
    )


def _weights(draw: Draw) -> tuple[np.ndarray, float]:
    """Three different weights, whole numbers divided by their sum, and the sum."""
    odds = np.array(draw.several(range(1, 6), 3), dtype=float)
    return odds / odds.sum(), float(odds.sum())


@question(3, 4)
def softmax_jacobian_by_hand(draw: Draw) -> Asked:
    y, s = _weights(draw)
    jacobian = np.diag(y) - np.outer(y, y)
    return Asked(
        f"A softmax gives y = {n(y * s)} / {n(s)}. Compute its Jacobian J, times {n(s)}². What is the sum of each "
        "row, and why?",
        {"y": y},
        f"J = diag(y) − y yᵀ.\n\n{block(**{f'{n(s * s)} J': jacobian * s * s})}\n\nEach row sums to 0: adding a "
        "constant to "
        "all scores changes no weight.",
        {"jacobian": jacobian, "sums": np.zeros(3)},
    )


@question(3, 4)
def softmax_pullback(draw: Draw) -> Asked:
    y, s = _weights(draw)
    dy = draw.matrix(-3, 4, 3)
    mean = float(y @ dy)
    return Asked(
        f"A softmax gave y = {n(y * s)} / {n(s)}, and the upstream gradient is dy = {n(dy)}. Compute dx without "
        "writing down the "
        "Jacobian. For which dy is dx zero?",
        {"y": y, "dy": dy},
        f"The weighted mean is dy·y = {n(mean)}. dx = y (dy − dy·y) = {n(y * (dy - mean))}. dx is zero if all entries "
        "of dy are "
        "equal.",
        {"dx": y * (dy - mean)},
    )


@question(3, 3)
def loss_of_two_positions(draw: Draw) -> Asked:
    first, second = draw.several([2, 4, 5, 8, 10], 2)
    k = draw.choose([8, 16, 100])
    loss = (math.log(first) + math.log(second)) / 2
    return Asked(
        f"A model gives the right tokens of two positions the probabilities 1/{first} and 1/{second}. What is the mean "
        f"cross-entropy? What would it be for a guess among {k} equally likely tokens?",
        {"p": np.array([1 / first, 1 / second]), "k": k},
        f"(ln {first} + ln {second}) / 2 = {n(loss)}. A guess: ln {k} = {n(math.log(k))}.",
        {"loss": loss, "guess": math.log(k)},
    )


@question(3, 4)
def gradient_of_the_logits(draw: Draw) -> Asked:
    p, s = _weights(draw)
    target, count = draw.choose(range(3)), draw.choose([2, 4, 5])
    gradient = (p - np.eye(3)[target]) / count
    return Asked(
        f"At one of {count} positions the softmax of the logits is {n(p * s)} / {n(s)}, and token {target} (counted "
        "from 0) is "
        "right. The loss is the mean over all positions. What is the gradient of the logits there? Which logits rise "
        "in a step "
        "of gradient descent?",
        {"p": p, "target": target, "count": count},
        f"(p − target) / N = {n(gradient)}. A step goes against the gradient, so the logit of token {target} alone "
        "rises.",
        {"dlogits": gradient},
    )


@question(3, 4)
def label_smoothing(draw: Draw) -> Asked:
    p, s = _weights(draw)
    target, eps = draw.choose(range(3)), draw.choose([0.1, 0.3])
    wanted = (1 - eps) * np.eye(3)[target] + eps / 3
    return Asked(
        f"Three tokens, token {target} is right, label smoothing with ε = {eps} spread over all three. Write down the "
        "smoothed "
        f"target. The model says {n(p * s)} / {n(s)}: what is the gradient of the logits, for one position? Where is "
        "it zero?",
        {"p": p, "target": target, "eps": eps},
        f"The target is (1 − ε) for the right token, plus ε/3 for each: {n(wanted)}. The gradient is p − target = "
        f"{n(p - wanted)}. It is zero where p is the smoothed target, not where p is 1.",
        {"target": wanted, "dlogits": p - wanted},
    )
