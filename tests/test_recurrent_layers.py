"""What recurrent layers, convolutions and attention of a radius promise besides right gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw
from tiers import in_one

from minitransformer import ideas, layers
from minitransformer.core.arrays.masks import local_mask
from minitransformer.ideas import StateCache
from minitransformer.ideas.before.recurrent import CELLS
from minitransformer.layers import Cache, KeyValueCache


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


STEPWISE: dict[str, tuple[Callable[[], Any], type, dict[str, Any]]] = {
    **{cell: (lambda cell=cell: ideas.Recurrent(4, 4, cell, rng=rng()), StateCache, {}) for cell in CELLS},
    "convolution": (lambda: ideas.Convolution(4, 4, 3, 2, rng=rng()), StateCache, {"causal": True}),
    "convolution of one": (lambda: ideas.Convolution(4, 4, 1, rng=rng()), StateCache, {"causal": True}),
    "radius": (lambda: layers.MultiHeadAttention(4, 2, mix=ideas.Local(2), rng=rng()), KeyValueCache, {"causal": True}),
}


@in_one("name", STEPWISE)
def test_reading_token_by_token_gives_the_same(name: str) -> None:
    """In pieces of 1, 3 and 2 tokens; and each row continues as it would alone, whatever rows are selected."""
    make, kind, options = STEPWISE[name]
    layer, x, cache = make().to(dtype="float64"), draw(3, 6, 4), kind()
    whole = layer(x, **options)[0]
    first = layer(x[:, :1], cache=cache, **options)[0]
    rows = np.array([2, 0])
    cache.select(rows)
    rest = [layer(x[rows][:, a:b], cache=cache, **options)[0] for a, b in ((1, 4), (4, 6))]
    np.testing.assert_allclose(first, whole[:, :1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(rest, axis=1), whole[rows][:, 1:], rtol=0, atol=1e-12)
    assert cache.length == 6
    with pytest.raises(RuntimeError, match="no backward pass"):
        layer(x[rows], cache=cache, **options)[1](x[rows])


@pytest.mark.parametrize("cell", CELLS)
def test_a_state_takes_the_place_of_the_tokens_before(cell: str) -> None:
    layer, x, cache = ideas.Recurrent(4, 3, cell, rng=rng()).to(dtype="float64"), draw(2, 5, 4), StateCache()
    layer(x[:, :2], cache=cache)
    np.testing.assert_allclose(layer(x[:, 2:], cache.state)[0], layer(x)[0][:, 2:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_the_direction_back_has_read_all_but_padding_at_the_first_token(cell: str) -> None:
    layer = ideas.Bidirectional(4, 6, cell, rng=rng()).to(dtype="float64")
    x = draw(1, 5, 4)
    short = layer(x[:, :3])[0]
    padded = layer(x, mask=np.arange(5) < 3)[0]
    np.testing.assert_allclose(padded[:, :3], short, rtol=0, atol=1e-12)
    moved = x.copy()
    moved[:, 2] += 1.0
    change = abs(layer(moved[:, :3])[0] - short)[0, 0]
    assert (change[:3] == 0).all() and (change[3:] > 0).all()


@in_one(
    "make, error, message",
    [
        (lambda: ideas.Recurrent(4, 3, "elman"), ValueError, 'cell must be "rnn", "lstm" or "gru", got .elman'),
        (lambda: ideas.Recurrent(4, 0), ValueError, "d_hidden must be greater than 0, got 0"),
        (lambda: ideas.Recurrent(4, 3)(draw(4)), ValueError, r"Recurrent: x must be \(..., T, 4\), got shape \(4,\)"),
        (
            lambda: ideas.Recurrent(4, 3).to(dtype="float64")(draw(2, 5, 4), draw(2, 3)),
            ValueError,
            r"state must have shape \(2, 6\), got \(2, 3\)",
        ),
        (lambda: ideas.Bidirectional(4, 3), ValueError, "d_hidden must be even, for two directions; got 3"),
        (lambda: ideas.Alignment(4, "dot"), ValueError, 'score must be "additive" or "multiplicative", got .dot'),
        (
            lambda: ideas.Convolution(4, 4)(draw(3, 4).astype("float32"), cache=StateCache()),
            ValueError,
            "only a causal layer can use a cache; call with causal=True",
        ),
        (
            lambda: layers.MultiHeadAttention(4, 2, mix=ideas.Local(2)).to(dtype="float64")(
                draw(7, 4), mask=local_mask(7, 1)
            ),
            ValueError,
            r"the mask must be the same for every query, \(..., 1, T\)",
        ),
        (lambda: StateCache().select(np.array([0])), ValueError, "the cache is empty; no tokens were read yet"),
        (lambda: Cache(2, StateCache).select(np.array([0])), ValueError, "the cache is empty"),
    ],
)
def test_bad_calls_are_refused(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
