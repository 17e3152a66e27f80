"""Choosing the next token from its logits: the most probable one, or one drawn at random.

    p_i = exp(z_i / T) / sum_j exp(z_j / T)        over the tokens that top-k and top-p leave

A low temperature T sharpens the distribution, and as T → 0 only the most probable token is left. Top-k leaves the k
most probable tokens (Fan et al. 2018, "Hierarchical Neural Story Generation", section 5.4). Top-p, or nucleus sampling,
leaves the fewest most probable tokens that together reach the probability p (Holtzman et al. 2020, "The Curious Case of
Neural Text Degeneration", section 3.1). If the model is sure, that is one token; if it is not, there are many.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .. import ops
from ..arrays.backend import Array, Rng, array_module, device_of, to_device
from ..arrays.boundary import check_positive, check_sizes

# From logits (N, V), and the indices (N,) of their texts in the batch, to the next token of each text, (N,).
Choose: TypeAlias = Callable[[Array, np.ndarray], Array]


def most_probable(logits: Array, which: np.ndarray) -> Array:
    """The token with the largest logit; if several are equal, the first."""
    return logits.argmax(axis=-1)


class Sampler:
    """Draws the next token: applies the temperature, then top-k, then top-p to the tokens that top-k left.

    rngs: one generator for each text of the batch, as numpy.random.default_rng(seed).spawn(n) makes them. So the draws
    of a text depend on no other text: the result is the same alone and in a batch.
    temperature: greater than 0. top_k: at least 1, or None for all tokens. top_p: above 0, and 1 for all tokens.
    """

    def __init__(
        self, rngs: Sequence[Rng], temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
    ) -> None:
        if not isinstance(rngs, Sequence) or not all(isinstance(rng, np.random.Generator) for rng in rngs):
            raise TypeError(
                "Sampler: rngs must be a list of generators, one for each text; "
                f"make n of them with numpy.random.default_rng(seed).spawn(n); got {rngs!r}"
            )
        check_positive("Sampler", temperature=temperature, top_p=top_p)
        if top_p > 1.0:
            raise ValueError(f"Sampler: top_p is a probability and must be at most 1, got {top_p}")
        if top_k is not None:
            check_sizes("Sampler", top_k=top_k)
        self.rngs, self.temperature, self.top_k, self.top_p = list(rngs), float(temperature), top_k, float(top_p)

    def __call__(self, logits: Array, which: np.ndarray) -> Array:
        """Draw one token for each row of the logits. which: the generators of these rows, by their numbers."""
        if which.max() >= len(self.rngs):
            raise ValueError(
                f"Sampler: there must be one generator for each text, but there are {len(self.rngs)} "
                f"generators for at least {which.max() + 1} texts"
            )
        xp = array_module(logits)
        size = logits.shape[-1]
        ids = largest(logits, size if self.top_k is None else min(self.top_k, size))
        scores = xp.take_along_axis(logits, ids, axis=1).astype(np.float64)
        p = ops.softmax(scores, temperature=self.temperature)[0]
        up_to = xp.cumsum(p, axis=1)
        left = (up_to - p < self.top_p).sum(axis=1)  # keep a token if those before it do not reach top_p
        total = xp.take_along_axis(up_to, left[:, None] - 1, axis=1)
        draws = np.array([self.rngs[text].random() for text in which])
        place = (up_to <= to_device(draws, device_of(logits).name)[:, None] * total).sum(axis=1)
        return xp.take_along_axis(ids, place[:, None], axis=1)[:, 0]


def largest(x: Array, k: int) -> Array:
    """The indices of the k largest numbers in each row, the largest first. x: (N, V); returns (N, k)."""
    xp = array_module(x)
    size = x.shape[1]
    if k == size:
        return xp.argsort(-x, axis=1, kind="stable")
    found = xp.sort(xp.argpartition(x, size - k, axis=1)[:, size - k :], axis=1)
    order = xp.argsort(
        -xp.take_along_axis(x, found, axis=1), axis=1, kind="stable"
    )  # among equals, the first comes first
    return xp.take_along_axis(found, order, axis=1)
