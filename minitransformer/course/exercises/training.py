"""Training: one step of Adam, and the warm-up schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _adam(draw: Draw) -> tuple[Any, ...]:
    shape = draw.sizes(3 if draw.extreme else 2)
    theta, g, m = draw.normal(*shape), draw.gradient(*shape), draw.gradient(*shape)
    v = draw.gradient(*shape) ** 2
    if draw.ones:  # the first step
        m, v = np.zeros_like(m), np.zeros_like(v)
    t = 1 if draw.ones else 1000 if draw.extreme else draw.integer(2, 5)
    learning_rate, beta1, beta2 = draw.uniform(0.05, 0.2), draw.uniform(0.6, 0.85), draw.uniform(0.9, 0.97)
    return theta, g, m, v, t, learning_rate, beta1, beta2, draw.uniform(0.1, 0.4)


@exercise(
    title="A step of Adam",
    statement="""
        The parameters theta have the gradient g at step t (counted from 1). Update the running means and take a step:

            m = β₁ m + (1 - β₁) g,   v = β₂ v + (1 - β₂) g²
            m̂ = m / (1 - β₁^t),      v̂ = v / (1 - β₂^t)
            θ = θ - η m̂ / (√v̂ + ε)

        Return the new theta, m and v as new arrays. theta, g, m, v: of one shape; t: an integer; learning_rate (η),
        beta1, beta2, eps: numbers, not the usual ones.
    """,
    outputs="new_theta, new_m, new_v",
    inputs=_adam,
    hint="Keep m and v, without the correction, for the next step; m̂ and v̂ are used once and forgotten.",
    mistakes=(
        Mistake(
            "no-bias-correction",
            "new_m / (1.0 - beta1**t)\n    v_hat = new_v / (1.0 - beta2**t)",
            "new_m\n    v_hat = new_v",
            "m and v are used without the correction 1 / (1 - β^t); they start at zero and are too small at first.",
        ),
        Mistake(
            "no-bias-correction-of-m",
            "new_m / (1.0 - beta1**t)",
            "new_m",
            "m̂ lacks the correction 1 / (1 - β₁^t).",
        ),
        Mistake(
            "no-bias-correction-of-v",
            "new_v / (1.0 - beta2**t)",
            "new_v",
            "v̂ lacks the correction 1 / (1 - β₂^t).",
        ),
        Mistake(
            "correction-without-power",
            "new_m / (1.0 - beta1**t)\n    v_hat = new_v / (1.0 - beta2**t)",
            "new_m / (1.0 - beta1)\n    v_hat = new_v / (1.0 - beta2)",
            "The correction divides by 1 - β; it must be 1 - β^t, which goes to 1 as the steps go on.",
        ),
        Mistake(
            "steps-counted-from-zero",
            "new_m / (1.0 - beta1**t)\n    v_hat = new_v / (1.0 - beta2**t)",
            "new_m / (1.0 - beta1 ** (t - 1))\n    v_hat = new_v / (1.0 - beta2 ** (t - 1))",
            "The correction uses t - 1; t counts from 1 already, and at t = 1 you would divide by 0.",
        ),
        Mistake(
            "betas-exchanged-in-m",
            "beta1 * m + (1.0 - beta1) * g",
            "beta2 * m + (1.0 - beta2) * g",
            "m uses β₂; it must be β₁.",
        ),
        Mistake(
            "betas-exchanged-in-v",
            "beta2 * v + (1.0 - beta2) * g * g",
            "beta1 * v + (1.0 - beta1) * g * g",
            "v uses β₁; it must be β₂.",
        ),
        Mistake(
            "gradient-not-squared",
            "(1.0 - beta2) * g * g",
            "(1.0 - beta2) * g",
            "v takes up g; it must be g², entry by entry.",
        ),
        Mistake(
            "eps-inside-root",
            "(np.sqrt(v_hat) + eps)",
            "np.sqrt(v_hat + eps)",
            "ε stands inside the root; it is added to √v̂.",
        ),
        Mistake(
            "root-forgotten",
            "(np.sqrt(v_hat) + eps)",
            "(v_hat + eps)",
            "You divided by v̂; divide by its root.",
        ),
        Mistake(
            "uphill",
            "theta - learning_rate",
            "theta + learning_rate",
            "The step goes uphill: subtract it.",
        ),
        Mistake(
            "corrected-means-kept",
            "return new_theta, new_m, new_v",
            "return new_theta, m_hat, v_hat",
            "m̂ and v̂ are returned; the next step needs m and v without the correction, or it is applied twice.",
        ),
        Mistake(
            "old-means-used",
            "new_m / (1.0 - beta1**t)\n    v_hat = new_v / (1.0 - beta2**t)",
            "m / (1.0 - beta1**t)\n    v_hat = v / (1.0 - beta2**t)",
            "The step uses m and v from before; this gradient must have its share in it.",
        ),
    ),
)
def adam_step(
    theta: Array,
    g: Array,
    m: Array,
    v: Array,
    t: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    new_m = beta1 * m + (1.0 - beta1) * g
    new_v = beta2 * v + (1.0 - beta2) * g * g
    m_hat = new_m / (1.0 - beta1**t)
    v_hat = new_v / (1.0 - beta2**t)
    new_theta = theta - learning_rate * m_hat / (np.sqrt(v_hat) + eps)
    return new_theta, new_m, new_v


def _warmup(draw: Draw) -> tuple[Any, ...]:
    if draw.ones:
        return np.array([1.0]), 1, 1
    if draw.extreme:
        return np.array([100_000.0, 1.0, 399.0, 400.0, 401.0]), draw.integer(512, 2048), 400
    warmup = draw.integer(5, 14)
    return np.arange(1.0, 3.0 * warmup), draw.integer(16, 256), warmup


@exercise(
    title="The warm-up schedule",
    statement="""
        The learning rate of "Attention Is All You Need", for each of several steps:

            rate = d_model^-½ · min(step^-½, step · warmup^-1½)

        steps: (N,), counted from 1; d_model, warmup: integers; rates: (N,).
    """,
    outputs="rates",
    inputs=_warmup,
    hint="np.minimum takes the smaller entry by entry. Plot your answer: it rises in a straight line, then falls.",
    mistakes=(
        Mistake(
            "maximum",
            "np.minimum",
            "np.maximum",
            "The larger of the two is taken; the rate would start high, fall, and then rise without end.",
        ),
        Mistake("no-d-model", "d_model**-0.5 * ", "", "The factor d_model^-½ is missing."),
        Mistake(
            "d-model-root-multiplied",
            "d_model**-0.5",
            "d_model**0.5",
            "You multiplied by √d_model; divide by it: wider models take smaller steps.",
        ),
        Mistake(
            "d-model-without-root",
            "d_model**-0.5",
            "d_model**-1.0",
            "You divided by d_model; it must be its square root.",
        ),
        Mistake(
            "warmup-exponent",
            "warmup**-1.5",
            "warmup**-0.5",
            "warmup has the exponent -½; with -1½ both branches meet at step = warmup.",
        ),
        Mistake(
            "warmup-exponent-minus-one",
            "warmup**-1.5",
            "warmup**-1.0",
            "warmup has the exponent -1; with -1½ both branches meet at step = warmup.",
        ),
        Mistake(
            "no-decay",
            "np.minimum(steps**-0.5,",
            "np.minimum(warmup**-0.5,",
            "After the warm-up the rate stays where it is; it must fall as step^-½.",
        ),
        Mistake(
            "no-warmup",
            "np.minimum(steps**-0.5, steps * warmup**-1.5)",
            "steps**-0.5",
            "There is no warm-up: the rate starts at its highest and falls.",
        ),
        Mistake(
            "steps-counted-from-zero",
            "np.minimum(steps**-0.5, steps * warmup**-1.5)",
            "np.minimum((steps + 1.0)**-0.5, (steps + 1.0) * warmup**-1.5)",
            "One is added to the step; steps count from 1 already.",
        ),
    ),
)
def warmup_schedule(steps: Array, d_model: int, warmup: int) -> Array:
    rates = d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    return rates
