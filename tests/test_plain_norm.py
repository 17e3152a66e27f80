"""RMSNorm without a gain: against its formula, beside a rotation, and its mistakes."""

import numpy as np
import pytest
from value_checks import CLOSE

from minitransformer import ideas
from minitransformer.ideas.after.plain_norm import PlainRMSNorm
from minitransformer.ideas.published.nanochat import BackwardPositions

HEADS = np.random.default_rng(0).normal(size=(2, 3, 5, 4))


def test_the_values_are_those_of_the_formula():
    norm = PlainRMSNorm(4, 0.01)
    size = np.sqrt((HEADS**2).mean(axis=-1, keepdims=True) + 0.01)
    np.testing.assert_allclose(norm(HEADS)[0], HEADS / size, **CLOSE)
    assert not dict(norm.parameters()) and norm(HEADS.astype(np.float32))[0].dtype == np.float32
    with pytest.raises(ValueError, match="its width"):
        norm(HEADS[..., :3])


def test_it_changes_places_with_a_rotation():
    norm, turn = PlainRMSNorm(4), ideas.RotaryPositions(50.0)
    np.testing.assert_allclose(turn(norm(HEADS)[0], 3)[0], norm(turn(HEADS, 3)[0])[0], **CLOSE)


def test_positions_that_turn_the_other_way_undo_a_rotation():
    turned = ideas.RotaryPositions(50.0)(HEADS, 3)[0]
    np.testing.assert_allclose(BackwardPositions(50.0)(turned, 3)[0], HEADS, **CLOSE)
