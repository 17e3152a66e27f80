"""What cheaper attention promises besides right gradients: a cache gives what a whole pass gives, in less memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tiers import in_one
from variants import attention

from minitransformer import ideas, models
from minitransformer.core.layers.cache import Cache
from minitransformer.ideas import LatentAttention, LinearAttention, RollingCache, StateCache
from minitransformer.ideas.after.alibi_models import AlibiLanguageModelConfig
from minitransformer.layers import KeyValueCache, MultiHeadAttention

PIECES = ((0, 4), (4, 5), (5, 6), (6, 9))
X = np.random.default_rng(0).normal(size=(2, 9, 8))
KINDS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "latent": (partial(LatentAttention, 8, 2, 3, 5, 4), KeyValueCache),
    "linear": (partial(LinearAttention, 8, 2, block=3), StateCache),
    "norms": (partial(attention, 8, 4, n_key_heads=2, qk_norm=True), KeyValueCache),
    "a sink": (partial(attention, 8, 4, sink=True), KeyValueCache),
    "linear biases": (partial(attention, 8, 4, alibi=True), KeyValueCache),
    "window, rotated": (partial(attention, 8, 2, rotary_base=9.0, window=3), partial(RollingCache, 3)),
    "window, biased": (partial(attention, 8, 2, alibi=True, window=3), partial(RollingCache, 3)),
    "window, normed": (partial(attention, 8, 2, qk_norm=True, window=3), partial(RollingCache, 3)),
}  # fmt: skip


def made(build: Callable[..., Any]) -> Any:
    layer = build(rng=np.random.default_rng(1)).to(dtype="float64")
    for _, parameter in layer.parameters():
        parameter.value = parameter.value + 0.3 * np.random.default_rng(2).normal(size=parameter.value.shape)
    return layer


def in_pieces(layer: Any, cache: Any, pieces: Any = PIECES, **options: Any) -> np.ndarray:
    return np.concatenate([layer(X[:, i:j], cache=cache, **options)[0] for i, j in pieces], axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_gives_what_a_whole_pass_gives(kind: str) -> None:
    build, cache = KINDS[kind]
    layer = made(build)
    options = {} if kind == "linear" else {"causal": True}
    whole = layer(X, **options)[0]
    for pieces in (PIECES, [(i, i + 1) for i in range(9)], [(0, 9)]):
        np.testing.assert_allclose(in_pieces(layer, cache(), pieces, **options), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_with_a_cache_has_no_backward(kind: str) -> None:
    build, cache = KINDS[kind]
    with pytest.raises(RuntimeError, match="has no backward pass"):
        made(build)(X, cache=cache())[1](X)


def test_sinks_stay_visible_when_the_window_has_left_them() -> None:
    layer = made(partial(MultiHeadAttention, 8, 2))
    place = np.arange(9)
    near = (place[:, None] - place < 3) | (place < 2)
    cache = RollingCache(3, sinks=2)
    got = in_pieces(layer, cache, mask=np.ones(9, bool)[:1])
    np.testing.assert_allclose(got, layer(X, mask=near, causal=True)[0], rtol=1e-9)
    assert cache.length == 9 and cache.read()[0].shape == (2, 2, 5, 4)


@pytest.mark.parametrize("window", [None, 3])
def test_a_mask_of_all_tokens_reaches_the_kept_ones(window: int | None) -> None:
    """Hidden are a sink, a token in the middle and one that is soon forgotten; also inside a layer's own window."""
    layer, place = made(partial(attention, 8, 2, window=window)), np.arange(9)
    real = ~np.isin(place, [1, 3, 6])
    near = ((place[:, None] - place < 3) | (place < 2)) & real
    cache = RollingCache(3, sinks=2)
    got = [layer(X[:, i : i + 1], mask=real[: i + 1], cache=cache)[0] for i in range(9)]
    whole = made(partial(attention, 8, 2))(X, mask=near, causal=True)[0]
    np.testing.assert_allclose(np.concatenate(got, axis=1), whole, rtol=1e-9)


def test_a_rolling_cache_counts_positions_within_itself() -> None:
    """After 9 tokens one sink, two others and the new token are at 0 to 3, as if the sequence were these four."""
    layer = made(partial(attention, 8, 2, rotary_base=9.0))
    cache = RollingCache(2, sinks=1)
    in_pieces(layer, cache, [(i, i + 1) for i in range(9)])
    new = np.random.default_rng(3).normal(size=(2, 1, 8))
    alone = np.concatenate([X[:, [0, 7, 8]], new], axis=1)
    visible = np.array([True, False, True, True])  # of the kept ones the window of 2 has the last
    np.testing.assert_allclose(layer(new, cache=cache)[0], layer(alone, mask=visible)[0][:, 3:], rtol=1e-9)


def test_the_memory_of_a_rolling_cache_stays() -> None:
    config = AlibiLanguageModelConfig(7, max_length=40, d_model=8, n_heads=2, d_ff=8, n_layers=2)
    model = models.LanguageModel(config, np.random.default_rng(0)).to(dtype="float64")
    for layer in model.stack.layers:
        layer.self_attention.sublayer.mix = ideas.Window(4, layer.self_attention.sublayer.mix)
    ids = np.random.default_rng(1).integers(7, size=(3, 30))
    real = np.arange(30) >= np.array([[0], [3], [9]])  # padded on the left
    cache = Cache(2, partial(RollingCache, 4))
    rows = [model(ids[:, i : i + 1], cache=cache, mask=real[:, : i + 1])[0] for i in range(30)]
    np.testing.assert_allclose(np.concatenate(rows, axis=1)[:, 9:], model(ids, mask=real)[0][:, 9:], rtol=1e-8)
    assert cache.length == 30
    for layer in cache.self_attention:
        assert [x.shape for x in layer.buffers()] == [(3, 2, 4, 4)] * 2
        assert all(x.base is None or x.base.nbytes == x.nbytes for x in layer.buffers())  # no view of more
    cache.select(np.array([2, 0]))
    assert cache.self_attention[0].read()[0].shape == (2, 2, 4, 4)


def test_the_state_of_linear_attention_does_not_grow() -> None:
    cache = StateCache()
    layer = made(partial(LinearAttention, 8, 2))
    for _ in range(3):
        layer(X, cache=cache)
        assert cache.state is not None and cache.state.shape == (2, 2, 4, 5)
    assert cache.length == 27


def cached(layer: Any, cache: Any, **options: Any) -> Callable[[], Any]:
    return lambda: layer(X, cache=cache, **options)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a rolling cache of another window": (cached(attention(8, 2, window=3), RollingCache(4)), ValueError,
     "the window of 4 does not fit a layer with a window of 3"),
    "tokens taken back": (lambda: setattr(RollingCache(4), "length", 0), ValueError, "tokens cannot be taken back"),
    "a rolling cache of neighbours": (cached(attention(8, 2, radius=3), RollingCache(4)), ValueError,
     "does not fit a layer of restricted attention"),
    "a window around neighbours": (lambda: ideas.Window(3, ideas.Local(2)), ValueError,
     "the part inside must not be restricted itself"),
    "dropout beside a part": (lambda: MultiHeadAttention(8, 2, mix=ideas.Sink(2), dropout=0.1), ValueError,
     "belongs to `mix`"),
    "keys in place of a state": (cached(LinearAttention(8, 2), KeyValueCache()), TypeError,
     "cache must be a StateCache, got KeyValueCache"),
    "padding into a state": (cached(LinearAttention(8, 2), StateCache(), mask=np.ones(9, bool)), ValueError,
     "takes no mask"),
    "an odd rotation": (lambda: LatentAttention(8, 2, 3, 5, 3)(X.astype(np.float32)), ValueError, "an even d"),
}  # fmt: skip


@in_one("what", BAD)
def test_what_is_refused(what: str) -> None:
    call, error, message = BAD[what]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("n_heads", "wanted"),
    [(4, [2, 4, 6, 8]), (8, [1, 2, 3, 4, 5, 6, 7, 8]), (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5])],
)
def test_slopes_of_any_number_of_heads_are_those_of_the_published_code(n_heads, wanted):
    """The powers of 1/2 as Press et al.'s get_slopes has them: of the power of two below, then between them."""
    found = ideas.LinearBias(n_heads).slopes
    np.testing.assert_allclose(-np.log2(found), wanted, rtol=0, atol=1e-12)


def test_the_heads_of_latent_attention_add_up():
    attention = LatentAttention(8, 3, 4, 5, 2, rng=np.random.default_rng(0), d_value=3, d_query=6).to(dtype="float64")
    x = np.random.default_rng(1).normal(size=(2, 5, 8))
    alone = sum(attention.head(i)(x, causal=True)[0] for i in range(3))
    np.testing.assert_allclose(alone, attention(x, causal=True)[0], rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match=r"LatentAttention\.head"):
        attention.head(3)
