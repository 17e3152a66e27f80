"""Gated DeltaNet: against the formulas written out, token by token; its cache; models half of which attend."""

import numpy as np
import pytest
from value_checks import CLOSE, rejects

from minitransformer.ideas.after.gated_delta_net import DeltaCache, GatedDeltaNet, step_decay

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 7, 6))


def net(chunk=3):
    layer = GatedDeltaNet(6, 4, 2, 3, 2, kernel=3, chunk=chunk, rng=np.random.default_rng(0)).to(dtype="float64")
    rng = np.random.default_rng(1)
    for _, parameter in layer.parameters():
        parameter.value = parameter.value + rng.normal(0.0, 0.5, parameter.value.shape)
    return layer


def logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def written_out(layer, x):
    """One text, token by token and head by head."""
    rows = np.concatenate([x @ part.weight.value for part in (layer.query, layer.key, layer.value)], axis=-1)
    filters = layer.convolution.filters()
    mixed = [sum(w * rows[t - back] for back, w in enumerate(filters[::-1]) if t >= back) for t in range(len(x))]
    mixed = [row * logistic(row) for row in mixed]
    memories, y = np.zeros((4, 3, 2)), []
    for t, row in enumerate(mixed):
        beta = logistic(x[t] @ layer.rate.weight.value)
        step = np.log1p(np.exp(x[t] @ layer.step.weight.value + layer.shift.value))
        heads = []
        for h in range(4):
            q, k = (row[at + h // 2 * 3 :][:3] for at in (0, 6))
            q, k = (a / np.sqrt(sum(a * a) + 1e-6) for a in (q, k))
            v = row[12 + 2 * h :][:2]
            memory = memories[h] * np.exp(-np.exp(layer.log_rate.value[h]) * step[h])
            memories[h] = memory + beta[h] * np.outer(k, v - k @ memory)
            read = q @ memories[h] / np.sqrt(3.0)
            gate = x[t] @ layer.gate.weight.value[:, 2 * h : 2 * h + 2]
            normed = read / np.sqrt(np.mean(read * read) + 1e-6) * layer.norm.gamma.value
            heads.append(normed * gate * logistic(gate))
        y.append(np.concatenate(heads) @ layer.output.weight.value)
    return np.stack(y), memories


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_the_layer_is_what_its_formulas_say(chunk):
    layer, cache = net(chunk), DeltaCache()
    expected, memories = written_out(layer, X[0])
    np.testing.assert_allclose(layer(X)[0][0], expected, rtol=1e-9)
    layer(X, cache=cache)
    np.testing.assert_allclose(cache.state[0], memories, rtol=1e-9)
    before = cache.state
    cache.select(np.array([1, 1]))
    np.testing.assert_array_equal(cache.state, before[[1, 1]])


@rejects("step-sign-of-the-decay")
def a_memory_never_grows_by_itself():
    x, log_rate, shift = RNG.normal(size=(5, 3)), np.log([0.5, 1.0, 4.0]), np.zeros(3)
    np.testing.assert_allclose(step_decay(x, log_rate, shift)[0], -np.exp(log_rate) * np.log1p(np.exp(x)), **CLOSE)


def test_a_very_long_step_does_not_overflow():
    decay, backward = step_decay(np.array([[800.0, -800.0]]), np.zeros(2), np.zeros(2))
    np.testing.assert_array_equal(decay, [[-800.0, 0.0]])
    np.testing.assert_array_equal(backward(np.ones((1, 2)))[0], [[-1.0, 0.0]])


def test_padding_on_the_left_changes_nothing_and_learns_nothing():
    layer, mask = net(), np.array([[False, False, True, True, True, True, True]] * 2)
    y, backward = layer(X, mask=mask[:, None])
    np.testing.assert_allclose(y[:, 2:], layer(X[:, 2:])[0], rtol=1e-9)
    dx = backward(RNG.normal(size=y.shape))
    assert not dx[:, :2].any() and dx[:, 2:].all()


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="GatedDeltaNet: 5 heads of values cannot share 2 of keys equally"):
        GatedDeltaNet(6, 5, 2, 3, 2)
