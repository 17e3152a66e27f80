"""Scores of attention weights, each from 0 to 1, that show what kind of head it is.

    previous token    mean over t ≥ 1 of weights[t, t - 1]
    first token       mean over t ≥ 1 of weights[t, 0]
    induction         mean over the second copy of weights[t, t - period + 1], on a text that repeats after `period`

An induction head finds where the current token last occurred, and attends to the token after it. So its output
continues a pattern. It needs a previous-token head in a lower layer, which tells each token what came before it. Olsson
et al. 2022, "In-context Learning and Induction Heads".
"""

from collections.abc import Sequence

import numpy as np

from ...core.arrays.boundary import check_sizes


def previous_token_score(weights: np.ndarray) -> np.ndarray:
    """How much of its attention a head gives to the token before. weights: (..., T, T); returns (...)."""
    _check("previous_token_score", weights, 2)
    return np.diagonal(weights, -1, -2, -1).mean(axis=-1)


def first_token_score(weights: np.ndarray) -> np.ndarray:
    """How much of its attention a head gives to the first token. weights: (..., T, T); returns (...)."""
    _check("first_token_score", weights, 2)
    return weights[..., 1:, 0].mean(axis=-1)


def induction_score(weights: np.ndarray, period: int) -> np.ndarray:
    """How much the last `period` tokens attend to the token after their own first occurrence, `period` tokens earlier.

    weights: (..., T, T), of a text whose last `period` tokens repeat those before them; returns (...).
    """
    check_sizes("induction_score", period=period)
    _check("induction_score", weights, 2 * period)
    return np.diagonal(weights, 1 - period, -2, -1)[..., -period:].mean(axis=-1)


def repeated(
    tokens: int | Sequence[int] | np.ndarray, period: int, batch: int = 1, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Random texts that repeat once: `period` different tokens, then the same again. (batch, 2 · period) integers.

    tokens: the ids to draw from, or how many there are. Only induction predicts the second half.
    """
    rng = np.random.default_rng() if rng is None else rng
    check_sizes("repeated", period=period, batch=batch)
    choice = np.arange(tokens) if isinstance(tokens, int) else np.asarray(tokens)
    if len(choice) < period:
        raise ValueError(f"repeated: needs {period} different tokens, but there are only {len(choice)}")
    once = np.stack([rng.choice(choice, period, replace=False) for _ in range(batch)])
    return np.concatenate([once, once], axis=1)


def _check(function: str, weights: np.ndarray, shortest: int) -> None:
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < shortest:
        raise ValueError(f"{function}: weights must be (..., T, T) with T of at least {shortest}, got {weights.shape}")
