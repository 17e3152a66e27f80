"""Kimi Delta Attention: the form in chunks against the recurrence, the layer against its formulas, the mistakes."""

import numpy as np
import pytest
from value_checks import rejects

from minitransformer import course, ideas
from minitransformer.ideas.after.channel_delta import KimiDeltaAttention, channel_chunk
from minitransformer.ideas.after.chunked_delta import delta_chunk, in_chunks
from minitransformer.ideas.after.gated_delta_net import DeltaCache

RNG = np.random.default_rng(3)


def text(length, *leading, d_k=3, d_v=4):
    """Queries, keys of length 1, values, a decay for each channel, rates, and a memory."""
    q, k, v = (RNG.normal(size=(*leading, length, width)) for width in (d_k, d_k, d_v))
    k = k / np.sqrt((k**2).sum(axis=-1, keepdims=True))
    decay = -RNG.exponential(0.3, (*leading, d_k, length))
    return q, k, v, decay, RNG.random((*leading, length)), RNG.normal(size=(*leading, d_k, d_v))


@pytest.mark.parametrize("chunk", [1, 4, 5, 64])
def test_every_size_of_chunk_is_the_recurrence(chunk):
    given = text(13, 2, 3)
    q, k, v, decay, *rest = given
    wanted, wanted_backward = ideas.gated_delta(q, k, v, decay.swapaxes(-1, -2), *rest, scale=1.0)
    (output, after), backward = in_chunks(*given, chunk, channel_chunk)
    doutput = RNG.normal(size=output.shape)
    np.testing.assert_allclose(output, wanted, rtol=0, atol=1e-12)
    gradients = list(wanted_backward(doutput))
    gradients[3] = gradients[3].swapaxes(-1, -2)
    for found, right in zip(backward(doutput, np.zeros_like(after)), gradients, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@rejects("channel-one-decay-for-all")
def channels_fade_apart():
    """With nothing written, each row of the memory is its old self times the share of its own channel."""
    q, k, v, decay, _, memory = text(2)
    shares = np.exp(decay.sum(axis=1))[:, None]
    np.testing.assert_allclose(channel_chunk(q, k, v, decay, np.zeros(2), memory)[0][2:], shares * memory, rtol=1e-12)


def test_one_decay_for_all_channels_is_gated_deltanet():
    q, k, v, decay, beta, memory = text(6, 2)
    alike = decay[..., 0, :]
    found = channel_chunk(q, k, v, np.repeat(alike[..., None, :], 3, axis=-2), beta, memory)[0]
    np.testing.assert_allclose(found, delta_chunk(q, k, v, alike, beta, memory)[0], rtol=0, atol=1e-12)


def test_a_channel_that_fades_at_once_does_not_overflow():
    q, k, v, decay, beta, memory = text(6)
    result, backward = channel_chunk(q, k, v, decay - np.array([[900.0], [0.0], [0.0]]), beta, memory)
    assert np.isfinite(result).all() and all(np.isfinite(found).all() for found in backward(np.ones_like(result)))


def logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def test_the_layer_is_what_its_formulas_say():
    """One text, token by token and head by head."""
    layer, cache = KimiDeltaAttention(6, 2, 3, kernel=2, chunk=3, rng=np.random.default_rng(0)), DeltaCache()
    for _, parameter in layer.to(dtype="float64").parameters():
        parameter.value = parameter.value + RNG.normal(0.0, 0.5, parameter.value.shape)
    x = RNG.normal(size=(7, 6))
    rows = np.concatenate([x @ part.weight.value for part in (layer.query, layer.key, layer.value)], axis=-1)
    first, second = np.concatenate([layer.convolution.__dict__[n].value for n in ("query", "key", "value")], axis=-1)
    mixed = second * rows + first * np.concatenate([np.zeros((1, 18)), rows[:-1]])
    mixed = mixed * logistic(mixed)
    steps, gates = (x @ part.down.weight.value @ part.up.weight.value for part in (layer.step, layer.gate))
    memories, y = np.zeros((2, 3, 3)), np.zeros((7, 6))
    for t in range(7):
        for h in range(2):
            own = slice(3 * h, 3 * h + 3)
            q, k, v = (mixed[t, at : at + 6][own] for at in (0, 6, 12))
            q, k = (a / np.sqrt(sum(a * a) + 1e-6) for a in (q, k))
            share = np.exp(-np.exp(layer.log_rate.value[h]) * np.log1p(np.exp(steps[t] + layer.shift.value)[own]))
            faded = share[:, None] * memories[h]
            memories[h] = faded + logistic(x[t] @ layer.rate.weight.value)[h] * np.outer(k, v - k @ faded)
            read = q @ memories[h] / np.sqrt(3.0)
            normed = read / np.sqrt(np.mean(read * read) + 1e-5) * layer.norm.gamma.value
            y[t] += (normed * logistic(gates[t, own])) @ layer.output.weight.value[own]
    np.testing.assert_allclose(layer(x)[0], y, rtol=1e-9)
    layer(x, cache=cache)
    np.testing.assert_allclose(cache.state, memories, rtol=1e-9)
    assert cache.convolution.state.shape == (1, 18)


def test_the_op_in_a_chunk_solves_the_exercise():
    def by_the_op(k, v, decay, beta, memory, dafter):
        result, backward = channel_chunk(0.0 * k, k, v, decay.swapaxes(-1, -2), beta, memory)
        outputs = np.zeros_like(result[..., : k.shape[-2], :])
        _, dk, dv, ddecay, dbeta, dmemory = backward(np.concatenate([outputs, dafter], axis=-2))
        return dk, dv, ddecay.swapaxes(-1, -2), dbeta, dmemory

    assert course.check("channel_chunk_backward", by_the_op).right
