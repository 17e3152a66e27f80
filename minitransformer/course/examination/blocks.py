"""Weeks 7 to 9: normalization, residual connections, embeddings, the optimiser, the cache, the cost."""

from __future__ import annotations

import math

import numpy as np

from ..worksheets.numbers import Draw, rows_of_deviation_two
from .question import Asked, block, n, question


def _normed_row(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """A row of four with standard deviation 2 and some mean, and the row normed."""
    centred = np.array(draw.choose(rows_of_deviation_two(4)), dtype=float)
    return centred + draw.choose(range(-2, 6)), centred / 2


@question(7, 3)
def layer_norm(draw: Draw) -> Asked:
    x, normed = _normed_row(draw)
    gamma, beta = draw.matrix(1, 3, 4), draw.matrix(-2, 2, 4)
    return Asked(
        f"LayerNorm of one row, with ε = 0:\n\n{block(x=x, γ=gamma, β=beta)}\n\nCompute y. What changes if 10 is "
        "added to all of "
        "x? If x is multiplied by 10?",
        {"x": x, "gamma": gamma, "beta": beta},
        f"Mean {n(x.mean())}, standard deviation 2, normed {n(normed)}, y = γ · normed + β = "
        f"{n(gamma * normed + beta)}. Nothing "
        "changes in either case.",
        {"y": gamma * normed + beta},
    )


@question(7, 5)
def layer_norm_pullback(draw: Draw) -> Asked:
    x, normed = _normed_row(draw)
    gamma, dy = draw.matrix(1, 2, 4), draw.matrix(-3, 3, 4)
    dnormed = gamma * dy
    dx = (dnormed - dnormed.mean() - normed * (dnormed * normed).mean()) / 2
    return Asked(
        f"LayerNorm of one row, with ε = 0:\n\n{block(x=x, γ=gamma, dy=dy)}\n\nCompute dγ, dβ and dx. Which two sums "
        "must be 0 for a "
        "right dx?",
        {"x": x, "gamma": gamma, "dy": dy},
        f"normed = {n(normed)}, standard deviation 2. dγ = dy · normed = {n(dy * normed)}, dβ = dy. dnormed = γ dy = "
        f"{n(dnormed)}; its "
        f"mean is {n(dnormed.mean())}, the mean of dnormed · normed is {n((dnormed * normed).mean())}. "
        f"dx = (dnormed − mean − normed · mean of the products) / 2 = {n(dx)}. The sums of dx and of dx · normed are "
        "0.",
        {"dgamma": dy * normed, "dbeta": dy, "dx": dx},
    )


@question(7, 3)
def residual_connection(draw: Draw) -> Asked:
    w, dy = draw.matrix(-2, 2, 2, 2), draw.matrix(-3, 3, 1, 2)
    return Asked(
        f"y = x + xW, as a row.\n\n{block(W=w, dy=dy)}\n\nCompute dx. What would it be without the residual "
        "connection, and what "
        "with W = 0?",
        {"W": w, "dy": dy},
        f"dx = dy + dy Wᵀ = {n((dy + dy @ w.T)[0])}. Without it dy Wᵀ = {n((dy @ w.T)[0])}; with W = 0 it is dy "
        "itself.",
        {"dx": (dy + dy @ w.T)[0], "without": (dy @ w.T)[0]},
    )


@question(7, 3)
def gradient_in_the_depth(draw: Draw) -> Asked:
    a, depth = draw.choose([0.1, 0.2, 0.5]), draw.choose([10, 20])
    return Asked(
        f"Each of {depth} layers multiplies a number by {a}: h' = {a}·h. By how much does the gradient shrink on its "
        "way to the first "
        f"layer? What does it become with residual connections, h' = h + {a}·h?",
        {"a": a, "depth": depth},
        f"{a}^{depth} = {a**depth:.1e}, and {n(1 + a)}^{depth} = {n((1 + a) ** depth)}. The residual path passes the "
        "gradient on "
        "unchanged, and each layer adds its part.",
        {"without": a**depth, "with": (1 + a) ** depth},
    )


@question(7, 5)
def feed_forward_pullback(draw: Draw) -> Asked:
    while True:
        x, w_1, w_2, dy = (draw.matrix(-2, 2, *shape) for shape in ((1, 2), (2, 3), (3, 2), (1, 2)))
        inner = x @ w_1
        if inner.all() and 0 < (inner > 0).sum() < 3 and ((dy @ w_2.T) * (inner > 0)).any():
            break
    hidden, dhidden = np.maximum(inner, 0), dy @ w_2.T
    dinner = dhidden * (inner > 0)
    return Asked(
        f"y = max(0, x W₁) W₂.\n\n{block(x=x, W_1=w_1, W_2=w_2, dy=dy)}\n\nCompute dW₂ and dx. Which column of W₁ "
        "gets no gradient?",
        {"x": x, "W_1": w_1, "W_2": w_2, "dy": dy},
        f"x W₁ = {n(inner[0])}; hidden = {n(hidden[0])}. dW₂ = hiddenᵀ dy. dhidden = dy W₂ᵀ = {n(dhidden[0])}, which "
        "passes where "
        f"x W₁ > 0: {n(dinner[0])}. dx = that times W₁ᵀ = "
        f"{n((dinner @ w_1.T)[0])}.\n\n{block(dW_2=hidden.T @ dy)}\n\nNo gradient: the "
        "columns whose inner number is negative.",
        {"dW_2": hidden.T @ dy, "dx": (dinner @ w_1.T)[0], "columns without": (inner[0] < 0).astype(float)},
    )


@question(8, 3)
def embedding_pullback(draw: Draw) -> Asked:
    ids = np.array([1, draw.choose([0, 2, 3]), 1])
    dx = draw.matrix(-3, 3, 3, 2)
    table = np.zeros((4, 2))
    np.add.at(table, ids, dx)
    return Asked(
        f"A table with 4 rows is looked up for the tokens {n(ids.astype(float))}. The gradient of the vectors "
        f"is\n\n{block(dx=dx)}\n\n"
        "Compute the gradient of the table. Which mistake does the repeated token reveal?",
        {"ids": ids, "dx": dx},
        f"{block(dtable=table)}\n\nRow 1 was used twice, so its gradients add up. Code that assigns instead of "
        "adding keeps only the last "
        "one.",
        {"dtable": table},
    )


@question(8, 4)
def tied_tables(draw: Draw) -> Asked:
    h, dlogits, dx = draw.matrix(-2, 3, 1, 2), draw.matrix(-2, 2, 1, 3), draw.matrix(-2, 2, 2)
    token = draw.choose(range(3))
    table = dlogits.T @ h
    table[token] += dx
    return Asked(
        f"One table E of 3 tokens both embeds and makes the logits h Eᵀ. Token {token} was looked up.\n\n"
        f"{block(h=h, dlogits=dlogits, dx=dx)}\n\n(dx is the gradient of the vector that was looked up.) Compute dE.",
        {"token": token, "h": h, "dlogits": dlogits, "dx": dx},
        f"From the output dlogitsᵀ h, and from the input dx in row {token}:\n\n{block(dE=table)}",
        {"dE": table},
    )


@question(8, 3)
def positions_of_width_four(draw: Draw) -> Asked:
    place = draw.choose(range(1, 7))
    row = np.array([math.sin(place), math.cos(place), math.sin(place / 100), math.cos(place / 100)])
    return Asked(
        f"Sinusoidal positions of width 4 with base 10000. Compute row {place} (in radians; positions count from 0). "
        "By what angle "
        "do the two pairs turn from one position to the next?",
        {"position": place},
        f"The frequencies are 1 and 10000^(−2/4) = 0.01: (sin {place}, cos {place}, sin {place / 100}, cos "
        f"{place / 100}) = {n(row)}. "
        "By 1 and by 0.01.",
        {"row": row, "angles": np.array([1.0, 0.01])},
    )


@question(8, 5)
def two_steps_of_adam(draw: Draw) -> Asked:
    first, second = draw.choose([1.0, 2.0, -2.0]), draw.choose([-1.0, 3.0, 4.0])
    m, v = 0.1 * first, 0.001 * first**2
    step_1 = (m / 0.1) / math.sqrt(v / 0.001)
    m, v = 0.9 * m + 0.1 * second, 0.999 * v + 0.001 * second**2
    step_2 = (m / 0.19) / math.sqrt(v / 0.001999)
    w = 1.0 - 0.1 * step_1 - 0.1 * step_2
    return Asked(
        "Adam with β₁ = 0.9, β₂ = 0.999, ε = 0 and the learning rate 0.1. A weight begins at 1; its gradients are "
        f"{n(first)}, then "
        f"{n(second)}. Compute the weight after each step. Why does the size of the first gradient not matter?",
        {"gradients": np.array([first, second])},
        f"Step 1: the corrected averages are m = {n(first)} and v = {n(first**2)}, m/√v = {n(step_1)}: w = "
        f"{n(1 - 0.1 * step_1)}. "
        f"Step 2: m = {n(m)}/0.19 = {n(m / 0.19)}, v = {n(v / 0.001999)}, m/√v = {n(step_2)}: w = {n(w)}. After one "
        "step m/√v is "
        "the sign of the gradient.",
        {"after one": 1 - 0.1 * step_1, "after two": w},
    )


@question(8, 3)
def warm_up(draw: Draw) -> Asked:
    d, warm = draw.choose([256, 1024]), draw.choose([400, 2500, 10000])
    late = 4 * warm
    rate = 1 / math.sqrt(d) / math.sqrt(warm)
    return Asked(
        f"The paper's learning rate is d^(−1/2) · min(step^(−1/2), step · warmup^(−3/2)), with d = {d} and warmup = "
        f"{warm}. Where is it "
        f"largest, and how large? What is it at step {warm // 4}, and at step {late}?",
        {"d": d, "warmup": warm},
        f"At step {warm}: 1/√({d}·{warm}) = {n(rate)}. At a quarter of it, a quarter: {n(rate / 4)}. At four times as "
        "many steps it is "
        f"divided by √4: {n(rate / 2)}.",
        {"largest": rate, "early": rate / 4, "late": rate / 2},
    )


@question(9, 3)
def size_of_the_cache(draw: Draw) -> Asked:
    layers, d, t = draw.choose([12, 24, 32]), draw.choose([512, 1024]), draw.choose([1000, 2000])
    size = 2 * layers * d * t * 4
    return Asked(
        f"A decoder has {layers} layers of width {d}. How many megabytes (10⁶) do the keys and values of {t} tokens "
        "take in float32? "
        "How many with a quarter of the heads of keys and values, in float16?",
        {"layers": layers, "D": d, "T": t},
        f"2 · {layers} · {d} · {t} numbers of 4 bytes: {n(size / 1e6)} MB. A quarter of the heads and half the bytes: "
        "an eighth, "
        f"{n(size / 8e6)} MB.",
        {"megabytes": size / 1e6, "smaller": size / 8e6},
    )


@question(9, 4)
def with_and_without_cache(draw: Draw) -> Asked:
    t, d = draw.choose([100, 200, 400]), draw.choose([64, 128])
    cached, whole = d * t * (t + 1) // 2, d * t * (t + 1) * (2 * t + 1) // 6
    return Asked(
        f"A decoder of width {d} writes {t} tokens, one at a time. Count the multiplications of q·k in one layer: "
        "with a cache (step i "
        "uses i keys), and without (step i computes all i² scores again). What is the ratio?",
        {"T": t, "d": d},
        f"With: d·T(T + 1)/2 = {cached}. Without: d·T(T + 1)(2T + 1)/6 = {whole}. The ratio is (2T + 1)/3 = "
        f"{n((2 * t + 1) / 3)}.",
        {"with": cached, "without": whole, "ratio": (2 * t + 1) / 3},
    )


@question(9, 3)
def products_of_a_training_step(draw: Draw) -> Asked:
    tokens, d, wide = draw.choose([512, 1024]), draw.choose([64, 256]), draw.choose([256, 1024])
    once = 2 * tokens * d * wide
    return Asked(
        f"A feed-forward network maps {tokens} tokens of width {d} to {wide} and back. How many multiplications do its "
        "matrix products "
        "take forward? How many backward, and why?",
        {"tokens": tokens, "d": d, "wide": wide},
        f"2 · {tokens} · {d} · {wide} = {once}. Backward twice as many, {2 * once}: each product C = AB has two "
        "gradients, dC Bᵀ and "
        "Aᵀ dC, and each is a product of the same size.",
        {"forward": once, "backward": 2 * once},
    )


@question(9, 3)
def work_per_byte(draw: Draw) -> Asked:
    size = draw.choose([120, 600, 1200])
    machine = draw.choose([20, 75, 150])
    return Asked(
        f"Two square matrices of {size} rows in float32 are multiplied. How many multiplications are there for each "
        "byte that is read "
        f"or written once? A processor does {machine} multiplications in the time of one byte: does memory or "
        "arithmetic limit it?",
        {"n": size, "machine": machine},
        f"n³ / (3·4·n²) = n/12 = {n(size / 12)}. {'Arithmetic' if size / 12 > machine else 'Memory'} limits it.",
        {"per byte": size / 12, "arithmetic": float(size / 12 > machine)},
    )


@question(9, 4)
def slope_of_silu(draw: Draw) -> Asked:
    a = draw.choose(range(2, 10))
    gate, x = a / (1 + a), math.log(a)
    slope = gate * (1 + x * (1 - gate))
    return Asked(
        f"SiLU is x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Derive its derivative, and compute both at x = ln {a}. What is the "
        "derivative at 0?",
        {"a": a},
        f"σ' = σ(1 − σ), so the derivative is σ + xσ(1 − σ). σ(ln {a}) = {a}/{1 + a}; SiLU is {n(x * gate)}, its "
        f"derivative {n(slope)}. "
        "At 0 it is ½.",
        {"value": x * gate, "slope": slope, "at zero": 0.5},
    )
