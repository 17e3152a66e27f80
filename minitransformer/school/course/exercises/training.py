"""Training: one step of Adam, a round of Newton-Schulz for Muon, and the warm-up schedule."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _adam(draw: Draw) -> Arguments:
    shape = draw.sizes(3 if draw.extreme else 2)
    theta, g, m = draw.normal(*shape), draw.gradient(*shape), draw.gradient(*shape)
    v = draw.gradient(*shape) ** 2
    if draw.ones:  # the first step
        m, v = np.zeros_like(m), np.zeros_like(v)
    t = 1 if draw.ones else 1000 if draw.extreme else draw.integer(2, 5)
    learning_rate, beta1, beta2 = draw.uniform(0.05, 0.2), draw.uniform(0.6, 0.85), draw.uniform(0.9, 0.97)
    return theta, g, m, v, t, learning_rate, beta1, beta2, draw.uniform(0.1, 0.4)


@exercise(_adam)
def adam_step(
    theta: Array, g: Array, m: Array, v: Array, t: int, learning_rate: float, beta1: float, beta2: float, eps: float
) -> tuple[Array, Array, Array]:
    """A step of Adam.

    The parameters theta have the gradient g at step t (counted from 1). Update the running means and take a step:

        m = β₁ m + (1 - β₁) g,   v = β₂ v + (1 - β₂) g²
        m̂ = m / (1 - β₁^t),      v̂ = v / (1 - β₂^t)
        θ = θ - η m̂ / (√v̂ + ε)

    Return the new theta, m and v as new arrays. theta, g, m, v: of one shape; t: an integer; learning_rate,
    beta1, beta2, eps: numbers, not the usual ones; η is the learning rate.

    Hint: Keep m and v, without the correction, for the next step; m̂ and v̂ are used once and forgotten.
    """
    new_m = beta1 * m + (1.0 - beta1) * g
    new_v = beta2 * v + (1.0 - beta2) * g * g
    m_hat = new_m / (1.0 - beta1**t)
    v_hat = new_v / (1.0 - beta2**t)
    new_theta = theta - learning_rate * m_hat / (np.sqrt(v_hat) + eps)
    return new_theta, new_m, new_v


def _matrix(draw: Draw) -> Arguments:
    m, n = draw.sizes(2)
    x = draw.normal(m, n)
    a, b, c = draw.uniform(2.0, 4.0), -draw.uniform(3.0, 5.0), draw.uniform(1.0, 2.0)
    return (1.0 if draw.ones or draw.extreme else 1.0 / np.sqrt((x * x).sum())) * x, a, b, c


@exercise(_matrix)
def newton_schulz_step(x: Array, a: float, b: float, c: float) -> Array:
    """A round of Newton-Schulz.

    Muon brings a matrix x close to the orthogonal matrix with the same singular vectors. One round is

        y = a x + b (x xᵀ) x + c (x xᵀ)² x

    with matrix products. It maps each singular value s to a s + b s³ + c s⁵.

    x, y: (M, N); a, b, c: numbers.

    Hint: x xᵀ occurs twice: compute it once, and multiply by x only at the end. (x xᵀ)² is a matrix product too.
    """
    gram = x @ x.T
    y = a * x + (b * gram + c * gram @ gram) @ x
    return y


def _warmup(draw: Draw) -> Arguments:
    if draw.ones:
        return np.array([1.0]), 1, 1
    if draw.extreme:
        return np.array([100_000.0, 1.0, 399.0, 400.0, 401.0]), draw.integer(512, 2048), 400
    warmup = draw.integer(5, 14)
    return np.arange(1.0, 3.0 * warmup), draw.integer(16, 256), warmup


@exercise(_warmup)
def warmup_schedule(steps: Array, d_model: int, warmup: int) -> Array:
    """The warm-up schedule.

    The learning rate of "Attention Is All You Need", for each of several steps:

        rate = d_model^-½ · min(step^-½, step · warmup^-1½)

    steps: (N,), counted from 1; d_model, warmup: integers; rates: (N,).

    Hint: np.minimum takes the smaller number, entry by entry. Plot your answer: it rises linearly, then falls.
    """
    rates = d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    return rates
