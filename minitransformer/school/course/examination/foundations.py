"""Weeks 1 to 3: finite differences, vector-Jacobian products, softmax, cross-entropy."""

import math

import numpy as np

from ..worksheets.numbers import Draw
from .question import Made, Numbers, n, question


@question(1, 4)
def central_difference(draw: Draw) -> Made:
    """f(x) = x³. Compute the one-sided quotient (f(x + h) − f(x)) / h and the central one (f(x + h) − f(x − h)) / 2h
    at x = {x} with h = {h}. How large is the error of each, and why is one smaller?

    Answer: The slope is 3x² = {slope}. One-sided: 3x² + 3xh + h² = {one-sided}, error {error}. Central:
    3x² + h² = {central}, error {smaller}. Even powers of h cancel between the two sides, so no term in h is left.
    """
    x, h = draw.choose([2, 3, 4, 5]), draw.choose([0.1, 0.2, 0.5])
    slope, error = 3 * x * x, 3 * x * h + h * h
    answers = {"one-sided": slope + error, "central": slope + h * h}
    return {"x": x, "h": h}, answers, {"slope": slope, "error": error, "smaller": h * h}


@question(1, 3)
def chain_rule(draw: Draw) -> Made:
    """y = (ax + b)² with a = {a}, b = {b}. The gradient of the loss with respect to y is dy = {dy}. What are dx and db
    at x = {x}?

    Answer: Let u = ax + b = {u}. du = 2u·dy = {db}. dx = a·du = {dx}, db = du = {db}.
    """
    a, b = draw.choose([2, 3, 4, 5]), draw.choose([-3, -2, 1, 2])
    x, dy = draw.choose([1, 2, 3]), draw.choose([2, 3, -2])
    u = a * x + b
    return {"a": a, "b": b, "x": x, "dy": dy}, {"dx": a * 2 * u * dy, "db": 2 * u * dy}, {"u": u}


@question(1, 4)
def gradient_of_two(draw: Draw) -> Made:
    """f(x₁, x₂) = x₁²·x₂ + {c}·x₂, and the upstream gradient is {upstream}. Compute the gradient at {x}. A checker
    moves x₂ alone by 0.01 in both directions. By how much do its two losses differ?

    Answer: dx₁ = {upstream}·2x₁x₂ = {gradient[0]}, dx₂ = {upstream}·(x₁² + {c}) = {gradient[1]}. The losses differ by
    0.02·dx₂ = {difference}, exactly, since f is linear in x₂.
    """
    a, b = draw.choose(range(1, 5)), draw.choose(range(1, 5))
    c, upstream = draw.choose([2, 3, -1]), draw.choose([2, -1, 3])
    gradient = upstream * np.array([2 * a * b, a * a + c])
    given: Numbers = {"x": np.array([a, b]), "c": c, "upstream": upstream}
    return given, {"gradient": gradient, "difference": 0.02 * gradient[1]}, {}


@question(1, 3)
def directional_derivative(draw: Draw) -> Made:
    """A loss is 2 where its gradient is g; the parameters move by 0.01·u:

    {g, u}

    Which loss does the gradient predict? Which multiple of g would lower the loss fastest, for steps of equal length:
    a positive or a negative one?

    Answer: g·u = {product}, so the predicted loss is 2 + 0.01·{product} = {loss}. A negative multiple: −g is the
    direction of steepest descent.
    """
    g, u = draw.matrix(-4, 4, 3), draw.matrix(-3, 3, 3)
    return {"g": g, "u": u}, {"loss": 2 + 0.01 * (g @ u)}, {"product": g @ u}


@question(1, 3)
def relative_error(draw: Draw) -> Made:
    """A derivation gives the gradient {by_hand:.5f}, finite differences in float64 give {numerical:.5f}. Compute the
    relative error (the difference divided by the larger of the two). Does a check with the tolerance 10⁻⁴ accept it?
    Could rounding explain the difference?

    Answer: {difference:.5f} / {by_hand:.5f} = {error:.1e}: {verdict}. Rounding cannot explain it: central differences
    in float64 are right to about ten digits.
    """
    numerical, e = draw.choose([2.0, 4.0, 5.0, 8.0]), draw.choose([0.001, 0.01, 0.00001])
    by_hand = numerical * (1 + e)
    difference = by_hand - numerical
    error = difference / by_hand
    more = {"difference": difference, "verdict": "no" if error > 1e-4 else "yes"}
    return {"by_hand": by_hand, "numerical": numerical}, {"error": error, "accepted": float(error <= 1e-4)}, more


@question(2, 5)
def matmul_gradients(draw: Draw) -> Made:
    """C = AB, and dC is the gradient of the loss with respect to C:

    {A, B, dC}

    Compute dA and dB, and say how the shapes tell where the transposes go.

    Answer: dA = dC Bᵀ (2×2 times 2×3) and dB = Aᵀ dC (3×2 times 2×2):

    {dA, dB}
    """
    a, b, dc = draw.matrix(-3, 3, 2, 3), draw.matrix(-3, 3, 3, 2), draw.matrix(-2, 2, 2, 2)
    return {"A": a, "B": b, "dC": dc}, {"dA": dc @ b.T, "dB": a.T @ dc}, {}


@question(2, 3)
def used_twice(draw: Draw) -> Made:
    """The same weight w is used twice: y = wx and z = wy. w = {w}, x = {x}, dz = {dz}. Compute dw and dx.

    Answer: y = {y}. The second use gives dz·y = {part} and dy = dz·w = {dy}; the first gives dy·x = {part}. The two add
    up: dw = {dw}. dx = dy·w = {dx}.
    """
    w, x, dz = draw.choose([2, 3, -2]), draw.choose([2, 3, 5]), draw.choose([1, 2, -3])
    y, dy = w * x, dz * w
    return {"w": w, "x": x, "dz": dz}, {"dw": dz * y + dy * x, "dx": dy * w}, {"y": y, "dy": dy, "part": dz * y}


@question(2, 4)
def broadcasting(draw: Draw) -> Made:
    """y = x + b + c, where x is (3, 2), b is (2,) and is added to every row, and c is a single number. The gradient of
    the loss with respect to y is

    {dy}

    Compute dx, db and dc.

    Answer: dx = dy. What is copied forward is summed backward: db is the sum over the rows, dc the sum of all.

    {db, dc}
    """
    dy = draw.matrix(-4, 4, 3, 2)
    return {"dy": dy}, {"dx": dy, "db": dy.sum(axis=0), "dc": dy.sum()}, {}


@question(2, 4)
def softmax_of_logarithms(draw: Draw) -> Made:
    """Without a calculator: the softmax of ({logarithms}). Then: of the same scores plus 5, and of twice the scores.

    Answer: exp undoes ln: {odds} divided by {total} is {weights}. Adding 5 multiplies all by e⁵ and changes nothing.
    Doubling squares them: {squares} / {total of squares} = {doubled}.
    """
    odds = np.array(draw.several(range(1, 7), 3), dtype=float)
    squares, weights = odds**2, odds / odds.sum()
    answers = {"weights": weights, "shifted": weights, "doubled": squares / squares.sum()}
    more = {"logarithms": ", ".join(f"ln {n(x)}" for x in odds), "total": odds.sum()}
    return {"odds": odds}, answers, more | {"squares": squares, "total of squares": squares.sum()}


@question(2, 4)
def why_the_root(draw: Draw) -> Made:
    """The entries of a query and a key are independent, with mean 0 and variance 1; d = {d}. What is the standard
    deviation of q·k, before and after dividing by √d? Two raw scores differ by {difference}·ln 2. What is the ratio of
    their weights with the division, and what power of 2 is it without?

    Answer: q·k is a sum of {d} products of variance 1, so its deviation is √{d} = {before}; divided by √d, 1. With the
    division the scores differ by {m}·ln 2: the ratio is 2^{m} = {ratio}. Without it the ratio is 2^{power}: one weight
    takes all, and the softmax is flat there, so nothing is learned.
    """
    d, m = draw.choose([16, 64, 256]), draw.choose([1, 2, 3])
    root = math.isqrt(d)
    answers = {"before": root, "after": 1.0, "ratio": 2**m, "power": m * root}
    return {"d": d, "difference": m * root}, answers, {"m": m}


def _weights(draw: Draw) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Three different weights y: whole numbers, the odds, divided by their total."""
    odds = np.array(draw.several(range(1, 6), 3), dtype=float)
    return odds / odds.sum(), {"odds": odds, "total": odds.sum()}


@question(3, 4)
def softmax_jacobian_by_hand(draw: Draw) -> Made:
    """A softmax gives y = {odds} / {total}. Compute its Jacobian J, times {total}². What is the sum of each row, and
    why?

    Answer: J = diag(y) − y yᵀ. Times {total}²:

    {scaled J}

    Each row sums to 0: adding a constant to all scores changes no weight.
    """
    y, odds = _weights(draw)
    jacobian = np.diag(y) - np.outer(y, y)
    return {"y": y}, {"jacobian": jacobian, "sums": np.zeros(3)}, odds | {"scaled J": jacobian * odds["total"] ** 2}


@question(3, 4)
def softmax_pullback(draw: Draw) -> Made:
    """A softmax gave y = {odds} / {total}, and the upstream gradient is dy = {dy}. Compute dx without writing down the
    Jacobian. For which dy is dx zero?

    Answer: The weighted mean is dy·y = {mean}. dx = y (dy − dy·y) = {dx}. dx is zero if all entries of dy are equal.
    """
    y, odds = _weights(draw)
    dy = draw.matrix(-3, 4, 3)
    mean = y @ dy
    return {"y": y, "dy": dy}, {"dx": y * (dy - mean)}, odds | {"mean": mean}


@question(3, 3)
def loss_of_two_positions(draw: Draw) -> Made:
    """A model gives the right tokens of two positions the probabilities 1/{first} and 1/{second}. What is the mean
    cross-entropy? What would it be for a guess among {k} equally likely tokens?

    Answer: (ln {first} + ln {second}) / 2 = {loss}. A guess: ln {k} = {guess}.
    """
    first, second = draw.several([2, 4, 5, 8, 10], 2)
    k = draw.choose([8, 16, 100])
    answers = {"loss": (math.log(first) + math.log(second)) / 2, "guess": math.log(k)}
    return {"p": np.array([1 / first, 1 / second]), "k": k}, answers, {"first": first, "second": second}


@question(3, 4)
def gradient_of_the_logits(draw: Draw) -> Made:
    """At one of {count} positions the softmax of the logits is {odds} / {total}, and token {target} (counted from 0) is
    right. The loss is the mean over all positions. What is the gradient of the logits there? Which logits rise in a
    step of gradient descent?

    Answer: (p − target) / N = {dlogits}. A step goes against the gradient, so the logit of token {target} alone rises.
    """
    p, odds = _weights(draw)
    target, count = draw.choose(range(3)), draw.choose([2, 4, 5])
    return {"p": p, "target": target, "count": count}, {"dlogits": (p - np.eye(3)[target]) / count}, odds


@question(3, 4)
def label_smoothing(draw: Draw) -> Made:
    """Three tokens, token {token} is right, label smoothing with ε = {eps} spread over all three. Write down the
    smoothed target. The model says {odds} / {total}: what is the gradient of the logits, for one position? Where is it
    zero?

    Answer: The target is (1 − ε) for the right token, plus ε/3 for each: {target}. The gradient is p − target =
    {dlogits}. It is zero where p is the smoothed target, not where p is 1.
    """
    p, odds = _weights(draw)
    token, eps = draw.choose(range(3)), draw.choose([0.1, 0.3])
    target = (1 - eps) * np.eye(3)[token] + eps / 3
    return {"p": p, "target": token, "eps": eps}, {"target": target, "dlogits": p - target}, odds | {"token": token}
