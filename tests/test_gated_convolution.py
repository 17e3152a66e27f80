"""The convolution between two gates: against its formula, number by number; its cache; its mistakes."""

import numpy as np

from minitransformer.ideas.after.gated_convolution import GatedConvolution

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 7, 4))


def drawn(kernel=3):
    layer = GatedConvolution(4, kernel, bias=True).to(dtype="float64")
    for _, parameter in layer.parameters():
        parameter.value = RNG.normal(size=parameter.value.shape)
    return layer


def test_the_layer_is_what_its_formula_says():
    layer, weight = drawn(), lambda part, row: row @ part.weight.value + part.bias.value
    filters = layer.convolution.weight.value
    entering = [weight(layer.gate_in, row) * weight(layer.inner, row) for row in X[0]]
    for t, row in enumerate(X[0]):
        mixed = layer.convolution.bias.value + sum(
            filters[2 - back] * entering[t - back] for back in range(min(t, 2) + 1)
        )
        expected = weight(layer.last, weight(layer.gate_out, row) * mixed)
        np.testing.assert_allclose(layer(X)[0][0, t], expected, rtol=1e-11)


def test_padding_on_the_left_learns_nothing():
    layer, mask = drawn(), np.array([[False, False, True, True, True, True, True]] * 2)
    layer.gate_in.bias.value[:] = 0.0  # a gate without a bias is shut where a token counts as 0
    y, backward = layer(X, mask=mask[:, None])
    np.testing.assert_allclose(y[:, 2:], layer(X[:, 2:])[0], rtol=1e-11)
    dx = backward(RNG.normal(size=y.shape))
    assert not dx[:, :2].any() and dx[:, 2:].all()
