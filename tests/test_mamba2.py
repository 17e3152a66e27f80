"""Mamba-2: against its formulas, token by token and head by head; its cache; its mistakes."""

import numpy as np
import pytest

from minitransformer.ideas.after.gated_delta_net import DeltaCache
from minitransformer.ideas.after.mamba2 import Mamba2, softplus

RNG = np.random.default_rng(3)


def test_softplus_does_not_overflow():
    x = np.array([-800.0, -1.0, 0.0, 2.0, 800.0])
    np.testing.assert_allclose(softplus(x)[0], np.logaddexp(0.0, x), rtol=1e-14)
    with pytest.raises(ValueError, match="Mamba2: 5 heads cannot share 2 groups equally"):
        Mamba2(6, 5, 2, 3, 2)


def mamba(chunk=3):
    layer = Mamba2(6, 4, 2, 3, 2, kernel=3, chunk=chunk).to(dtype="float64")
    rng = np.random.default_rng(1)
    for _, parameter in layer.parameters():
        parameter.value = parameter.value + rng.normal(0.0, 0.5, parameter.value.shape)
    return layer


def silu(x):
    return x / (1.0 + np.exp(-x))


def written_out(layer, x):
    """One text, token by token and head by head."""
    rows = np.concatenate([x @ part.weight.value for part in (layer.inner, layer.write, layer.read)], axis=-1)
    filters, states, y = layer.convolution.weight.value, np.zeros((4, 3, 2)), []
    for t, token in enumerate(x):
        mixed = layer.convolution.bias.value + sum(w * rows[t - b] for b, w in enumerate(filters[::-1]) if t >= b)
        v, k, q = (
            part.reshape(-1, width) for part, width in zip(np.split(silu(mixed), [8, 14]), (2, 3, 3), strict=True)
        )
        steps = np.logaddexp(0.0, token @ layer.step.weight.value + layer.shift.value)
        found = []
        for h, step in enumerate(steps):
            fade = np.exp(-np.exp(layer.log_rate.value[h]) * step)
            states[h] = fade * states[h] + step * np.outer(k[h // 2], v[h])
            found.append(q[h // 2] @ states[h] + layer.skip.value[h] * v[h])
        passed = (np.concatenate(found) * silu(token @ layer.gate.weight.value)).reshape(2, 4)
        normed = passed / np.sqrt((passed**2).mean(axis=-1, keepdims=True) + 1e-5)
        y.append((normed.reshape(-1) * layer.norm.gamma.value) @ layer.last.weight.value)
    return np.stack(y), states


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_the_layer_is_what_its_formulas_say(chunk):
    layer, cache, x = mamba(chunk), DeltaCache(), RNG.normal(size=(2, 7, 6))
    expected, states = written_out(layer, x[0])
    np.testing.assert_allclose(layer(x)[0][0], expected, rtol=1e-9)
    layer(x, cache=cache)
    np.testing.assert_allclose(cache.state[0], states, rtol=1e-9)


def test_the_cache_has_the_size_of_its_formula_however_long_the_text():
    layer, cache = mamba(), DeltaCache()
    for length in (1, 7, 40):
        layer(RNG.normal(size=(2, length, 6)), cache=cache)
        sizes = cache.state.size, cache.convolution.state.size
        assert sizes == (2 * 4 * 3 * 2, 2 * (3 - 1) * (4 * 2 + 2 * 2 * 3)) and cache.length in (1, 8, 48)
