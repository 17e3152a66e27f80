"""Patches of an image: against a loop, their mistakes."""

import numpy as np
import pytest
from value_checks import CLOSE

from minitransformer import layers
from minitransformer.ideas.after.patches import PatchEmbedding, patches

RNG = np.random.default_rng(3)
PIXELS = RNG.normal(size=(2, 3, 5, 7))


def test_the_values_are_those_of_the_formula():
    found = patches(PIXELS, 2, 3)[0]
    tiles = [
        [image[c, i * 2 + a, j * 3 + b] for b in range(3) for a in range(2) for c in range(3)]
        for image in PIXELS
        for i in range(2)
        for j in range(2)
    ]
    np.testing.assert_array_equal(found, np.reshape(tiles, (2, 4, 18)))


def test_backward_puts_every_number_back():
    y, backward = patches(PIXELS, 2, 3)
    whole = np.zeros(PIXELS.shape)
    whole[..., :4, :6] = PIXELS[..., :4, :6]
    np.testing.assert_array_equal(backward(y), whole)


def test_a_sequence_begins_with_the_class_token():
    embed = PatchEmbedding((4, 6), (2, 3), 3, 5, rng=np.random.default_rng(0)).to(dtype="float64")
    pixels = PIXELS[..., :4, :6]
    found = embed(pixels)[0]
    places = embed.positions.table.value
    np.testing.assert_allclose(found[:, 0], np.broadcast_to(embed.class_token.value + places[0], (2, 5)))
    window = embed.weight.value.transpose(3, 2, 1, 0)  # (D, C, p, q), as a convolution has it
    expected = np.einsum("bcad,ocad->bo", pixels[..., 2:4, 3:6], window) + embed.bias.value + places[4]
    np.testing.assert_allclose(found[:, 4], expected, **CLOSE)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"a tile must fit into the image of 5 × 7 pixels, got 6 × 2"):
        patches(PIXELS, 6, 2)
    embed = PatchEmbedding((4, 6), (2, 3), 3, 5)
    with pytest.raises(ValueError, match=r"PatchEmbedding: pixels must be \(..., 3, 4, 6\), got shape \(2, 3, 5, 7\)"):
        embed(PIXELS.astype("float32"))
    with pytest.raises(TypeError, match="PatchEmbedding: x is float64 but its parameters are float32"):
        embed(PIXELS[..., :4, :6])


def test_a_norm_is_between_positions_and_dropout():
    embed = PatchEmbedding((4, 6), (2, 3), 3, 5, False, norm=layers.LayerNorm(5)).to(dtype="float64")
    found = embed(PIXELS[..., :4, :6])[0]
    np.testing.assert_allclose(found.mean(axis=-1), 0.0, atol=1e-12)
