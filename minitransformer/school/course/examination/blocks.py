"""Weeks 7 to 9: normalization, residual connections, embeddings, the optimiser, the cache, the cost."""

import math

import numpy as np

from ..worksheets.numbers import Draw, rows_of_deviation_two
from .question import Made, question


def _normed_row(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """A row of four with standard deviation 2 and some mean, and the row normed."""
    centred = np.array(draw.choose(rows_of_deviation_two(4)), dtype=float)
    return centred + draw.choose(range(-2, 6)), centred / 2


@question(7, 3)
def layer_norm(draw: Draw) -> Made:
    """LayerNorm of one row, with ε = 0:

    {x, γ, β}

    Compute y. What changes if 10 is added to all of x? If x is multiplied by 10?

    Answer: Mean {mean}, standard deviation 2, normed {normed}, y = γ · normed + β = {y}. Nothing changes in either
    case.
    """
    x, normed = _normed_row(draw)
    gamma, beta = draw.matrix(1, 3, 4), draw.matrix(-2, 2, 4)
    given = {"x": x, "γ": gamma, "β": beta}
    return given, {"y": gamma * normed + beta}, {"mean": x.mean(), "normed": normed}


@question(7, 5)
def layer_norm_pullback(draw: Draw) -> Made:
    """LayerNorm of one row, with ε = 0:

    {x, γ, dy}

    Compute dγ, dβ and dx. Which two sums must be 0 for a right dx?

    Answer: normed = {normed}, standard deviation 2. dγ = dy · normed = {dγ}, dβ = dy. dnormed = γ dy = {dnormed}; its
    mean is {mean}, the mean of dnormed · normed is {stretch}. dx = (dnormed − mean − normed · mean of the products) / 2
    = {dx}. The sums of dx and of dx · normed are 0.
    """
    x, normed = _normed_row(draw)
    gamma, dy = draw.matrix(1, 2, 4), draw.matrix(-3, 3, 4)
    dnormed = gamma * dy
    mean, stretch = dnormed.mean(), (dnormed * normed).mean()
    answers = {"dγ": dy * normed, "dβ": dy, "dx": (dnormed - mean - normed * stretch) / 2}
    more = {"normed": normed, "dnormed": dnormed, "mean": mean, "stretch": stretch}
    return {"x": x, "γ": gamma, "dy": dy}, answers, more


@question(7, 3)
def residual_connection(draw: Draw) -> Made:
    """y = x + xW, as a row.

    {W, dy}

    Compute dx. What would it be without the residual connection, and what with W = 0?

    Answer: dx = dy + dy Wᵀ = {dx}. Without it dy Wᵀ = {without}; with W = 0 it is dy itself.
    """
    w, dy = draw.matrix(-2, 2, 2, 2), draw.matrix(-3, 3, 1, 2)
    return {"W": w, "dy": dy}, {"dx": (dy + dy @ w.T)[0], "without": (dy @ w.T)[0]}, {}


@question(7, 3)
def gradient_in_the_depth(draw: Draw) -> Made:
    """Each of {depth} layers multiplies a number by {a}: h' = {a}·h. By how much does the gradient shrink on its way to
    the first layer? What does it become with residual connections, h' = h + {a}·h?

    Answer: {a}^{depth} = {without:.1e}, and {factor}^{depth} = {with}. The residual path passes the gradient on
    unchanged, and each layer adds its part.
    """
    a, depth = draw.choose([0.1, 0.2, 0.5]), draw.choose([10, 20])
    return {"a": a, "depth": depth}, {"without": a**depth, "with": (1 + a) ** depth}, {"factor": 1 + a}


@question(7, 5)
def feed_forward_pullback(draw: Draw) -> Made:
    """y = max(0, x W₁) W₂.

    {x, W_1, W_2, dy}

    Compute dW₂ and dx. Which column of W₁ gets no gradient?

    Answer: x W₁ = {inner[0]}; hidden = {hidden[0]}. dW₂ = hiddenᵀ dy. dhidden = dy W₂ᵀ = {dhidden[0]}, which passes
    where x W₁ > 0: {dinner[0]}. dx = that times W₁ᵀ = {dx}.

    {dW_2}

    No gradient: the columns whose inner number is negative.
    """
    while True:
        x, w_1, w_2, dy = (draw.matrix(-2, 2, *shape) for shape in ((1, 2), (2, 3), (3, 2), (1, 2)))
        inner, dhidden = x @ w_1, dy @ w_2.T
        dinner = dhidden * (inner > 0)
        if inner.all() and 0 < (inner > 0).sum() < 3 and dinner.any():
            break
    hidden = np.maximum(inner, 0)
    answers = {"dW_2": hidden.T @ dy, "dx": (dinner @ w_1.T)[0], "columns without": (inner[0] < 0).astype(float)}
    more = {"inner": inner, "hidden": hidden, "dhidden": dhidden, "dinner": dinner}
    return {"x": x, "W_1": w_1, "W_2": w_2, "dy": dy}, answers, more


@question(8, 3)
def embedding_pullback(draw: Draw) -> Made:
    """A table with 4 rows is looked up for the tokens {ids}. The gradient of the vectors is

    {dx}

    Compute the gradient of the table. Which mistake does the repeated token reveal?

    Answer: {dtable}

    Row 1 was used twice, so its gradients add up. Code that assigns instead of adding keeps only the last one.
    """
    ids = np.array([1, draw.choose([0, 2, 3]), 1])
    dx = draw.matrix(-3, 3, 3, 2)
    return {"ids": ids, "dx": dx}, {"dtable": np.eye(4)[ids].T @ dx}, {}


@question(8, 4)
def tied_tables(draw: Draw) -> Made:
    """One table E of 3 tokens both embeds and makes the logits h Eᵀ. Token {token} was looked up.

    {h, dlogits, dx}

    (dx is the gradient of the vector that was looked up.) Compute dE.

    Answer: From the output dlogitsᵀ h, and from the input dx in row {token}:

    {dE}
    """
    h, dlogits, dx = draw.matrix(-2, 3, 1, 2), draw.matrix(-2, 2, 1, 3), draw.matrix(-2, 2, 2)
    token = draw.choose(range(3))
    table = dlogits.T @ h
    table[token] += dx
    return {"token": token, "h": h, "dlogits": dlogits, "dx": dx}, {"dE": table}, {}


@question(8, 3)
def positions_of_width_four(draw: Draw) -> Made:
    """Sinusoidal positions of width 4 with base 10000. Compute row {position} (in radians; positions count from 0). By
    what angle do the two pairs turn from one position to the next?

    Answer: The frequencies are 1 and 10000^(−2/4) = 0.01: (sin {position}, cos {position}, sin {slow}, cos {slow}) =
    {row}. By 1 and by 0.01.
    """
    place = draw.choose(range(1, 7))
    row = np.array([math.sin(place), math.cos(place), math.sin(place / 100), math.cos(place / 100)])
    return {"position": place}, {"row": row, "angles": np.array([1.0, 0.01])}, {"slow": place / 100}


@question(8, 5)
def two_steps_of_adam(draw: Draw) -> Made:
    """Adam with β₁ = 0.9, β₂ = 0.999, ε = 0 and the learning rate 0.1. A weight begins at 1; its gradients are
    {gradients[0]}, then {gradients[1]}. Compute the weight after each step. Why does the size of the first gradient not
    matter?

    Answer: Step 1: the corrected averages are m = {gradients[0]} and v = {square}, m/√v = {first step}: w =
    {after one}. Step 2: m = {m}/0.19 = {m_hat}, v = {v_hat}, m/√v = {second step}: w = {after two}. After one step m/√v
    is the sign of the gradient.
    """
    first, second = draw.choose([1.0, 2.0, -2.0]), draw.choose([-1.0, 3.0, 4.0])
    m, v = 0.9 * 0.1 * first + 0.1 * second, 0.999 * 0.001 * first**2 + 0.001 * second**2
    m_hat, v_hat = m / 0.19, v / 0.001999
    steps = {"first step": math.copysign(1.0, first), "second step": m_hat / math.sqrt(v_hat)}
    after = 1.0 - 0.1 * steps["first step"]
    answers = {"after one": after, "after two": after - 0.1 * steps["second step"]}
    more = {"square": first**2, "m": m, "m_hat": m_hat, "v_hat": v_hat}
    return {"gradients": np.array([first, second])}, answers, steps | more


@question(8, 3)
def warm_up(draw: Draw) -> Made:
    """The paper's learning rate is d^(−1/2) · min(step^(−1/2), step · warmup^(−3/2)), with d = {d} and warmup =
    {warmup}. Where is it largest, and how large? What is it at step {quarter}, and at step {fourfold}?

    Answer: At step {warmup}: 1/√({d}·{warmup}) = {largest}. At a quarter of it, a quarter: {early}. At four times as
    many steps it is divided by √4: {late}.
    """
    d, warmup = draw.choose([256, 1024]), draw.choose([400, 2500, 10000])
    rate = 1 / math.sqrt(d) / math.sqrt(warmup)
    answers = {"largest": rate, "early": rate / 4, "late": rate / 2}
    return {"d": d, "warmup": warmup}, answers, {"quarter": warmup // 4, "fourfold": 4 * warmup}


@question(9, 3)
def size_of_the_cache(draw: Draw) -> Made:
    """A decoder has {layers} layers of width {D}. How many megabytes (10⁶) do the keys and values of {T} tokens take in
    float32? How many with a quarter of the heads of keys and values, in float16?

    Answer: 2 · {layers} · {D} · {T} numbers of 4 bytes: {megabytes} MB. A quarter of the heads and half the bytes: an
    eighth, {smaller} MB.
    """
    layers, d, t = draw.choose([12, 24, 32]), draw.choose([512, 1024]), draw.choose([1000, 2000])
    size = 2 * layers * d * t * 4
    return {"layers": layers, "D": d, "T": t}, {"megabytes": size / 1e6, "smaller": size / 8e6}, {}


@question(9, 4)
def with_and_without_cache(draw: Draw) -> Made:
    """A decoder of width {d} writes {T} tokens, one at a time. Count the multiplications of q·k in one layer: with a
    cache (step i uses i keys), and without (step i computes all i² scores again). What is the ratio?

    Answer: With: d·T(T + 1)/2 = {with}. Without: d·T(T + 1)(2T + 1)/6 = {without}. The ratio is (2T + 1)/3 = {ratio}.
    """
    t, d = draw.choose([100, 200, 400]), draw.choose([64, 128])
    cached, whole = d * t * (t + 1) // 2, d * t * (t + 1) * (2 * t + 1) // 6
    return {"T": t, "d": d}, {"with": cached, "without": whole, "ratio": (2 * t + 1) / 3}, {}


@question(9, 3)
def products_of_a_training_step(draw: Draw) -> Made:
    """A feed-forward network maps {tokens} tokens of width {d} to {wide} and back. How many multiplications do its
    matrix products take forward? How many backward, and why?

    Answer: 2 · {tokens} · {d} · {wide} = {forward}. Backward twice as many, {backward}: each product C = AB has two
    gradients, dC Bᵀ and Aᵀ dC, and each is a product of the same size.
    """
    tokens, d, wide = draw.choose([512, 1024]), draw.choose([64, 256]), draw.choose([256, 1024])
    once = 2 * tokens * d * wide
    return {"tokens": tokens, "d": d, "wide": wide}, {"forward": once, "backward": 2 * once}, {}


@question(9, 3)
def work_per_byte(draw: Draw) -> Made:
    """Two square matrices of {n} rows in float32 are multiplied. How many multiplications are there for each byte that
    is read or written once? A processor does {machine} multiplications in the time of one byte: does memory or
    arithmetic limit it?

    Answer: n³ / (3·4·n²) = n/12 = {per byte}. {limit} limits it.
    """
    size, machine = draw.choose([120, 600, 1200]), draw.choose([20, 75, 150])
    enough = size / 12 > machine
    answers = {"per byte": size / 12, "arithmetic": float(enough)}
    return {"n": size, "machine": machine}, answers, {"limit": "Arithmetic" if enough else "Memory"}


@question(9, 4)
def slope_of_silu(draw: Draw) -> Made:
    """SiLU is x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Derive its derivative, and compute both at x = ln {a}. What is the
    derivative at 0?

    Answer: σ' = σ(1 − σ), so the derivative is σ + xσ(1 − σ). σ(ln {a}) = {a}/{more}; SiLU is {value}, its derivative
    {slope}. At 0 it is ½.
    """
    a = draw.choose(range(2, 10))
    gate, x = a / (1 + a), math.log(a)
    return {"a": a}, {"value": x * gate, "slope": gate * (1 + x * (1 - gate)), "at zero": 0.5}, {"more": 1 + a}
